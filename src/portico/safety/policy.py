"""What is decided of a call before anybody is asked: danger, trust, and the policies of the site file. Pure."""

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
    """The strictest of all that are found is what holds."""

    ALLOW = 0
    CONFIRM = 1
    DENY = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: Decision
    reasons: tuple[str, ...] = ()
    by_trust: bool = False  # it was the caller's trust that did not suffice


# What a caller may do alone, by the trust that it has: (alone up to, with somebody's word up to).
# Where the table of the companion allows what its text wants confirmed, only the most trusted act alone.
REACH: Mapping[Trust, tuple[Danger, Danger]] = {
    Trust.UNTESTED: (Danger.SAFE, Danger.SAFE),
    Trust.GENERATED: (Danger.SAFE, Danger.SAFE),
    Trust.VALIDATED: (Danger.REVERSIBLE, Danger.DESTRUCTIVE),
    Trust.COMMUNITY_REVIEWED: (Danger.REVERSIBLE, Danger.DANGEROUS),
    Trust.CERTIFIED: (Danger.DANGEROUS, Danger.DANGEROUS),
}


def trust_needed(danger: Danger) -> Trust:
    """Return the least trust with which operations of this danger can be done at all."""
    return next((trust for trust, (_, confirmed) in REACH.items() if danger <= confirmed), Trust.CERTIFIED)


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy of the site file, ready to be compared with calls."""

    said: PolicySettings
    where: Filter | None

    def fits(self, operation: str, params: Mapping[str, Any]) -> bool:
        if not fnmatchcase(operation, self.said.operation):
            return False
        if self.where is None:
            return True
        try:
            return _matches(self.where, params)
        except SiteError:
            # What cannot be compared is taken as if it were meant, unless that would let something pass.
            return self.said.decision != "allow"


class Policies:
    def __init__(self, settings: Safety) -> None:
        self._start = settings.start
        self._policies = tuple(_read(each) for each in settings.policy)
        told = [settings.policy, settings.deny, settings.approve, settings.auto, settings.agent]
        self.digest = hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()[:16]

    def concerns(self, operation: Operation) -> bool:
        """Whether a policy of the site file speaks of an operation at all."""
        return any(fnmatchcase(operation.name, each.said.operation) for each in self._policies)

    def denial(self, operation: Operation, params: Mapping[str, Any] | None, caller: Caller) -> str:
        """Return why a call is refused whoever agrees to it; empty if it is not. Unknown parameters deny nothing."""
        if not may_call(operation, caller):
            return f"This caller may not call {operation.name}"
        verdict = _by_trust(operation, caller) if params is None else self.verdict(operation, params, caller)
        return "; ".join(verdict.reasons) if verdict.decision is Decision.DENY else ""

    def verdict(self, operation: Operation, params: Mapping[str, Any], caller: Caller) -> Verdict:
        found = [_by_trust(operation, caller), *self._told(operation, params)]
        if operation.name == START and self._start == "confirm" and caller.trust < Trust.CERTIFIED:
            found.append(Verdict(Decision.CONFIRM, ("An agent starts only with the word of somebody else",)))
        strictest = max(each.decision for each in found)
        holding = [each for each in found if each.decision == strictest]
        reasons = tuple(reason for each in holding for reason in each.reasons)
        return Verdict(strictest, reasons, any(each.by_trust for each in holding))

    def _told(self, operation: Operation, params: Mapping[str, Any]) -> Iterator[Verdict]:
        given = filled(operation, params) if self.concerns(operation) else params
        for each in self._policies:
            if each.fits(operation.name, given):
                reason = each.said.reason or f"A policy of this site for {each.said.operation}"
                yield Verdict(Decision[each.said.decision.upper()], (reason,))


def may_call(operation: Operation, caller: Caller) -> bool:
    """Return whether the danger and the scopes that a caller has allow an operation at all."""
    return (
        operation.danger <= caller.danger
        and operation.danger != Danger.FORBIDDEN
        and (operation.open or allows(caller.scopes, operation.kind, operation.collection, operation.name))
    )


def filled(operation: Operation, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters as the operation will see them: what was left out is there as its default."""
    if not (isinstance(operation.params, type) and issubclass(operation.params, msgspec.Struct)):
        return params
    left_out = [each for each in fields(operation.params) if not each.required and each.name not in params]
    defaults = {
        each.name: each.default_factory() if each.default is msgspec.NODEFAULT else each.default for each in left_out
    }
    told = {name: value for name, value in defaults.items() if value is not msgspec.UNSET}
    return {**msgspec.to_builtins(told), **params}


def _by_trust(operation: Operation, caller: Caller) -> Verdict:
    alone, confirmed = REACH[caller.trust]
    level = operation.danger.name.lower()
    if operation.danger <= alone:
        return Verdict(Decision.ALLOW)
    if operation.danger <= confirmed:
        return Verdict(Decision.CONFIRM, (f"{operation.name} is {level}",))
    return Verdict(Decision.DENY, (f"{operation.name} is {level}",), by_trust=True)


def _read(said: PolicySettings) -> Policy:
    try:
        return Policy(said, parse_filter(said.when) if said.when else None)
    except SiteError as error:
        raise ConfigError(f"safety.policy for {said.operation}: {error.message}", hint=error.hint) from error


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
