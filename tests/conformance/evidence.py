"""An own judge of MCP-AQL: probes a live server, and says of each check of level 2 whether what it answered passes.

Knows the protocol and nothing of the site's code, so that the two cannot be wrong together. The checks up to 18 ask
what the public evidence suite asks; those beyond are about what that suite is silent on.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tests.conformance.aql_structures import problems_in, problems_with

Envelope: TypeAlias = dict[str, Any]
Call: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Envelope]]
Problems: TypeAlias = Iterator[str]

SINGLE = "mcp_aql"
TOOLS = {
    "CREATE": "mcp_aql_create",
    "READ": "mcp_aql_read",
    "UPDATE": "mcp_aql_update",
    "DELETE": "mcp_aql_delete",
    "EXECUTE": "mcp_aql_execute",
}
PERMISSIONS = {  # MCP-AQL 6.1: only reads, may destroy
    "CREATE": (False, False),
    "READ": (True, False),
    "UPDATE": (False, True),
    "DELETE": (False, True),
    "EXECUTE": (False, True),
}
SNAKE = re.compile(r"[a-z][a-z0-9_]*\Z")
LEAK = re.compile(
    r"typeerror|referenceerror|syntaxerror|at\s+\S+|/src/|/node_modules/|\.ts:\d+|\.js:\d+|traceback|\.py\b",
    re.IGNORECASE,
)
STRANGER = "surely_no_parameter"
SHARED = (  # what an adapter may take everywhere, and has to list where it does
    *("fields", "preset", "filter", "where", "sort", "order", "query", "first", "after", "last", "before", "limit"),
    *("offset", "page", "page_size", "cursor", "aggregate", "include_items", "group_by", "include", "depth", "input"),
    *("if_match", "confirmation_token", "dry_run", "force", "strict_mode", "session_id", "trust", "risk"),
)
ALIASES = {"preset": "fields"}  # told under their canonical names
CLAMPED = frozenset({"first", "last", "limit", "page_size"})  # a page that is too large is cut, not refused


# Evidence


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request to a tool, and its answer."""

    tool: str
    arguments: dict[str, Any]
    answer: Envelope

    @property
    def data(self) -> Any:
        return self.answer.get("data")

    @property
    def error(self) -> dict[str, Any]:
        error = self.answer.get("error")
        return error if isinstance(error, dict) else {}

    def problems(self) -> Problems:
        """Yield what keeps the answer from the closed structures."""
        return (f"{self.arguments}: {problem}" for problem in problems_with(self.arguments, self.answer))

    @property
    def failed(self) -> bool:
        return self.answer.get("success") is False

    def mentions(self, word: str) -> bool:
        return self.failed and word in str(self.error.get("message"))


@dataclass(frozen=True, slots=True)
class Probe:
    """A request that is to show one thing of an operation, such as what becomes of a parameter."""

    operation: str
    subject: str  # what the answer has to name
    exchange: Exchange
    code: str = ""  # that the answer has to have

    def __str__(self) -> str:
        return f"{self.operation}: {self.subject}"


@dataclass(frozen=True, slots=True)
class Default:
    """A read without a parameter, and with the default that is published for it."""

    operation: str
    parameter: str
    without: Exchange
    given: Exchange


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that can be made and changed on a server, to see whether it keeps what it is told."""

    create: str
    get: str
    update: str
    delete: str
    fields: Mapping[str, Any]
    change: Mapping[str, Any]
    changed: Mapping[str, Any]  # all fields, after the change was merged


@dataclass(frozen=True, slots=True)
class RoundTrip:
    resource: Resource
    created: Exchange
    read: Exchange
    updated: Exchange
    read_again: Exchange
    selected: Exchange  # with the first field alone
    deleted: Exchange


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a server answered to all probes."""

    modes: tuple[str, ...]
    operations: Exchange
    types: Exchange
    details: Mapping[str, Exchange]
    type_details: Mapping[str, Exchange]
    nothing: tuple[Exchange, ...]  # what introspection says of names that do not exist
    accepted: Mapping[str, frozenset[str]]  # parameters of each operation that were not called unknown
    missing: tuple[Probe, ...]
    unknown: tuple[Probe, ...]
    misrouted: tuple[Probe, ...]
    constraints: tuple[Probe, ...]
    examples: tuple[Probe, ...]
    faults: tuple[Probe, ...]  # other requests that fail, each in its own way
    defaults: tuple[Default, ...]
    round_trip: RoundTrip
    batch: Exchange
    every: tuple[Exchange, ...]

    @property
    def protocol(self) -> dict[str, Any]:
        said = self.operations.data.get("_protocol")
        return said if isinstance(said, dict) else {}

    @property
    def failing(self) -> tuple[Probe, ...]:
        """All that was to fail."""
        return (*self.missing, *self.unknown, *self.misrouted, *self.constraints, *self.faults)

    def described(self) -> Iterator[dict[str, Any]]:
        """The details of every operation that has any."""
        return (each.data["operation"] for each in self.details.values() if isinstance(each.data, dict))

    def parameters(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((each["name"], parameter) for each in self.described() for parameter in each["parameters"])


# Probing


async def collect(call: Call, resource: Resource) -> Evidence:
    """Ask a live server for all that is judged. It makes one resource; nothing else is meant to change."""
    visit = _Visit(call)
    operations = await visit.introspect("operations")
    types = await visit.introspect("types")
    names = [each["name"] for each in operations.data["operations"]]
    details = {name: await visit.introspect("operations", name) for name in names}
    type_details = {each["name"]: await visit.introspect("types", each["name"]) for each in types.data["types"]}
    visit.learn(details.values(), type_details.values())
    trip = await visit.round_trip(resource)
    return Evidence(
        modes=await visit.modes(),
        operations=operations,
        types=types,
        details=details,
        type_details=type_details,
        nothing=tuple([await visit.introspect(query, "no_such_name") for query in ("operations", "types")]),
        accepted={name: await visit.accepted(name) for name in names},
        missing=tuple([probe async for probe in visit.missing()]),
        unknown=tuple([await visit.unknown(name) for name in names]),
        misrouted=tuple([await visit.misrouted(name) for name in names]),
        constraints=tuple([probe async for probe in visit.violations()]),
        examples=tuple([probe async for probe in visit.examples()]),
        faults=tuple([probe async for probe in visit.faults(resource, trip.created)]),
        defaults=tuple([default async for default in visit.defaults()]),
        round_trip=trip,
        batch=await visit.batch(resource),
        every=tuple(visit.exchanges),
    )


@dataclass(slots=True)
class _Visit:
    """One visit of a server: what was said so far, and what is known of its operations."""

    call: Call
    exchanges: list[Exchange] = field(default_factory=list)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    types: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def send(self, tool: str, arguments: dict[str, Any]) -> Exchange:
        exchange = Exchange(tool, arguments, await self.call(tool, arguments))
        self.exchanges.append(exchange)
        return exchange

    async def ask(self, operation: str, params: Mapping[str, Any], tool: str = "") -> Exchange:
        """Through the operation's own tool, unless another is named."""
        tool = tool or TOOLS[self.operations[operation]["semantic_category"]]
        return await self.send(tool, {"operation": operation, "params": dict(params)})

    async def introspect(self, query: str, name: str = "") -> Exchange:
        params = {"query": query, "name": name} if name else {"query": query}
        return await self.send(TOOLS["READ"], {"operation": "introspect", "params": params})

    def learn(self, operations: Iterable[Exchange], types: Iterable[Exchange]) -> None:
        self.operations = {each.data["operation"]["name"]: each.data["operation"] for each in operations}
        self.types = {each.data["type"]["name"]: each.data["type"] for each in types}

    async def modes(self) -> tuple[str, ...]:
        """The modes whose tools all answer: they run introspect, or say where it is run."""
        asked = {"operation": "introspect", "params": {"query": "types"}}
        alone = await self.send(SINGLE, asked)
        crude = [await self.send(tool, asked) for tool in TOOLS.values()]
        served = [each.failed or each.answer.get("success") is True for each in crude]
        return tuple(mode for mode, is_served in (("crude", all(served)), ("single", not alone.failed)) if is_served)

    async def accepted(self, name: str) -> frozenset[str]:
        """Unknown parameters are told first, all of them: one request tries every name, and does nothing."""
        listed = {each["name"] for each in self.operations[name]["parameters"]}
        tried = listed | set(SHARED)
        exchange = await self.ask(name, {**dict.fromkeys(tried, "x"), STRANGER: "x"})
        told = (exchange.error.get("details") or {}).get("unknown_params")
        taken = tried - set(told) if told else await self._taken(name, tried)
        return frozenset(each if each in listed else ALIASES.get(each, each) for each in taken)

    async def _taken(self, name: str, tried: Iterable[str]) -> set[str]:
        """Each alone, for introspection, whose failures have no details."""
        asked = {each: await self.ask(name, {**self.needed(name), each: "x"}) for each in sorted(tried)}
        return {each for each, one in asked.items() if one.error.get("code") != "VALIDATION_UNKNOWN_PARAM"}

    async def unknown(self, name: str) -> Probe:
        exchange = await self.ask(name, {**self.needed(name), STRANGER: True})
        return Probe(name, STRANGER, exchange, "VALIDATION_UNKNOWN_PARAM")

    async def missing(self) -> AsyncIterator[Probe]:
        for name, operation in self.operations.items():
            for parameter in operation["parameters"]:
                if parameter["required"]:
                    params = {key: value for key, value in self.needed(name).items() if key != parameter["name"]}
                    exchange = await self.ask(name, params)
                    yield Probe(name, parameter["name"], exchange, "VALIDATION_MISSING_PARAM")

    async def misrouted(self, name: str) -> Probe:
        """To the next family, which is another one."""
        families = list(TOOLS)
        own = self.operations[name]["semantic_category"]
        tool = TOOLS[families[(families.index(own) + 1) % len(families)]]
        exchange = await self.ask(name, self.needed(name), tool)
        return Probe(name, self.operations[name]["mcpTool"], exchange, "VALIDATION_ENDPOINT_MISMATCH")

    async def violations(self) -> AsyncIterator[Probe]:
        for name, operation in self.operations.items():
            for parameter in operation["parameters"]:
                for wrong in _violations(parameter):
                    exchange = await self.ask(name, {**self.needed(name), parameter["name"]: wrong})
                    yield Probe(name, parameter["name"], exchange, "VALIDATION_INVALID_TYPE")

    async def examples(self) -> AsyncIterator[Probe]:
        """Those that only read are tried."""
        for name, operation in self.operations.items():
            for example in operation.get("examples", []) if operation["semantic_category"] == "READ" else []:
                yield Probe(name, str(example["request"]), await self.send(TOOLS["READ"], example["request"]))

    async def faults(self, resource: Resource, created: Exchange) -> AsyncIterator[Probe]:
        id, update, get = created.data["id"], resource.update, resource.get
        for arguments, subject, code in (
            ({}, "operation", "VALIDATION_MISSING_PARAM"),
            ({"operation": "no_such_operation"}, "no_such_operation", "NOT_FOUND_OPERATION"),
            ({"operation": get, "params": {"id": "no-such-id"}}, "no-such-id", "NOT_FOUND_RESOURCE"),
            ({"operation": get, "params": {"id": 7}}, "id", "VALIDATION_INVALID_TYPE"),
            ({"operation": get, "params": "id"}, "params", "VALIDATION_INVALID_TYPE"),
            ({"operation": update, "params": {"id": id, "input": "x"}}, "input", "VALIDATION_INVALID_TYPE"),
            ({"operation": update, "params": {"id": id, "input": {"id": "x"}}}, "id", "VALIDATION_UNKNOWN_FIELD"),
            (
                {"operation": update, "params": {"id": id, "input": {}, "if_match": "x"}},
                "",
                "CONFLICT_VERSION_MISMATCH",
            ),
            ({"operation": resource.create, "params": {"id": id, "input": {}}}, "", "CONFLICT_ALREADY_EXISTS"),
            ({"operations": []}, "", "BATCH_VALIDATION_ERROR"),
        ):
            yield Probe(str(arguments), subject, await self.send(SINGLE, arguments), code)

    async def defaults(self) -> AsyncIterator[Default]:
        for name, operation in self.operations.items():
            reads = operation["semantic_category"] == "READ" and not self.needed(name)
            published = [each for each in operation["parameters"] if reads and "default" in each]
            without = await self.ask(name, {}) if published else None
            for each in published:
                given = await self.ask(name, {each["name"]: each["default"]})
                if without:
                    yield Default(name, each["name"], without, given)

    async def round_trip(self, resource: Resource) -> RoundTrip:
        created = await self.ask(resource.create, {"input": dict(resource.fields)})
        id = {"id": created.data["id"]} if isinstance(created.data, dict) else {"id": "none"}
        read = await self.ask(resource.get, id)
        updated = await self.ask(resource.update, {**id, "input": dict(resource.change)})
        again = await self.ask(resource.get, id)
        selected = await self.ask(resource.get, {**id, "fields": [next(iter(resource.fields))]})
        deleted = await self.ask(resource.delete, id)
        return RoundTrip(resource, created, read, updated, again, selected, deleted)

    async def batch(self, resource: Resource) -> Exchange:
        """One that succeeds, and one that fails."""
        requests = [
            {"operation": "introspect", "params": {"query": "operations", "name": resource.get}},
            {"operation": resource.get, "params": {"id": "no-such-id"}},
        ]
        return await self.send(TOOLS["READ"], {"operations": requests})

    def needed(self, name: str) -> dict[str, Any]:
        """Values that fit the required parameters."""
        return {each["name"]: self._fitting(each) for each in self.operations[name]["parameters"] if each["required"]}

    def _fitting(self, parameter: Mapping[str, Any]) -> Any:
        if "enum" in parameter:
            return parameter["enum"][0]
        match parameter["type"].partition("|")[0].strip():
            case "string":
                return "x" * max(1, int(parameter.get("minLength", 1)))
            case "integer" | "number":
                return parameter.get("minimum", 1)
            case "boolean":
                return True
            case "array":
                return []
            case name:
                return self._fitting_type(name)

    def _fitting_type(self, name: str) -> Any:
        match self.types.get(name, {}):
            case {"kind": "enum", "values": [first, *_]}:
                return first
            case {"kind": "object", "fields": fields}:
                return {each["name"]: self._fitting(each) for each in fields if each["required"]}
            case {"kind": "union", "members": [first, *_]}:
                return self._fitting_type(first)
            case {"kind": "scalar"}:
                return "x"
            case _:
                return {}


def _violations(parameter: Mapping[str, Any]) -> Iterator[Any]:
    """Values of the right type that the published constraints exclude."""
    if "enum" in parameter:
        yield "surely_no_choice"
    if "minimum" in parameter:
        yield parameter["minimum"] - 1
    if "maximum" in parameter and parameter["name"] not in CLAMPED:
        yield parameter["maximum"] + 1
    if parameter.get("minLength"):
        yield ""
    if "maxLength" in parameter:
        yield "x" * (parameter["maxLength"] + 1)
    if "pattern" in parameter:
        yield "\N{SNOWMAN} \N{SNOWMAN}"


# Judging


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. The message says what is wrong."""

    check: int
    title: str
    topic: str
    level: Literal[1, 2]
    strength: Literal["MUST", "SHOULD"]
    passed: bool
    message: str


@dataclass(frozen=True, slots=True)
class Check:
    title: str
    topic: str
    level: Literal[1, 2]
    strength: Literal["MUST", "SHOULD"]
    problems: Callable[[Evidence], Problems]


def judge(evidence: Evidence) -> list[Finding]:
    """Every check, in order; each passes when it finds no problem."""
    return [_found(index, check, list(check.problems(evidence))) for index, check in enumerate(CHECKS, 1)]


def _found(index: int, check: Check, problems: list[str]) -> Finding:
    said = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
    return Finding(index, check.title, check.topic, check.level, check.strength, not problems, said)


def _operations(evidence: Evidence) -> Problems:
    yield from evidence.operations.problems()
    if not evidence.details:
        yield "no operation is listed"


def _types(evidence: Evidence) -> Problems:
    yield from evidence.types.problems()


def _details(evidence: Evidence) -> Problems:
    for exchange in evidence.details.values():
        yield from exchange.problems()


def _undocumented(evidence: Evidence) -> Problems:
    for operation in evidence.described():
        extra = evidence.accepted[operation["name"]] - _names(operation)
        yield from (f"{operation['name']} takes {each}, which is not listed" for each in sorted(extra))


def _names(operation: Mapping[str, Any]) -> set[str]:
    return {each["name"] for each in operation["parameters"]}


def _unmentioned(probes: Iterable[Probe]) -> Problems:
    return (f"{probe} is not told: {probe.exchange.answer}" for probe in probes if not _is_told(probe))


def _is_told(probe: Probe) -> bool:
    return probe.exchange.mentions(probe.subject)


def _missing(evidence: Evidence) -> Problems:
    probed = {(probe.operation, probe.subject) for probe in evidence.missing}
    required = {(name, each["name"]) for name, each in evidence.parameters() if each["required"]}
    yield from (f"{name}: {each} was not tried" for name, each in sorted(required - probed))
    yield from _unmentioned(evidence.missing)


def _unknown(evidence: Evidence) -> Problems:
    yield from _unmentioned(evidence.unknown)


def _defaults(evidence: Evidence) -> Problems:
    if not evidence.defaults:
        yield "no default can be observed"
    for each in evidence.defaults:
        if each.without.failed or each.without.data != each.given.data:
            yield f"{each.operation} does not do without {each.parameter} what it does with its default"


def _snake(evidence: Evidence) -> Problems:
    for name, parameter in evidence.parameters():
        if not SNAKE.match(parameter["name"]):
            yield f"{name} has the parameter {parameter['name']}"


def _failures(evidence: Evidence) -> Problems:
    for exchange in evidence.every:
        if exchange.answer.get("success") is not True:
            yield from exchange.problems()


def _leaks(evidence: Evidence) -> Problems:
    messages = {message for exchange in evidence.every for message in _messages(exchange)}
    return (f"{message!r} leaks" for message in sorted(messages) if LEAK.search(message))


def _messages(exchange: Exchange) -> Iterator[str]:
    nested = [each.get("result", {}) for each in exchange.answer.get("results", [])]
    for answer in (exchange.answer, *nested):
        told = (answer.get("error"), answer.get("confirmation"), *answer.get("warnings", []))
        yield from (str(each["message"]) for each in told if isinstance(each, dict) and "message" in each)


def _mentions(evidence: Evidence) -> Problems:
    yield from _unmentioned(evidence.misrouted)
    yield from _unmentioned(evidence.constraints)
    yield from _unmentioned(evidence.faults)


def _lost(wanted: Mapping[str, Any], exchange: Exchange) -> Problems:
    data = exchange.data if isinstance(exchange.data, dict) else {}
    for key, value in wanted.items():
        if data.get(key) != value:
            yield f"{key} is {data.get(key)!r}, not {value!r}"


def _created(evidence: Evidence) -> Problems:
    yield from _lost(evidence.round_trip.resource.fields, evidence.round_trip.read)


def _updated(evidence: Evidence) -> Problems:
    trip = evidence.round_trip
    yield from _lost(trip.resource.changed, trip.read_again)
    before, after = (each.data if isinstance(each.data, dict) else {} for each in (trip.read, trip.read_again))
    for key in before.keys() - trip.resource.change.keys():
        if not key.startswith("_") and after.get(key) != before[key]:
            yield f"{key} was not to change"


def _modes(evidence: Evidence) -> Problems:
    yield from (f"{mode} is not served" for mode in ("crude", "single") if mode not in evidence.modes)


def _capable(evidence: Evidence, capability: str) -> Problems:
    if evidence.protocol.get("capabilities", {}).get(capability) is not True:
        yield f"the capability {capability} is not claimed"


def _selection(evidence: Evidence) -> Problems:
    yield from _capable(evidence, "field_selection")
    trip = evidence.round_trip
    first, *rest = trip.resource.fields
    got = trip.selected.data if isinstance(trip.selected.data, dict) else {}
    if first not in got:
        yield f"{first} was asked for and is not there"
    yield from (f"{each} was not asked for" for each in rest if each in got)


def _batch(evidence: Evidence) -> Problems:
    yield from _capable(evidence, "batch")
    answer = evidence.batch.answer
    yield from evidence.batch.problems()
    asked = [each["operation"] for each in evidence.batch.arguments["operations"]]
    if [each.get("operation") for each in answer.get("results", [])] != asked:
        yield "the results are not those of the requests, in their order"
    if answer.get("summary") != {"total": 2, "succeeded": 1, "failed": 1}:
        yield f"the summary is {answer.get('summary')}"


def _constraints(evidence: Evidence) -> Problems:
    if not evidence.constraints:
        yield "no constraint was tried"
    yield from (f"{probe} was taken" for probe in evidence.constraints if not probe.exchange.failed)


def _constraints_documented(evidence: Evidence) -> Problems:
    published = {(name, each["name"]) for name, each in evidence.parameters() if any(True for _ in _violations(each))}
    yield from (
        f"{probe} is not documented"
        for probe in evidence.constraints
        if (probe.operation, probe.subject) not in published
    )


def _routing(evidence: Evidence) -> Problems:
    for probe in evidence.misrouted:
        if not probe.exchange.failed:
            yield f"{probe.operation} was answered by {probe.exchange.tool}: {probe.exchange.answer}"


def _nothing(evidence: Evidence) -> Problems:
    expected = ({"operation": None}, {"type": None})
    for exchange, data in zip(evidence.nothing, expected, strict=True):
        if exchange.answer != {"success": True, "data": data}:
            yield f"an unknown name is {exchange.answer}"


def _every_type(evidence: Evidence) -> Problems:
    for exchange in evidence.type_details.values():
        yield from exchange.problems()


def _protocol(evidence: Evidence) -> Problems:
    yield from problems_in("ProtocolMetadata", evidence.protocol)
    if evidence.protocol.get("conformance") != "level-2":
        yield "level 2 is not claimed"


def _successes(evidence: Evidence) -> Problems:
    for exchange in evidence.every:
        if exchange.answer.get("success") is True:
            yield from exchange.problems()


def _categories(evidence: Evidence) -> Problems:
    listed = {each.get("name"): each for each in evidence.operations.data["operations"]}
    for each in evidence.described():
        category, permissions = each["semantic_category"], each["permissions"]
        if (permissions["readOnly"], permissions["destructive"]) != PERMISSIONS[category]:
            yield f"{each['name']} is {category} and {permissions}"
        if each["mcpTool"] != TOOLS[category] or each["endpoint"] != category.lower():
            yield f"{each['name']} is {category} and behind {each['mcpTool']}, {each['endpoint']}"
        if any(listed.get(each["name"], each)[key] != each[key] for key in ("semantic_category", "endpoint")):
            yield f"{each['name']} is listed otherwise than it is described"


def _examples(evidence: Evidence) -> Problems:
    for probe in evidence.examples:
        if str(probe.exchange.error.get("code")).startswith("VALIDATION_"):
            yield f"the example {probe} is refused: {probe.exchange.error}"


def _untaken(evidence: Evidence) -> Problems:
    for operation in evidence.described():
        untaken = _names(operation) - evidence.accepted[operation["name"]]
        yield from (f"{operation['name']} lists {each}, and does not take it" for each in sorted(untaken))


def _confirmations(evidence: Evidence) -> Problems:
    for exchange in evidence.every:
        if exchange.error.get("code") == "CONFIRMATION_REQUIRED" and "confirmation" not in exchange.answer:
            yield f"{exchange.arguments} has to be confirmed, and nothing says how"


def _codes(evidence: Evidence) -> Problems:
    for probe in evidence.failing:
        if probe.exchange.error.get("code") != probe.code:
            yield f"{probe} is {probe.exchange.answer}, not {probe.code}"


CHECKS = (
    Check("the list of operations is valid", "introspection", 1, "MUST", _operations),
    Check("the list of types is valid", "introspection", 1, "MUST", _types),
    Check("the details of operations are valid", "introspection", 1, "MUST", _details),
    Check("what is accepted is documented", "introspection", 1, "MUST", _undocumented),
    Check("missing parameters are named", "parameters", 1, "MUST", _missing),
    Check("unknown parameters are named", "parameters", 1, "MUST", _unknown),
    Check("defaults can be observed", "parameters", 1, "MUST", _defaults),
    Check("parameters are in snake_case", "parameters", 1, "MUST", _snake),
    Check("failures have a valid envelope", "answers", 1, "MUST", _failures),
    Check("messages leak nothing", "answers", 1, "MUST", _leaks),
    Check("failures name what they are about", "answers", 1, "MUST", _mentions),
    Check("what was created is read back", "round trip", 1, "MUST", _created),
    Check("updates preserve the rest", "round trip", 1, "MUST", _updated),
    Check("both modes are served", "level 2", 2, "SHOULD", _modes),
    Check("fields can be selected", "level 2", 2, "SHOULD", _selection),
    Check("batches are answered", "level 2", 2, "SHOULD", _batch),
    Check("constraints are kept", "parameters", 2, "SHOULD", _constraints),
    Check("constraints are documented", "parameters", 2, "SHOULD", _constraints_documented),
    Check("wrong endpoints are rejected", "routing", 1, "MUST", _routing),
    Check("unknown names are null", "introspection", 1, "MUST", _nothing),
    Check("the details of types are valid", "introspection", 1, "MUST", _every_type),
    Check("the protocol is described", "introspection", 2, "MUST", _protocol),
    Check("successes have a valid envelope", "answers", 1, "MUST", _successes),
    Check("categories, families and permissions agree", "routing", 1, "MUST", _categories),
    Check("examples are accepted", "introspection", 1, "SHOULD", _examples),
    Check("what is documented is accepted", "introspection", 1, "SHOULD", _untaken),
    Check("confirmations say how", "answers", 1, "MUST", _confirmations),
    Check("refusals have the code that fits them", "answers", 1, "MUST", _codes),
)
