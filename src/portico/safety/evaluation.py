"""Evaluates reported steps in five stages; the first objection counts (MCP-AQL 8.7.2). Pure functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from portico.config import AgentSettings, Safety, Tolerance
from portico.safety.models import Outcome, RiskTier
from portico.safety.records import Grant
from portico.safety.step_reading import Patterns, StepReading, compile_patterns

THRESHOLDS: dict[Tolerance, int] = {"conservative": 25, "moderate": 50, "aggressive": 75}
TIERS = ((30, RiskTier.ADVISORY), (60, RiskTier.CONFIRM), (85, RiskTier.VERIFY), (100, RiskTier.DANGER_ZONE))
MAX_SILENT = 2  # steps in a row without the outcome of the one before
FREE_REPEATS = 3  # repetitions that do not raise the risk
PER_REPEAT = 10
MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class EvaluationRules:
    """The settings by which an agent's steps are evaluated."""

    steps: int
    tolerance: Tolerance
    relaxes_confirm: bool
    patterns: Patterns


@dataclass(frozen=True, slots=True)
class StepContext:
    """A reported step and its circumstances."""

    reading: StepReading
    step_count: int  # including this step
    outcome: Outcome | None
    silent: int
    repeats: int  # earlier reports of the same step
    risk: int = 0  # the agent's own estimate; it can only raise the score
    grant: Grant | None = None  # a person's approval of this very step
    is_call_agreed: bool = False  # a person approved the call that it names, and the step is nothing else

    @property
    def is_agreed(self) -> bool:
        """Whether a person has approved what this step does, regardless of how many steps came before."""
        return self.grant is not None or self.is_call_agreed

    @property
    def score(self) -> int:
        raised = PER_REPEAT * max(0, self.repeats - FREE_REPEATS)
        return min(MAX_SCORE, max(self.reading.score, self.risk) + raised)


@dataclass(frozen=True, slots=True)
class StepVerdict:
    action: Literal["go", "pause", "verify", "stop"]
    factor: str
    tier: RiskTier | None = None

    @property
    def may_proceed(self) -> bool:
        return self.action == "go"


Stage: TypeAlias = Callable[[StepContext, EvaluationRules], StepVerdict | None]


def rules_of(settings: Safety, agent_settings: AgentSettings | None, max_steps: int | None = None) -> EvaluationRules:
    """Return the rules for an agent: the site's settings, overridden by its own, with fewer steps if it asks."""
    overrides = agent_settings or AgentSettings()
    steps = overrides.steps or settings.steps
    return EvaluationRules(
        min(steps, max_steps) if max_steps else steps,
        overrides.tolerance or settings.tolerance,
        settings.tolerance_relaxes_confirm,
        Patterns(
            settings.deny if overrides.deny is None else overrides.deny,
            settings.approve if overrides.approve is None else overrides.approve,
            settings.auto if overrides.auto is None else overrides.auto,
        ),
    )


def check_patterns(settings: Safety) -> None:
    """Raise for an invalid pattern when the site starts, not when it is first used."""
    for source in (settings, *settings.agent.values()):
        for patterns in (source.deny, source.approve, source.auto):
            compile_patterns(patterns or ())


def tier_of(score: int) -> RiskTier:
    return next(tier for limit, tier in TIERS if score <= limit)


def evaluate(step: StepContext, rules: EvaluationRules) -> StepVerdict:
    if step.grant and step.grant.verified:
        return StepVerdict("go", "A person has verified this step", tier_of(step.score))
    for stage in STAGES:
        verdict = stage(step, rules)
        if verdict:
            return verdict
    if step.is_agreed:
        return StepVerdict("go", "A person has approved this step", tier_of(step.score))
    return StepVerdict("go", f"Risk {step.score} of {MAX_SCORE}", tier_of(step.score))


def _check_step_limit(step: StepContext, rules: EvaluationRules) -> StepVerdict | None:
    if step.grant or step.step_count <= rules.steps:
        return None
    return StepVerdict("pause", "Step limit exceeded", RiskTier.CONFIRM)


def _check_outcome(step: StepContext, _: EvaluationRules) -> StepVerdict | None:
    if step.grant:
        return None
    if step.outcome == "failure":
        return StepVerdict("pause", "The previous step failed", RiskTier.CONFIRM)
    if step.silent >= MAX_SILENT:
        return StepVerdict("pause", f"The outcome of {MAX_SILENT} steps was not reported", RiskTier.CONFIRM)
    return None


def _check_patterns(step: StepContext, _: EvaluationRules) -> StepVerdict | None:
    match step.reading.matched:
        case "deny":
            return StepVerdict("stop", f"Denied by the pattern {step.reading.pattern}", RiskTier.DANGER_ZONE)
        case "approve" if not step.is_agreed:
            return StepVerdict("pause", f"The pattern {step.reading.pattern} requires approval", RiskTier.CONFIRM)
        case "auto" if tier_of(step.score) is RiskTier.ADVISORY:
            return StepVerdict("go", f"Harmless by the pattern {step.reading.pattern}", RiskTier.ADVISORY)
        case _:
            return None


def _check_tier(step: StepContext, rules: EvaluationRules) -> StepVerdict | None:
    tier = tier_of(step.score)
    factor = f"Risk {step.score} of {MAX_SCORE}"
    match tier:
        case RiskTier.DANGER_ZONE:
            return StepVerdict("stop", factor, tier)
        case RiskTier.VERIFY:
            return StepVerdict("verify", factor, tier)
        case RiskTier.CONFIRM if not step.is_agreed and not (
            rules.relaxes_confirm and step.score <= THRESHOLDS[rules.tolerance]
        ):
            return StepVerdict("pause", factor, tier)
        case _:
            return None


def _check_tolerance(step: StepContext, rules: EvaluationRules) -> StepVerdict | None:
    threshold = THRESHOLDS[rules.tolerance]
    if step.is_agreed or step.score <= threshold:
        return None
    return StepVerdict("pause", f"Risk {step.score} is above the tolerated {threshold}", tier_of(step.score))


STAGES: tuple[Stage, ...] = (_check_step_limit, _check_outcome, _check_patterns, _check_tier, _check_tolerance)
