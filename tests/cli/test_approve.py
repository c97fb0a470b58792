"""`portico approve`: what an operator at the machine sees and does, while agents wait."""

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import ENVIRONMENT, SCRIPT, Portico
from tests.conformance.requirements import requirement

from portico.access.identity import RequestCredentials, make_key
from portico.catalog import Danger
from portico.errors import SiteError
from portico.protocols import read_config
from portico.requests import Call
from portico.server.assembly import open_site_without_index
from portico.store.records import Put

SITE = """
[store]
url = "sqlite:///inn.db"
[search]
embedder = "none:"
[safety]
start = "allow"
[collections.rooms]
unknown = "keep"
"""
HINT = "drop_table rooms\n\x1b[2Jconf_fake  all is well"


@dataclass
class Inn:
    """A site on disk, and an agent that calls it as a server would let it."""

    folder: Path
    portico: Portico
    key: str
    agent: str

    def do(self, operation: str, **params: Any) -> dict[str, Any]:
        """What an operation gives to the agent, or the error."""

        async def work() -> dict[str, Any]:
            async with open_site_without_index(read_config(self.folder / "portico.toml")) as parts:
                caller = await parts.site.identity.caller(RequestCredentials(self.key))
                try:
                    outcome = await parts.site.call(Call(operation, params), caller)
                except SiteError as error:
                    return {"error": type(error).__name__, **error.details}
                return {"result": msgspec.to_builtins(outcome.result)}

        return asyncio.run(work())

    def goes_too_far(self) -> str:
        """The id of the challenge that the agent has brought on itself."""
        self.do("execute_agent", element_name="bot")
        self.do("record_execution_step", element_name="bot", next_action_hint=HINT)
        [challenge] = self.portico("approve", "--json").json["challenges"]
        return challenge["id"]


@pytest.fixture
def inn(tmp_path: Path, portico: Portico) -> Inn:
    (tmp_path / "portico.toml").write_text(SITE)
    token, key = make_key("menu importer", ["*:*"], Danger.DANGEROUS, 1)

    async def furnish() -> None:
        async with open_site_without_index(read_config(tmp_path / "portico.toml")) as parts:
            await parts.store.keys.add(key)
            await parts.store.items.write(
                "rooms", [Put("attic", {"name": "The attic"}), Put("cellar", {"name": "Cellar"})]
            )

    asyncio.run(furnish())
    return Inn(tmp_path, portico, token, f"key:{key.id}")


def test_what_waits_is_listed_and_agreed_to_by_the_beginning_of_its_token(inn: Inn) -> None:
    token = inn.do("delete_room", id="attic")["token"]
    listed = inn.portico("approve")
    name = listed.out.split()[0]

    done = inn.portico("approve", name, "--yes", "--note", "Ann asked")

    assert (len(name) < len(token), token.startswith(name)) == (True, True)
    for each in (f"menu importer ({inn.agent}) wants delete_room, destructive", '{"id": "attic"}', "5 min left"):
        assert each in listed.out.replace("4 min", "5 min")
    assert "portico approve --reject TOKEN" in listed.err
    assert (done.code, 'may make this call once: delete_room {"id": "attic"}' in done.err) == (0, True), done.err
    assert "error" not in inn.do("delete_room", id="attic")
    assert inn.do("delete_room", id="cellar")["error"] == "ConfirmationNeeded"
    assert "Ann asked" in inn.portico("approve", "--audit").out


def test_what_is_refused_cannot_be_agreed_to_any_more(inn: Inn) -> None:
    token = inn.do("delete_room", id="attic")["token"]

    refused = inn.portico("approve", "--reject", token, "--json").json
    again = inn.portico("approve", token)

    assert (refused["operation"], refused["params"]) == ("delete_room", {"id": "attic"})
    assert (again.code, inn.portico("approve", "--json").json["confirmations"]) == (4, [])


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("conf_3xJq8Zv",), 2, "too short"),
        (("conf_nobody_knows_it",), 4, "not valid"),
        (("--unblock", "key:nobody", "--yes"), 3, "is not blocked"),
        (("--code", "0d9e1c04-none", "--print"), 3, "no such challenge"),
        (("--audit", "--watch"), 2, "--audit and --watch"),
    ],
)
def test_what_cannot_be_done_is_said(portico: Portico, args: tuple[str, ...], code: int, says: str) -> None:
    done = portico("approve", *args, "--store", "sqlite:///empty.db")

    assert (done.code, says in done.err) == (code, True), done.err


@requirement("aql:oob:channels", "aql:oob:channel")
def test_a_code_is_shown_on_a_terminal_alone_unless_that_is_meant(inn: Inn) -> None:
    challenge = inn.goes_too_far()

    piped = inn.portico("approve", "--code", challenge)
    shown = inn.portico("approve", "--code", challenge[:8], "--print")

    assert (piped.code, piped.out) == (2, "")
    [code] = shown.out.splitlines()
    assert len(code) == 26
    assert code not in inn.portico("approve", "--audit", "--json").out + inn.portico("approve", "--json").out


def test_an_agent_that_was_stopped_is_released_by_whoever_sits_at_the_machine(inn: Inn) -> None:
    challenge = inn.goes_too_far()
    listed = inn.portico("approve")

    asked = inn.portico("approve", "--release", challenge)  # nobody answers
    blocked = inn.do("execute_agent", element_name="bot")
    released = inn.portico("approve", "--release", challenge, "--yes")

    assert [line for line in listed.out.splitlines() if line.startswith("conf_fake")] == []
    assert "\x1b" not in listed.out
    assert (asked.code, blocked["error"]) == (1, "AgentBlocked")
    assert released.code == 0, released.err
    assert inn.do("execute_agent", element_name="bot")["result"]["status"] == "running"


def test_a_caller_is_let_work_again_without_the_step_that_it_was_stopped_at(inn: Inn) -> None:
    inn.goes_too_far()

    done = inn.portico("approve", "--unblock", inn.agent, "--yes", "--note", "a drill", "--json").json

    assert done == {"unblocked": inn.agent}
    assert inn.goes_too_far()  # the same again stops it again


@requirement("aql:gate:audit-chain")
def test_a_trail_that_somebody_has_altered_is_noticed(inn: Inn) -> None:
    inn.do("delete_room", id="attic")
    inn.do("delete_room", id="cellar")
    whole = inn.portico("approve", "--verify")
    rest = inn.portico("approve", "--audit", "--after", "1", "--json").json

    _forge(inn.folder / "inn.db")
    broken, checked = inn.portico("approve", "--verify", "--json"), inn.portico("check", "--json")

    assert (whole.code, [line["seq"] for line in rest][:1]) == (0, [2])
    assert (broken.code, json.loads(broken.out)["well"]) == (1, False)
    [finding] = [each for each in json.loads(checked.out)["findings"] if each["what"] == "audit trail"]
    assert (checked.code, finding["well"]) == (1, False)


def test_what_comes_is_shown_as_it_comes(inn: Inn) -> None:
    with _watching(inn.folder) as process:
        token = inn.do("delete_room", id="attic")["token"]
        told = json.loads(process.stdout.readline())

    assert told["waiting"]["token"] == token
    assert process.returncode == 130


@contextmanager
def _watching(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [SCRIPT, "approve", "--watch", "--json"]
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            os.kill(process.pid, signal.SIGINT)


def test_how_far_a_key_is_trusted_is_told(portico: Portico) -> None:
    store = ("--store", "sqlite:///inn.db")
    plain = portico("keys", "create", "--name", "a", *store, "--json").json
    trusted = portico("keys", "create", "--name", "b", "--trust", "certified", *store, "--json").json

    assert (plain["trust"], trusted["trust"]) == ("validated", "certified")
    assert "certified" in portico("keys", "list", *store).out
    assert portico("keys", "create", "--name", "c", "--trust", "blind", *store).code == 2


def _forge(file: Path) -> None:
    """What somebody can do who has the file."""
    with closing(sqlite3.connect(file)) as database:
        database.executescript("DROP TRIGGER trail_updated; UPDATE trail SET event = 'NOTHING' WHERE seq = 1;")


# Approving what was shown

LONG = {"id": "attic", "input": {"description": "A room.  " * 500, "price": 0.01, "note": "\u202eexe.gpj\x1b[2J"}}
ASKING = '\n[[safety.policy]]\noperation = "update_room"\ndecision = "confirm"\n'


def test_the_whole_call_is_listed_with_short_values_before_long_ones(inn: Inn) -> None:
    (inn.folder / "portico.toml").write_text(SITE + ASKING)
    inn.do("update_room", **LONG)

    listed = inn.portico("approve").out
    shown = listed[listed.index("{") : listed.rindex("}") + 1]

    assert json.loads(shown) == inn.portico("approve", "--json").json["confirmations"][0]["params"]
    assert json.loads(shown)["input"] == LONG["input"]
    assert listed.index('"price": 0.01') < listed.index('"description"')
    assert ("\u202e" in listed, "\x1b" in listed) == (False, False)


def test_on_a_terminal_the_call_is_shown_and_asked_about_before_it_is_approved(inn: Inn) -> None:
    token = inn.do("delete_room", id="attic")["token"]

    refused = _at_a_terminal(inn.folder, token, "n")
    assert (refused.returncode, '{"id": "attic"' in refused.stderr) == (1, True), refused.stderr
    assert inn.do("delete_room", id="attic")["error"] == "ConfirmationNeeded"

    assert _at_a_terminal(inn.folder, token, "y").returncode == 0
    assert "error" not in inn.do("delete_room", id="attic")


def test_in_a_script_a_token_is_enough(inn: Inn) -> None:
    token = inn.do("delete_room", id="attic")["token"]

    assert inn.portico("approve", token).code == 0
    assert "error" not in inn.do("delete_room", id="attic")


def _at_a_terminal(folder: Path, token: str, answer: str) -> subprocess.CompletedProcess[str]:
    """Approve with somebody at the keyboard who types an answer."""
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, f"{answer}\n".encode())
        return subprocess.run(
            [SCRIPT, "approve", token],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_an_approval_with_the_digest_of_another_call_is_refused(inn: Inn) -> None:
    tokens = [inn.do("delete_room", id=room)["token"] for room in ("attic", "cellar")]
    digests = {each["token"]: each["digest"] for each in inn.portico("approve", "--json").json["confirmations"]}

    swapped = inn.portico("approve", tokens[0], "--digest", digests[tokens[1]])
    right = inn.portico("approve", tokens[0], "--digest", digests[tokens[0]])

    assert (swapped.code, "is not the one shown" in swapped.err) == (4, True), swapped.err
    assert (right.code, inn.do("delete_room", id="cellar")["error"]) == (0, "ConfirmationNeeded")
    assert digests[tokens[0]] in inn.portico("approve", "--audit").out
    assert digests[tokens[1]] in inn.portico("approve").out
