"""What is risky about an action that is only described: tables of wordings, with how much and why. Decides nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

import re2

from portico.catalog import Danger
from portico.safety.wording import either

UNKNOWN = 15  # of an action that is described, in words that no table has
VAGUE = 35  # of a hint that does not say what will be done
SUSPECT = 61  # of a hint that is not meant to be read

# Of operations of this site: within the range that MCP-AQL has for each level of danger.
BASELINES: Mapping[Danger, int] = {
    Danger.SAFE: 5,
    Danger.REVERSIBLE: 20,
    Danger.DESTRUCTIVE: 50,
    Danger.DANGEROUS: 75,
    Danger.FORBIDDEN: 95,
}


@dataclass(frozen=True, slots=True)
class Risk:
    """Wordings that mean the same, as globs of words with commas between them."""

    score: int
    reason: str
    wordings: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One reason for a score."""

    score: int
    reason: str


RISKS: tuple[Risk, ...] = (
    Risk(
        95,
        "destroys files or disks",
        """
        rm -rf*, rm -fr*, rm -r*, rm --recursive*, rm --force*, mkfs*, dd if=*, dd of=*, shred *, wipe *, wipefs*,
        fdisk*, diskpart*, format disk*, format drive*, format c, rd /s*, rmdir /s*, del /s*, del /f*, del /q*,
        remove item * recurse*, find * delete, rmtree*, dev sd*, dev nvme*, fork bomb*
        """,
    ),
    Risk(
        95,
        "destroys a database or much of it",
        """
        drop table*, drop database*, drop schema*, drop index*, drop collection*, drop column*, drop view*,
        drop user*, droptable*, dropdatabase*, dropdb, truncate *, truncating *, flushall*, flushdb*, delete all*,
        delete every*, delete * everything*, deleting all*, deleting every*, remove all*, erase all*, erase every*,
        destroy *, destroying *, terraform destroy*, wiping *
        """,
    ),
    Risk(
        90,
        "runs code from elsewhere or out of sight",
        """
        curl * sh, curl * bash, curl * zsh, curl * python*, wget * sh, wget * bash, wget * python*,
        powershell * enc*, powershell enc*, invoke expression*, iex *, reverse shell*, nc -e*, ncat *, dev tcp*,
        base64 -d*, base64 --decode*, ld preload*, ignore * instructions*
        """,
    ),
    Risk(
        90,
        "works against its own supervision",
        """
        approve my*, approve own*, approve it myself*, approve * myself*, approve itself*, self approv*,
        portico approve*, portico keys*, portico unblock*, kill * server*, kill * portico*, stop * server*,
        disabl* safety*, disabl* supervision*, disabl* audit*, disabl* logging*, disabl* polic*, disabl* firewall*,
        disabl* approval*, turn* off safety*, turn* off * audit*, without approval*, without * approval*,
        without confirmation*, without telling*, delet* * audit*, edit* * audit*, clear* * audit*, chang* * safety*,
        edit* * safety*, history -c*
        """,
    ),
    Risk(
        80,
        "gains rights that it was not given",
        """
        sudo*, doas *, su root, chmod 777*, chmod * 777*, chmod a+rwx*, chmod u+s*, chmod +s*, setuid*, setcap*,
        chown root*, visudo*, sudoers*, etc passwd*, etc shadow*, as root, as administrator, escalat* * privilege*,
        grant all*, nopasswd*
        """,
    ),
    Risk(
        80,
        "rewrites what others have",
        """
        git push * force*, git push -f*, git push * f, push --force*, force push*, force pushing*,
        git reset --hard*, git clean -f*, git filter*, git branch -d*, rewrit* * history*, docker system prune*,
        kubectl delete*
        """,
    ),
    Risk(
        75,
        "touches what supervises it",
        """
        approve *, approving *, confirm operation*, confirm * operation*, verify challenge*, verify code*,
        verification code*, unblock*, audit log*, audit trail*, safety loop*, safety polic*, edit* * policy,
        chang* * policy, bypass*, overrid*, circumvent*, portico toml*
        """,
    ),
    Risk(
        70,
        "runs code that it was given as text",
        """
        eval *, exec *, python -c*, python3 -c*, perl -e*, ruby -e*, node -e*, bash -c*, sh -c*, os system*,
        subprocess*, crontab*, systemctl*, kill -9*, killall*, pkill*, shutdown*, reboot*, iptables*, regedit*,
        reg add*, reg delete*
        """,
    ),
    Risk(
        70,
        "touches what is live",
        """
        deploy* * production*, deploy* * prod, to production*, in production*, on production*, production database*,
        prod database*, production server*, terraform apply*
        """,
    ),
    Risk(
        65,
        "touches secrets",
        """
        password*, passwd*, passphrase*, credential*, api key*, api token*, private key*, access key*,
        access token*, secret key*, client secret*, secrets, ssh key*, id rsa*, id ed25519*, bearer *, keychain*,
        session cookie*, seed phrase*, card number*, social security number*, env file*, aws secret*, read* * .env,
        cat .env*
        """,
    ),
    Risk(
        65,
        "moves money",
        """
        pay *, paying *, transfer* money*, transfer* fund*, transfer* * money*, transfer* * fund*,
        transfer* * account*, wire *, wiring *, purchase *, purchasing *, buy *, buying *, place * order*,
        placing * order*, refund *, refunding *, charge * card*, charging * card*, withdraw*, send* money*,
        send* * bitcoin*
        """,
    ),
    Risk(
        65,
        "deletes files",
        """
        rm *, unlink *, del *, purge*, purging*, rmdir *
        """,
    ),
    Risk(
        60,
        "deletes rows of a database",
        """
        delete from*, kubectl apply*, alter table*
        """,
    ),
    Risk(
        50,
        "deletes",
        """
        delete*, deleting*, remove*, removing*, erase*, erasing*, clear *, clearing *, uninstall*, discard*, revok*,
        overwrit*, drop*table*, cancel *, cancelling *
        """,
    ),
    Risk(
        50,
        "publishes or deploys",
        """
        git push*, deploy*, publish *, publishing *, publicly*, tweet*, posting *, post to*, post on*, post a,
        post the*, npm publish*, twine upload*
        """,
    ),
    Risk(
        45,
        "is about money",
        """
        payment*, checkout*, credit card*, invoice*, bank account*
        """,
    ),
    Risk(
        40,
        "tells somebody something",
        """
        send *, sending *, email the*, email to*, emailing *, mail to*, mailing *, message to*, messaging *,
        notify*, reply*, replying *, comment on*, commenting *, sms *, share *, sharing *, invite *, inviting *
        """,
    ),
    Risk(
        40,
        "runs a command",
        """
        execut*, shell*, terminal*, command*, run *, running *, script*, bash*, powershell*, cmd *, npm *, pip *,
        install*, apt *, apt get*, brew *, docker *, kubectl *, git *, make *, python *, node *, chmod*, chown*,
        curl*, wget*
        """,
    ),
    Risk(
        25,
        "writes",
        """
        write*, writing*, update*, updating*, create*, creating*, add *, adding *, edit *, editing *, modify*,
        change*, changing*, insert*, save*, saving *, upload*, renam*, move *, moving *, set *, setting *, replac*,
        patch*, merge*, merging *, import *, importing *, put *, append*, configur*, copy *, copying *, commit*,
        book *, booking *, reserv*, submit*, reset*
        """,
    ),
    Risk(
        20,
        "uses the network",
        """
        http, https, www, download*, request to*, requesting *, api *, webhook*, call* * server*, ftp*
        """,
    ),
    Risk(
        10,
        "reads",
        """
        read*, list*, get *, getting *, search*, find*, look*, view*, show*, check*, count*, compar*, fetch*, load*,
        open*, brows*, summar*, review*, describ*, inspect*, query*, ask*, collect*, analy*, introspect*
        """,
    ),
)

# The names of operations that say how dangerous they are (MCP-AQL, danger levels).
TELLING_NAMES: tuple[tuple[Danger, tuple[str, ...]], ...] = (
    (
        Danger.FORBIDDEN,
        (
            "drop_*",
            "delete_all*",
            "truncate_*",
            "reset_*",
            "destroy_*",
            "wipe_*",
            "*_production",
        ),
    ),
    (
        Danger.DANGEROUS,
        (
            "force_*",
            "*_permanently",
            "bulk_delete*",
            "override_*",
            "bypass_*",
            "*_without_backup",
            "purge_*",
        ),
    ),
)

_FILLERS = """
    proceed proceeding continue continuing carry carrying on do doing it that this these those the a an next step
    steps go going ahead with to now please as planned plan same again ok okay yes sure start starting begin
    beginning finish finishing task tasks work working action actions act something anything stuff thing things what
    whatever is was are needed necessary required requested i we will shall should must my our your of for in and
    then so just perform performing handle handling process processing some more another previous last following
    instructed told said user let me us be done tbd n na none nothing todo
"""
FILLERS = frozenset(_FILLERS.split())  # words that a hint can be full of and say nothing


def hits(text: str) -> Iterator[Hit]:
    """What the lines of a text, in canonical words, are risky for."""
    for risk, wordings in _expressions():
        if wordings.search(text):
            yield Hit(risk.score, risk.reason)


@cache
def _expressions() -> "tuple[tuple[Risk, re2.Pattern], ...]":
    return tuple((risk, either(risk.wordings.split(","))) for risk in RISKS)


def name_hits(names: set[str]) -> Iterator[Hit]:
    """What names of operations elsewhere tell about those."""
    for danger, patterns in TELLING_NAMES:
        if any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
            yield Hit(BASELINES[danger], f"names an operation that sounds {danger.name.lower()}")


def is_vague(words: list[str]) -> bool:
    return len(words) < 2 or FILLERS.issuperset(words)
