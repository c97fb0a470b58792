"""A kitchen that agents work in: who asks it, who agrees, and what each of them is told."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from portico.access.identity import RequestCredentials, make_key
from portico.catalog import Danger, Operation, Trust
from portico.errors import SiteError
from portico.protocols import parse_config
from portico.requests import Call, Caller, Outcome
from portico.safety.guard import Guard, UsedStep
from portico.safety.models import PendingChallenge, VerificationCode
from portico.safety.reporting import StepDecision, StepReport
from portico.server.assembly import Parts, open_site
from portico.site import Site
from portico.store.records import Put
from portico.telemetry import Recorder, discard

CHEF = ("ask", "*:*")
ADDING = "calling create_recipe to add the soup"
DENIED = "executing shell command: rm -rf /"
OWN = '''
import asyncio

from portico.errors import Conflict
from portico.operations import Context, operation

@operation(kind="execute", danger="reversible")
async def set_table(context: Context, seats: int = 1) -> dict[str, int]:
    """Set the table."""
    if seats > 10:
        raise Conflict("There are not so many chairs")
    return {"seats": seats}

@operation(kind="execute", danger="reversible", long=True)
async def simmer(context: Context) -> dict[str, str]:
    """Simmer, for as long as nobody puts an end to it."""
    await asyncio.Event().wait()
    return {}

@operation(kind="execute", danger="destructive")
async def close_kitchen(context: Context, why: str = "") -> dict[str, str]:
    """Close the kitchen."""
    return {"why": why}

@operation(kind="read", danger="destructive")
async def taste_soup(context: Context) -> dict[str, str]:
    """Taste the soup, of which less is left then."""
    return {}

@operation(kind="execute", danger="dangerous")
async def burn_kitchen(context: Context) -> dict[str, str]:
    """Burn the kitchen."""
    return {}
'''
Open = Callable[..., AbstractAsyncContextManager[Parts]]


@asynccontextmanager
async def opened_kitchen(
    folder: Path, url: str = "sqlite:///:memory:", record: Recorder = discard, **said: Any
) -> AsyncIterator[Parts]:
    """The kitchen with these settings. Recipes that are there already stay as they are."""
    (folder / "own.py").write_text(OWN)
    settings = {
        "folder": str(folder),
        "store": {"url": url},
        "search": {"embedder": "none:"},
        "collections": {"recipes": {"unknown": "keep"}},
        "operations": ["own.py"],
    }
    async with open_site(parse_config({**settings, **said}), record=record) as parts:
        if not await parts.store.items.get("recipes", "r1"):
            await parts.store.items.write("recipes", [Put(f"r{number}", {"name": "Soup"}) for number in range(1, 5)])
        yield parts


@pytest.fixture
def kitchen(tmp_path: Path) -> Open:
    """Open the kitchen with these settings."""

    def opening(url: str = "sqlite:///:memory:", **said: Any) -> AbstractAsyncContextManager[Parts]:
        return opened_kitchen(tmp_path, url, **said)

    return opening


@pytest.fixture
async def parts(kitchen: Open) -> AsyncIterator[Parts]:
    async with kitchen() as parts:
        yield parts


@pytest.fixture
async def eager(kitchen: Open) -> AsyncIterator[Parts]:
    """The kitchen where agents start without being let in by anybody."""
    async with kitchen(safety={"start": "allow"}) as parts:
        yield parts


@dataclass(frozen=True)
class Person:
    """Somebody with a key, who has things done and hears why not."""

    site: Site
    caller: Caller
    key: str = field(repr=False)

    async def does(self, operation: str, /, **params: Any) -> Any:
        return await self.calls(Call(operation, params))

    async def calls(self, call: Call) -> Any:
        outcome = await self.site.call(call, self.caller)
        assert isinstance(outcome, Outcome)
        return outcome.result

    async def refused(self, operation: str, /, **params: Any) -> SiteError:
        return await self.hears(Call(operation, params))

    async def hears(self, call: Call) -> SiteError:
        """What a call is refused with."""
        with pytest.raises(SiteError) as refusal:
            await self.calls(call)
        return refusal.value

    async def starts(self, name: str = "bot", **params: Any) -> str:
        return (await self.does("execute_agent", element_name=name, **params))["execution_id"]

    async def steps(self, hint: str = ADDING, name: str = "bot", outcome: str = "success", **said: Any) -> Any:
        """Report a step; the directive that comes back, with the status and the token beside it."""
        told = {"outcome": outcome} if outcome else {}
        report = {"element_name": name, "next_action_hint": hint, **told, **said}
        answer = await self.does("record_execution_step", **report)
        return {**answer["autonomy"], "status": answer["status"], "token": answer.get("confirmation", {}).get("token")}

    async def agrees(self, token: str, decision: str = "approve") -> Any:
        """Decide as somebody who has looked at what waits."""
        shown = await self.does("list_pending_approvals", confirmation_token=token)
        digests = {each["token"]: each["digest"] for each in shown["confirmations"]}
        seen = {"digest": digests[token]} if token in digests else {}
        return await self.does("confirm_operation", confirmation_token=token, decision=decision, **seen)

    async def wants(self, operation: str, /, **params: Any) -> str:
        """The token of what somebody has to agree to."""
        return (await self.refused(operation, **params)).details["token"]


async def person(
    parts: Parts, *scopes: str, name: str = "bot", danger: Danger = Danger.DESTRUCTIVE, trust: Trust = Trust.VALIDATED
) -> Person:
    token, key = make_key(name, scopes or CHEF, danger, 1, trust=trust)
    await parts.store.keys.add(key)
    return Person(parts.site, await parts.site.access.authenticate(RequestCredentials(token)), token)


async def boss_of(parts: Parts) -> Person:
    return await person(parts, "approve", name="boss", danger=Danger.SAFE)


async def again(who: Person, parts: Parts) -> Person:
    """The same person at a site that was opened again."""
    return replace(who, site=parts.site, caller=await parts.site.access.authenticate(RequestCredentials(who.key)))


async def blocked(who: Person) -> str:
    """Have an agent do what blocks it; the id of the challenge."""
    await who.starts()
    said = await who.steps(DENIED)
    assert said["stopped"] is True
    return said["notifications"][-1]["metadata"]["verificationId"]


async def fresh_code(site: Site, challenge: str, boss: Person) -> str:
    _, code = await site.supervision.reissue(challenge, boss.caller)
    assert isinstance(code, VerificationCode)
    return code.reveal()


async def events(parts: Parts, boss: Person) -> list[str]:
    return [line.event for line in await parts.site.supervision.trail(0, 1000, boss.caller)]


@dataclass(frozen=True)
class Later:
    """The same kitchen, as a process sees it whose clock is ahead."""

    guard: Guard
    site: Site
    shown: list[VerificationCode]

    async def clears(self, call: Call, who: Person) -> UsedStep | None:
        return await self.guard.clear(call, self.site.catalog.operation(call.operation), who.caller)

    async def refuses(self, call: Call, who: Person) -> SiteError:
        with pytest.raises(SiteError) as refusal:
            await self.clears(call, who)
        return refusal.value

    async def steps(self, who: Person, hint: str = ADDING, risk: int = 0) -> StepDecision:
        return await self.guard.loop.report_step(StepReport("bot", hint, outcome="success", risk=risk), who.caller)


def later(site: Site, seconds: float) -> Later:
    def operations() -> dict[str, Operation]:
        return dict(site.catalog.operations)

    def clock() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=seconds)

    shown: list[VerificationCode] = []

    def show(_: PendingChallenge, code: VerificationCode) -> None:
        shown.append(code)

    return Later(Guard(site.finder.store, site._guard.settings, operations, discard, show, clock), site, shown)
