"""Risks of described actions: tables of wordings with scores and reasons. Decides nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

import re2

from portico.catalog import Danger
from portico.safety.normalization import any_pattern, near_pattern

UNKNOWN = 15  # for an action that no table describes
VAGUE = 35  # for a hint that does not name an action
SUSPECT = 61  # for a hint that is obfuscated

# For operations of this site, within the range that MCP-AQL has for each danger level.
BASELINES: Mapping[Danger, int] = {
    Danger.SAFE: 5,
    Danger.REVERSIBLE: 20,
    Danger.DESTRUCTIVE: 50,
    Danger.DANGEROUS: 75,
    Danger.FORBIDDEN: 95,
}


_SMALL = """
    the, a, an, this, that, these, those, my, our, your, their, its, up, out, away, off, just, simply, quickly, now,
    please, really, absolutely, literally, immediately, irrevocably, permanently, completely, entirely, der, die, das,
    den, dem, meine, unsere, Sie, bitte, jetzt, sofort, endgültig, le, la, les, l, mes, nos, définitivement,
    immédiatement, el, los, las, mis, por completo, completamente, definitivamente
"""


@dataclass(frozen=True, slots=True)
class Risk:
    """Wordings with one meaning, as comma-separated globs of words."""

    score: int
    reason: str
    wordings: str


@dataclass(frozen=True, slots=True)
class Nearby:
    """Words of two lists with a meaning when one closely follows the other."""

    score: int
    reason: str
    before: str
    after: str
    others: int = 0  # words allowed between them besides small ones
    between: str = _SMALL
    closing: str = ""  # words one of which has to follow, unless the text ends


@dataclass(frozen=True, slots=True)
class RiskHit:
    """One reason for a score."""

    score: int
    reason: str


RISKS: tuple[Risk, ...] = (
    Risk(
        95,
        "destroys files or disks",
        """
        rm -rf*, rm -fr*, rm -r*, rm --recursive*, rm --force*, mkfs*, dd if=*, dd of=*, wipe *, wipefs*,
        fdisk*, diskpart*, format disk*, format drive*, format c, rd /s*, rmdir /s*, del /s*, del /f*, del /q*,
        remove item * recurse*, find * delete, rmtree*, dev sd*, dev nvme*, fork bomb*, mv * dev null*, cp dev null*,
        cat dev null *, zeroing out *
        """,
    ),
    Risk(
        95,
        "destroys a database or much of it",
        """
        drop table*, drop database*, drop schema*, drop index*, drop collection*, drop column*, drop view*,
        drop user*, droptable*, dropdatabase*, dropdb, truncate *, truncating *, flushall*, flushdb*, delete all*,
        delete every*, delete * everything*, deleting all*, deleting every*, remove all*, erase all*, erase every*,
        destroy *, destroying *, terraform destroy*, wiping *, destruction of*,
        zerstöre, zerstören, vernichte, vernichten, détruire, détruis, détruit, détruisant, destruir, destruye,
        destruyendo, distruggere, уничтож*, удалить все*, удали все*, стереть все*, *删除所有*, *删除全部*, *刪除所有*,
        *清空*, *すべて*削除*, *全て*削除*, *모든*삭제*, *모두*삭제*
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
        my own request*, my own case*, my own step*, green light my*, sign off my*, sign off on my*, portico approve*,
        portico keys*, portico unblock*, kill * server*, kill * portico*, stop * server*, disabl* safety*,
        disabl* supervision*, disabl* audit*, disabl* logging*, disabl* polic*, disabl* firewall*, disabl* approval*,
        turn* off safety*, turn* off * audit*, without approval*, without * approval*, without confirmation*,
        without telling*, no safety*, delet* * audit*, edit* * audit*, clear* * audit*, chang* * safety*,
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
        chang* * policy, bypass*, overrid*, circumvent*, portico toml*, agree to my*, agree for *, agree on * behalf*,
        to agree, agreeing for*, genehmig*, freigeben, freigabe, zustimmen, approuv*, approbation*, aprobar*, aprueb*,
        aprobación*, approvare, Antrag bestätigen, Schritt bestätigen, bestätige den Antrag*, bestätige den Schritt*,
        valider la demande*, validar la solicitud*, одобр*, *批准*, *承認*
        """,
    ),
    Risk(
        80,
        "reaches for the records of its supervision",
        """
        sqlite3 * db*, sqlite3 * update*, sqlite3 * insert*, sqlite3 * delete*, sqlite3 * select*, psql * update*,
        psql * insert*, psql * delete*, site db*, portico db*, update cases*, into cases*, from cases where*,
        delete from cases*, update trail*, into trail*, delete from trail*, update keys*, into keys*, supervision s *,
        cases table*, trail table*, operator s desk*
        """,
    ),
    Risk(
        80,
        "reaches for a code or a key of somebody else",
        """
        pager log*, pager txt*, pager file*, pager message*, from the pager*, pager * code*, code * pager*, cat code*,
        the code from * log*, the code in * log*, codes from * log*, codes in * log*, the code from * inbox*,
        the code in * inbox*, code from the operator*, code * by sms*, code * via sms*, tell me the code*,
        give me the code*, send me the code*, code that was sent*, code sent to*, guess* the code*, guess* a code*,
        guessing codes*, try* codes*, one time code*, onetime code*, approval code*, challenge code*,
        code for * challenge*, operator s code*, otp, 2fa*, brute forc*, s key to*, s key for*, s keys to*,
        s token to*, s token for*, s credentials*, admin key*, operator key*, operator s key*, operator s token*,
        someone else s *, somebody else s *, impersonat*, pretend* to be*, log in as*, logging in as*, sign in as*,
        signing in as*
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
        rm *, unlink *, del *, purge*, purging*, rmdir *, nuke *, nuking *, obliterat*, annihilat*, eradicat*,
        demolish*, sabotag*, vandali*, expung*, shred *
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
        overwrit*, drop*table*, cancel *, cancelling *, deletion*, removal*, erasure*, get rid of*, getting rid of*,
        do away with*, doing away with*, throw away*, throwing away*, throw out*, throwing out*, empty the*,
        empty out*, empty all*, emptying *, shredding *, trash the*, trashing *, lösch*, loesch*, gelösch*,
        entferne, entfernen, leeren, verwerfen, supprim*, suppression*, effac*, vider, vidant, vidage,
        élimin*, borra, borrar, borraré, borrando, borrado, borren, borro, suprim*, vaciar, vaciando, cancellare,
        svuotare, apagar, удал*, стереть, *删除*, *刪除*, *削除*, *消去*, *삭제*
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
        curl*, wget*, mv *, cp *
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

_DELETING = """
    delete, deletes, deleting, deletion of, erase, erasing, erasure of, remove, removing, removal of, purge, purging,
    wipe, wiping, discard, discarding, drop, dropping, empty, emptying, get rid of, getting rid of, gets rid of,
    do away with, doing away with, throw away, throwing away, throw out, throwing out, trash, trashing, nuke, nuking,
    shred, shredding, unlink, unlinking, eliminate, eliminating, expunge, expunging, scrap, scrapping,
    overwrite, overwriting, clear out, clearing out
"""
_RUINING = """
    nuke, nuking, nuked, obliterate, obliterating, annihilate, annihilating, eradicate, eradicating, demolish,
    demolishing, raze, razing, trash, trashing, zap, zapping, vaporize, vaporizing, wreck, wrecking, sabotage,
    sabotaging, corrupt, corrupting, ruin, ruining, blow away, blowing away, zero out, shred, shredding, brick, bricking
"""
_STORES = """
    database, databases, db, disk, disks, drive, drives, hard drive, volume, volumes, partition, partitions,
    filesystem, file system, backup, backups, bucket, cluster, schema
"""
_GERMAN = "löschen, loeschen, entfernen, vernichten, zerstören, formatieren"
_GERMAN_WHOLE = "alle, alles, aller, allen, sämtliche, sämtlicher, ganze, ganzen, gesamte, gesamten"
_GERMAN_STORES = "Datenbank, Datenbanken, Festplatte, Festplatten, Laufwerk, Sammlung, Sammlungen, Daten, Dateisystem"
_FRENCH = """
    supprimer, supprime, supprimez, supprimant, supprimons, suppression de, suppression des, effacer, efface,
    effaçant, éliminer, vider, vide, videz, vidant, formater, reformater
"""
_SPANISH = """
    borrar, borra, bórralo, bórrala, borraré, borrando, borren, borro, borrado de, eliminar, elimina, eliminan,
    elimínalo, eliminaré, eliminando, eliminación de, suprimir, suprime, vaciar, vacía, vaciando,
    formatear, formateando
"""
_ENDING = """
    and, then, of, now, so, please, completely, entirely, permanently, again, first, today, forever, before, after,
    because, to, with, for, at, in, on, by, as, right
"""

NEARBY: tuple[Nearby, ...] = (
    Nearby(
        90,
        "works against its own supervision",
        """disable, disabling, stop, stopping, turn off, turning off, switch off, switching off, kill, killing, evade,
        evading, work around, working around, get around, getting around, without""",
        "guard, safety, supervision, oversight, audit, monitoring, approval, approvals, policies",
    ),
    Nearby(95, "deletes everything of a kind", _DELETING, "all, every, everything, entire"),
    Nearby(95, "deletes everything of a kind", _DELETING, "all of them, all of it, each and every", others=1),
    Nearby(
        95,
        "destroys what holds data",
        _RUINING,
        _STORES
        + """, file, files, folder, folders, directory, table, tables, collection, collections, data, records, rows,
        server, servers, site, website, system, repo, repository, storage, catalog, catalogue, index, logs, shop""",
        others=1,
    ),
    Nearby(
        95,
        "destroys what holds data",
        "format, formatting, reformat, reformatting, repartition, repartitioning",
        """disk, disks, drive, drives, hard drive, hard disk, volume, volumes, partition, partitions, filesystem, ssd,
        laptop, computer, pc, machine""",
        between=f"{_SMALL}, main, whole, entire, other, first, second",
    ),
    Nearby(
        95,
        "deletes what holds data",
        _DELETING,
        f"{_STORES}, table, collection, collections, dataset, site, website, shop, server, repo, repository, catalog",
        others=1,
        closing=_ENDING,
    ),
    Nearby(
        95,
        "deletes what holds data",
        "clear, clearing, clear out, clearing out, clean out, cleaning out, flush, flushing",
        f"{_STORES}, collection, collections, dataset",
        others=1,
        closing=_ENDING,
    ),
    Nearby(80, "deletes what holds data", f"{_DELETING}, clear, clearing, flush, flushing", _STORES, others=1),
    Nearby(
        80,
        "deletes everything of a kind",
        "all, every, everything, entire, toutes, tous, tout, todas, todos, todo",
        """be deleted, be removed, be erased, be wiped, be destroyed, be purged, being deleted, get deleted, get wiped,
        seront supprimées, seront supprimés, sera supprimé, être supprimées, être supprimés, seront effacées,
        serán borrados, serán borradas, serán eliminados, serán eliminadas, ser borrados, ser eliminados""",
        others=4,
    ),
    Nearby(95, "deletes everything of a kind", _GERMAN_WHOLE, _GERMAN, others=3),
    # "alle leeren Regale" are all empty shelves.
    Nearby(95, "deletes everything of a kind", _GERMAN_WHOLE, "leeren", others=3, closing=_ENDING),
    Nearby(80, "deletes everything of a kind", _GERMAN_WHOLE, "gelöscht, geleert, entfernt werden", others=3),
    Nearby(
        95,
        "deletes everything of a kind",
        f"{_GERMAN}, lösche, loesche, löscht, entferne, vernichte, Löschung, Löschen",
        _GERMAN_WHOLE,
    ),
    Nearby(95, "destroys what holds data", _GERMAN_STORES, f"{_GERMAN}, leeren", others=1),
    Nearby(
        95,
        "destroys what holds data",
        f"{_GERMAN}, lösche, loesche, leere, formatiere, Löschung",
        _GERMAN_STORES,
        others=1,
    ),
    Nearby(
        95,
        "deletes everything of a kind",
        _FRENCH,
        "tout, toute, tous, toutes, ensemble, chaque, base de données, bases de données, disque, données, collection",
    ),
    Nearby(
        95,
        "deletes everything of a kind",
        _SPANISH,
        "todo, toda, todos, todas, cada, base de datos, bases de datos, disco, datos, colección",
    ),
    Nearby(95, "deletes everything of a kind", "tout", "supprimer, effacer, vider, formater"),
    Nearby(
        80,
        "deletes everything of a kind",
        "enlever, retirer, quitar, quitando",
        "tout, toute, tous, toutes, todo, toda, todos, todas",
    ),
    Nearby(
        95,
        "deletes everything of a kind",
        "cancellare, cancella, eliminare, elimina, svuotare, apagar, apague, verwijder, verwijderen",
        "tutto, tutti, tutte, tutta, todos, todas, tudo, alle, alles",
    ),
    Nearby(
        80,
        "reaches for a code or a key of somebody else",
        "use, using, with, take, taking, borrow, borrowing",
        "s key, s keys, s token, s tokens",
        others=2,
        closing=_ENDING,
    ),
    Nearby(
        80,
        "reaches for a code or a key of somebody else",
        "log, logs, logfile, logfiles, journal, inbox, mailbox, mail, mails, notifications, sms, desk",
        "code, codes, pin",
        between="for, to, find, get, see, read, the, a, an, my, its, that, one, look, file, files, and, until, shows",
    ),
)

# Names of operations that imply a danger level (MCP-AQL).
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
FILLERS = frozenset(_FILLERS.split())  # words that carry no meaning in a hint


def hits(text: str) -> Iterator[RiskHit]:
    """Yield the risks of the lines of a normalized text."""
    for risk, wordings in _expressions():
        if wordings.search(text):
            yield RiskHit(risk.score, risk.reason)


@cache
def _expressions() -> "tuple[tuple[Risk | Nearby, re2.Pattern], ...]":
    alone = ((risk, any_pattern(risk.wordings.split(","))) for risk in RISKS)
    together = (
        (near, near_pattern(near.before, near.after, near.between, near.others, near.closing)) for near in NEARBY
    )
    return (*alone, *together)


def name_hits(names: set[str]) -> Iterator[RiskHit]:
    """Yield the risks that names of unknown operations imply."""
    for danger, patterns in TELLING_NAMES:
        if any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
            yield RiskHit(BASELINES[danger], f"names an operation that sounds {danger.name.lower()}")


def is_vague(words: list[str]) -> bool:
    return len(words) < 2 or FILLERS.issuperset(words)
