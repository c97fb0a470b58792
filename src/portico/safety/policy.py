"""Decides calls by danger, trust and the policies of the site file, before any person is asked. Pure functions."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec.structs import fields

from portico.access.identity import allows
from portico.catalog import Collection, Danger, Field, FieldType, Operation, Trust, type_of
from portico.config import PolicySettings, Safety
from portico.errors import ConfigError, SiteError
from portico.items import Item
from portico.query import And, Condition, Filter, Not, Or, matcher, parse_filter
from portico.requests import Caller

START = "execute_agent"
OPERATOR_DECIDES = "Permissions are up to the operator of this site."


class Decision(IntEnum):
    """The decision of a policy. The strictest of several counts."""

    ALLOW = 0
    CONFIRM = 1
    DENY = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: Decision
    reasons: tuple[str, ...] = ()
    by_trust: bool = False  # because the caller's trust does not suffice


# By trust: the highest danger without approval, and the highest with it.
# Where the companion's table allows what its text wants confirmed, only the most trusted callers act alone.
REACH: Mapping[Trust, tuple[Danger, Danger]] = {
    Trust.UNTESTED: (Danger.SAFE, Danger.SAFE),
    Trust.GENERATED: (Danger.SAFE, Danger.SAFE),
    Trust.VALIDATED: (Danger.REVERSIBLE, Danger.DESTRUCTIVE),
    Trust.COMMUNITY_REVIEWED: (Danger.REVERSIBLE, Danger.DANGEROUS),
    Trust.CERTIFIED: (Danger.DANGEROUS, Danger.DANGEROUS),
}


def trust_needed(danger: Danger) -> Trust:
    """Return the lowest trust that allows operations of this danger at all."""
    return next((trust for trust, (_, confirmed) in REACH.items() if danger <= confirmed), Trust.CERTIFIED)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of the site file with its parsed filter."""

    settings: PolicySettings
    where: Filter | None

    def matches(self, operation: str, params: Mapping[str, Any]) -> bool:
        if not fnmatchcase(operation, self.settings.operation):
            return False
        if self.where is None:
            return True
        try:
            return _matches(self.where, params)
        except SiteError:
            # Parameters that cannot be compared match, unless that would allow the call.
            return self.settings.decision != "allow"


class Policies:
    def __init__(self, settings: Safety) -> None:
        self._start = settings.start
        self._policies = tuple(_parse_policy(item) for item in settings.policy)
        sections = [settings.policy, settings.deny, settings.approve, settings.auto, settings.agent]
        self.digest = hashlib.sha256(msgspec.json.encode(sections, order="sorted")).hexdigest()[:16]

    def concerns(self, operation: Operation) -> bool:
        """Return whether any policy of the site file applies to an operation."""
        return any(fnmatchcase(operation.name, policy.settings.operation) for policy in self._policies)

    def denial(self, operation: Operation, params: Mapping[str, Any] | None, caller: Caller) -> str:
        """Return why a call is refused even if approved; empty if it is not. Unknown parameters deny nothing."""
        if not may_call(operation, caller):
            return f"This caller may not call {operation.name}"
        verdict = _judge_by_trust(operation, caller) if params is None else self.verdict(operation, params, caller)
        return "; ".join(verdict.reasons) if verdict.decision is Decision.DENY else ""

    def verdict(self, operation: Operation, params: Mapping[str, Any], caller: Caller) -> Verdict:
        verdicts = [_judge_by_trust(operation, caller), *self._verdicts_of_policies(operation, params)]
        if operation.name == START and self._start == "confirm" and caller.trust < Trust.CERTIFIED:
            verdicts.append(Verdict(Decision.CONFIRM, ("Starting an agent needs the approval of another person",)))
        strictest = max(verdict.decision for verdict in verdicts)
        holding = [verdict for verdict in verdicts if verdict.decision == strictest]
        reasons = tuple(reason for verdict in holding for reason in verdict.reasons)
        return Verdict(strictest, reasons, any(verdict.by_trust for verdict in holding))

    def _verdicts_of_policies(self, operation: Operation, params: Mapping[str, Any]) -> Iterator[Verdict]:
        params = fill_defaults(operation, params) if self.concerns(operation) else params
        for policy in self._policies:
            if policy.matches(operation.name, params):
                reason = policy.settings.reason or f"A policy of this site for {policy.settings.operation}"
                yield Verdict(Decision[policy.settings.decision.upper()], (reason,))


def may_call(operation: Operation, caller: Caller) -> bool:
    """Return whether a caller's danger level and scopes allow an operation at all."""
    return (
        operation.danger <= caller.danger
        and operation.danger != Danger.FORBIDDEN
        and (operation.open or allows(caller.scopes, operation.kind, operation.collection, operation.name))
    )


def fill_defaults(operation: Operation, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters as the operation will see them, with defaults for those that are missing."""
    if not (isinstance(operation.params, type) and issubclass(operation.params, msgspec.Struct)):
        return params
    left_out = [field for field in fields(operation.params) if not field.required and field.name not in params]
    defaults = {
        field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        for field in left_out
    }
    known_defaults = {name: value for name, value in defaults.items() if value is not msgspec.UNSET}
    return {**msgspec.to_builtins(known_defaults), **params}


def _judge_by_trust(operation: Operation, caller: Caller) -> Verdict:
    alone, confirmed = REACH[caller.trust]
    level = operation.danger.name.lower()
    if operation.danger <= alone:
        return Verdict(Decision.ALLOW)
    if operation.danger <= confirmed:
        return Verdict(Decision.CONFIRM, (f"{operation.name} is {level}",))
    return Verdict(Decision.DENY, (f"{operation.name} is {level}",), by_trust=True)


def _parse_policy(settings: PolicySettings) -> Policy:
    try:
        return Policy(settings, parse_filter(settings.when) if settings.when else None)
    except SiteError as error:
        raise ConfigError(f"safety.policy for {settings.operation}: {error.message}", hint=error.hint) from error


def _matches(where: Filter, params: Mapping[str, Any]) -> bool:
    fields = {name: Field(name, type_of(params.get(name)) or FieldType.ANY) for name in _names(where)}
    item = Item(str(params.get("id", "")), "parameters", params)
    return matcher(where, Collection("parameters", fields))(item)


def _names(where: Filter) -> Iterator[str]:
    match where:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _names(part)
        case Not(part):
            yield from _names(part)
        case Condition(name):
            yield name.partition(".")[0]
