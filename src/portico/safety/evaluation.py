"""Whether a reported step may be taken: five stages, of which the first that objects is heard (MCP-AQL 8.7.2). Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from portico.config import AgentSettings, Safety, Tolerance
from portico.safety.models import Outcome, Tier
from portico.safety.records import Grant
from portico.safety.step_reading import Patterns, Reading, compiled

THRESHOLDS: dict[Tolerance, int] = {"conservative": 25, "moderate": 50, "aggressive": 75}
TIERS = ((30, Tier.ADVISORY), (60, Tier.CONFIRM), (85, Tier.VERIFY), (100, Tier.DANGER_ZONE))
SILENT = 2  # steps in a row without a word of how the one before went
REPEATED = 3  # times that the same may be done without raising the risk
PER_REPEAT = 10
MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for an agent."""

    steps: int
    tolerance: Tolerance
    relaxes: bool
    patterns: Patterns


@dataclass(frozen=True, slots=True)
class Seen:
    """A step that was reported, and what is known around it."""

    reading: Reading
    count: int  # of steps, with this one
    outcome: Outcome | None
    silent: int
    repeats: int  # how often the same was reported before
    risk: int = 0  # as the agent sees it; it only ever raises
    grant: Grant | None = None  # somebody's word for this very step
    is_call_agreed: bool = False  # somebody's word for the call that it names, and the step is nothing else

    @property
    def is_agreed(self) -> bool:
        """Whether a person knows what this step does. That says nothing of how many steps came before it."""
        return self.grant is not None or self.is_call_agreed

    @property
    def score(self) -> int:
        raised = PER_REPEAT * max(0, self.repeats - REPEATED)
        return min(MAX_SCORE, max(self.reading.score, self.risk) + raised)


@dataclass(frozen=True, slots=True)
class Judged:
    action: Literal["go", "pause", "verify", "stop"]
    factor: str
    tier: Tier | None = None

    @property
    def may_go(self) -> bool:
        return self.action == "go"


Stage: TypeAlias = Callable[[Seen, Terms], Judged | None]


def terms_of(settings: Safety, own: AgentSettings | None, lowered: int | None = None) -> Terms:
    """What holds for an agent: the site's settings, its own in their place, and fewer steps if it wants fewer."""
    said = own or AgentSettings()
    steps = said.steps or settings.steps
    return Terms(
        min(steps, lowered) if lowered else steps,
        said.tolerance or settings.tolerance,
        settings.tolerance_relaxes_confirm,
        Patterns(
            settings.deny if said.deny is None else said.deny,
            settings.approve if said.approve is None else said.approve,
            settings.auto if said.auto is None else said.auto,
        ),
    )


def check_patterns(settings: Safety) -> None:
    """Tell of a wrong pattern when a site starts, not when it is first used."""
    for said in (settings, *settings.agent.values()):
        for patterns in (said.deny, said.approve, said.auto):
            compiled(patterns or ())


def tier_of(score: int) -> Tier:
    return next(tier for limit, tier in TIERS if score <= limit)


def judge(seen: Seen, terms: Terms) -> Judged:
    if seen.grant and seen.grant.verified:
        return Judged("go", "A person has verified this step", tier_of(seen.score))
    for stage in STAGES:
        found = stage(seen, terms)
        if found:
            return found
    if seen.is_agreed:
        return Judged("go", "A person has agreed to this step", tier_of(seen.score))
    return Judged("go", f"Risk {seen.score} of {MAX_SCORE}", tier_of(seen.score))


def _step_limit(seen: Seen, terms: Terms) -> Judged | None:
    if seen.grant or seen.count <= terms.steps:
        return None
    return Judged("pause", "Step limit exceeded", Tier.CONFIRM)


def _outcome(seen: Seen, _: Terms) -> Judged | None:
    if seen.grant:
        return None
    if seen.outcome == "failure":
        return Judged("pause", "The step before failed", Tier.CONFIRM)
    if seen.silent >= SILENT:
        return Judged("pause", f"How {SILENT} steps went was not told", Tier.CONFIRM)
    return None


def _patterns(seen: Seen, _: Terms) -> Judged | None:
    match seen.reading.matched:
        case "deny":
            return Judged("stop", f"Denied by the pattern {seen.reading.pattern}", Tier.DANGER_ZONE)
        case "approve" if not seen.is_agreed:
            return Judged("pause", f"The pattern {seen.reading.pattern} asks for a person", Tier.CONFIRM)
        case "auto" if tier_of(seen.score) is Tier.ADVISORY:
            return Judged("go", f"Harmless by the pattern {seen.reading.pattern}", Tier.ADVISORY)
        case _:
            return None


def _tier(seen: Seen, terms: Terms) -> Judged | None:
    tier = tier_of(seen.score)
    says = f"Risk {seen.score} of {MAX_SCORE}"
    match tier:
        case Tier.DANGER_ZONE:
            return Judged("stop", says, tier)
        case Tier.VERIFY:
            return Judged("verify", says, tier)
        case Tier.CONFIRM if not seen.is_agreed and not (terms.relaxes and seen.score <= THRESHOLDS[terms.tolerance]):
            return Judged("pause", says, tier)
        case _:
            return None


def _tolerance(seen: Seen, terms: Terms) -> Judged | None:
    threshold = THRESHOLDS[terms.tolerance]
    if seen.is_agreed or seen.score <= threshold:
        return None
    return Judged("pause", f"Risk {seen.score} is above what is tolerated ({threshold})", tier_of(seen.score))


STAGES: tuple[Stage, ...] = (_step_limit, _outcome, _patterns, _tier, _tolerance)
