"""Refusals say what was refused and why. None of them tells an agent how to be allowed more."""

import ast
import inspect
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.protocols.conftest import asking
from tests.safety.conftest import DENIED, Open, boss_of, person
from tests.safety.test_attacks import PROTOCOL_CALLS, served, visit_of

import portico
from portico import errors
from portico.access.identity import RequestCredentials
from portico.catalog import Danger, Trust
from portico.config import Config
from portico.errors import SiteError
from portico.requests import Ask, Call
from portico.server.assembly import Parts

SOURCE = Path(inspect.getfile(portico)).parent
# What the operator types at the machine: no agent reads it.
COMMANDS = {"cli"}
REFUSALS = {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.Denied)
} | {"RateLimited"}
SECTIONS = "|".join(field.name for field in msgspec.structs.fields(Config))
# Commands and their options, settings, and ways out of supervision.
LESSONS = re.compile(
    rf"\bportico \w|(?<![\w-])--\w|\b(?:{SECTIONS})\.[a-z_]+|\ballow_\w+"
    r"|\bkeys? made\b|\b(?:make|create|use) (?:a|an) (?:new |another )?(?:key|certificate|token)\b"
    r"|\bmay have more\b|\bwith (?:more|higher) trust\b|\bend the execution\b"
    r"|\b(?:set|raise|lower|change|add|disable|turn off)\b[^.]{0,40}\b(?:trust|danger|scope|polic|safety|limit)",
    re.IGNORECASE,
)

__all__ = ["served"]


def refusals() -> Iterator[tuple[str, str]]:
    """Every text in the source that a refusal can show, with where it stands."""
    for file in sorted(SOURCE.rglob("*.py")):
        if file.relative_to(SOURCE).parts[0].removesuffix(".py") in COMMANDS:
            continue
        tree = ast.parse(file.read_text())
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in REFUSALS:
                for text in texts(call):
                    yield f"{file.relative_to(SOURCE)}:{call.lineno}", text


def texts(call: ast.Call) -> Iterator[str]:
    shown = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "hint")]
    for part in shown:
        for node in ast.walk(part):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_no_refusal_in_the_source_teaches_how_to_be_allowed_more() -> None:
    found = list(refusals())

    assert len(found) > 100
    assert [(where, text) for where, text in found if LESSONS.search(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Use a key made with `portico keys create --trust validated`.",
        "Holders of tokens may risk what oauth.danger says; a key may have more.",
        "Report the step again when a person has agreed, or end the execution.",
        "safety.desk says from where it can be reached.",
        "The operator can add it to server.origins.",
        "Create a key with more scopes",
    ],
)
def test_such_lessons_would_be_noticed(text: str) -> None:
    assert LESSONS.search(text)


async def refused_in_process(parts: Parts) -> list[SiteError]:
    """One refusal of every kind that callers with too few rights meet."""
    nobody = await parts.site.access.authenticate(RequestCredentials(address="10.0.0.1"))
    reader = await person(parts, "read:recipes")
    weak = [
        await person(parts, danger=Danger.SAFE),
        await person(parts, danger=Danger.DANGEROUS, trust=Trust.VALIDATED),
        await person(parts, trust=Trust.GENERATED),
        await person(parts, trust=Trust.UNTESTED),
    ]
    told = [await each.refused("burn_kitchen") for each in weak]
    told += [await reader.refused("set_table"), await reader.refused("close_kitchen")]
    told += [await reader.refused("confirm_operation", confirmation_token="conf_" + "x" * 54)]
    for request, caller in ((Call("set_table", {}), nobody), (Call("execute_agent", {"element_name": "b"}), nobody)):
        with pytest.raises(SiteError) as refusal:
            await parts.site.call(request, caller)
        told.append(refusal.value)
    with pytest.raises(SiteError) as refusal:
        async for _ in parts.site.ask(Ask("soup"), reader.caller):
            pass
    told.append(refusal.value)
    with pytest.raises(SiteError) as refusal:
        await parts.site.access.authenticate(RequestCredentials("portico_nobody_knows_it"))
    told.append(refusal.value)
    bot = await person(parts)
    told.append(await bot.refused("close_kitchen"))
    await bot.starts()
    told.append(await bot.refused("set_table"))
    assert (await bot.steps("sudo systemctl restart nginx"))["continue"] is False
    told.append(await bot.refused("set_table"))
    blocked = await person(parts)
    await blocked.starts()
    await blocked.steps(DENIED)
    told.append(await blocked.refused("set_table"))
    return told


async def test_no_refusal_of_a_site_teaches_how_to_be_allowed_more(eager: Parts) -> None:
    told = await refused_in_process(eager)

    assert {type(each).__name__ for each in told} >= {
        "AgentBlocked",
        "ConfirmationNeeded",
        "DangerDenied",
        "Forbidden",
        "StepNeeded",
        "TrustInsufficient",
        "Unauthenticated",
    }
    assert [text for each in told if LESSONS.search(text := f"{each} {each.details}")] == []


async def test_no_protocol_adds_such_a_lesson(served: tuple[Parts, int]) -> None:
    parts, port = served
    callers = [
        await person(parts, "read:recipes"),
        await person(parts, danger=Danger.SAFE),
        await person(parts, trust=Trust.GENERATED),
        await person(parts, danger=Danger.DANGEROUS),
    ]
    told: list[Any] = []
    for who in callers:
        async with visit_of(who, port) as visit:
            for name, door in PROTOCOL_CALLS.items():
                try:
                    done, said = await door(visit, "burn_kitchen", {})
                except ExceptionGroup as group:  # of a client that is refused while it connects
                    done, said = False, "".join(traceback.format_exception_only(group.exceptions[0]))
                told.append((name, done, bool(LESSONS.search(said)), said))

    assert [each for each in told if each[1] or each[2]] == []
    assert (await parts.site.supervision.pending((await boss_of(parts)).caller)).confirmations == ()


async def test_the_desk_adds_no_such_lesson(kitchen: Open) -> None:
    async with kitchen() as parts, asking(parts) as http:
        reader = await person(parts, "read:recipes")
        http.base_url = "http://127.0.0.1"
        answers = [
            await http.get("/desk/api/pending"),
            await http.get("/desk/api/pending", headers={"authorization": f"Bearer {reader.key}"}),
            await http.get("/desk/api/pending", headers={"x-forwarded-for": "10.0.0.1"}),
            await http.get("/desk", headers={"x-forwarded-for": "10.0.0.1"}),
            await http.post("/aql", json={}, headers={"origin": "https://evil.example"}),
        ]

    assert [each.status_code >= 400 for each in answers] == [True] * 5
    assert [text for each in answers if LESSONS.search(text := _text(each))] == []


def _text(answer: httpx.Response) -> str:
    """Return what an answer says, without the style sheets and tags of a page."""
    return re.sub(r"<(style|script)\b.*?</\1>|<[^>]+>", " ", answer.text, flags=re.DOTALL)
