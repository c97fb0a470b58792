"""The stages that a reported step goes through: which of them is heard, and what is tolerated."""

from typing import Any

from tests.conformance.requirements import requirement
from tests.safety.conftest import DENIED, Open, person

from portico.server.assembly import Parts

TABLE = "calling set_table for two"  # of little risk by itself


async def said(parts: Parts, risk: int, name: str = "bot") -> tuple[bool, bool, str]:
    """What an agent is told who has done nothing before: whether it goes on, is stopped, and how risky that was."""
    who = await person(parts, name=name)
    await who.starts()
    told = await who.steps(TABLE, risk_score=risk)
    return told["continue"], told.get("stopped", False), told["nextStepRisk"]


@requirement("aql:stage:tolerance", "aql:stage:tolerance-never-relaxes")
async def test_each_tolerance_pauses_above_its_threshold_and_none_lets_verification_pass(kitchen: Open) -> None:
    agents = {"careful": {"tolerance": "conservative"}, "bold": {"tolerance": "aggressive"}}
    safety: dict[str, Any] = {"start": "allow", "tolerance_relaxes_confirm": True, "agent": agents}
    async with kitchen(safety=safety) as parts:
        told = {
            (name, risk): await said(parts, risk, name)
            for name, risks in {"careful": (25, 26), "bot": (50, 51, 61), "bold": (60, 61, 85, 86)}.items()
            for risk in risks
        }

    assert told == {
        ("careful", 25): (True, False, "advisory"),
        ("careful", 26): (False, False, "advisory"),
        ("bot", 50): (True, False, "confirm"),
        ("bot", 51): (False, False, "confirm"),
        ("bot", 61): (False, False, "verify"),
        ("bold", 60): (True, False, "confirm"),
        ("bold", 61): (False, False, "verify"),
        ("bold", 85): (False, False, "verify"),
        ("bold", 86): (False, True, "danger_zone"),
    }


@requirement("aql:stage:order")
async def test_the_first_stage_that_objects_is_heard_and_no_other(kitchen: Open) -> None:
    async with kitchen(
        safety={"start": "allow", "steps": 2, "approve": ["set_table*"], "tolerance": "conservative"}
    ) as parts:
        late, failed, denied, asked, risky = [await person(parts) for _ in range(5)]
        for each in (late, failed, denied, asked, risky):
            await each.starts()
        for _ in range(2):
            await late.steps("get_recipe")
        told = [
            await late.steps(DENIED, outcome="failure", risk_score=99),
            await failed.steps(DENIED, outcome="failure", risk_score=99),
            await denied.steps(DENIED, risk_score=40),
            await asked.steps(TABLE, risk_score=99),
            await risky.steps("juggling five lemons", risk_score=40),
            await risky.steps("juggling five lemons", risk_score=26),
        ]

    assert [(each.get("stopped", False), each["reason"]) for each in told] == [
        (False, "Step limit exceeded"),
        (False, "The previous step failed"),
        (True, "Denied by the pattern rm -rf*"),
        (False, "The pattern set_table* requires approval"),
        (False, "Risk 40 of 100"),
        (False, "Risk 26 is above the tolerated 25"),
    ]
