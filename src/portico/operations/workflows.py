"""Operations that depend on each other, run as one: in order, side by side, each with what others gave.

A workflow is checked whole before any of it runs. Each step passes the gate by itself, as a call of the same caller:
nothing is done here that the caller could not do one by one.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta

from portico import errors
from portico.catalog import Catalog, Kind, Operation
from portico.errors import (
    Forbidden,
    Interrupted,
    InvalidWorkflow,
    KeyInUse,
    OperationFailed,
    OutcomeUnknown,
    SiteError,
    TimedOut,
    Unauthenticated,
)
from portico.operations import Context
from portico.operations.expressions import MAX_CONDITION, Path, parse_condition, parse_path
from portico.operations.tasks import error_of
from portico.requests import Call, Caller, Outcome, Task, TaskState
from portico.safety.gate import MAX_KEY, Gate

RUN = "run_workflow"
INPUT = "input"  # names the input of a workflow beside the results of its steps
MAX_PATHS = 64  # into earlier results, of one step
MAX_STEPS = 32
MAX_EDGES = MAX_STEPS * MAX_STEPS
MAX_LEVELS = 3  # workflows in workflows, the outermost counted
MAX_SECONDS = 3600.0
MAX_RETRIES = 5
MAX_PAUSE = 300  # seconds before a step is tried again
ANONYMOUS_SECONDS = 60.0  # nobody in particular holds a place among the tasks for longer
AT_ONCE = 8  # calls of one run, all levels together
WAIT_SECONDS = 1.0  # between looks at a step that another process may still run

# A step that looks after tasks could wait for the very run that it is a step of.
REFUSED = frozenset({"get_task", "cancel_task", "verify_challenge"})

_ID = r"[A-Za-z0-9_.-]{1,64}"
_IS_ID = re.compile(_ID)
_ERRORS: Mapping[str, type[SiteError]] = {
    name: each for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, SiteError)
}

Pause = Annotated[float, Meta(ge=0, le=MAX_PAUSE)]
Seconds = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
StepId = Annotated[str, Meta(extra_json_schema={"pattern": f"^{_ID}$"})]


class Retries(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often a failed step is tried again, after how many seconds, and after which errors."""

    max: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = 2
    backoff: Literal["fixed", "linear", "exponential"] = "exponential"
    first: Pause = 1.0
    most: Pause = 30.0
    retry_on: tuple[str, ...] = ("Unavailable", "TimedOut", "RateLimited")

    def cover(self, error: SiteError) -> bool:
        return any(each.__name__ in self.retry_on for each in type(error).__mro__)

    def pause(self, attempt: int) -> float:
        """Seconds to wait after a failed attempt; attempts count from 0."""
        factors = {"fixed": 1, "linear": attempt + 1, "exponential": 2**attempt}
        return min(self.first * factors[self.backoff], self.most)


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One operation of a workflow, and where its parameters come from."""

    id: StepId
    operation: str
    params: dict[str, Any] = {}
    input_from: tuple[str, ...] = ()
    input_mapping: Annotated[
        dict[str, str | tuple[str, ...]],
        Meta(
            description='Parameters by path into earlier results, as in {"id": "$.find.items[0].id"}; '
            "of several paths the results are a list"
        ),
    ] = {}
    key: Annotated[str, Meta(description="An idempotency key of this operation", max_length=MAX_KEY)] = ""
    timeout: Seconds | None = None
    retries: Retries = Retries()
    condition: Annotated[
        str,
        Meta(
            description="The step is skipped unless this holds, as in size($.find.items) > 0",
            extra_json_schema={"maxLength": MAX_CONDITION},
        ),
    ] = ""

    @property
    def is_workflow(self) -> bool:
        return self.operation == RUN


class Edge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """That one step waits for another."""

    source: str
    target: str


class Workflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Steps and what they wait for. One that does not fit together cannot be made."""

    steps: Annotated[tuple[Step, ...], Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_STEPS})]
    edges: tuple[Edge, ...] = ()
    input: dict[str, Any] = {}
    timeout: Seconds = 30.0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Steps and those that wait for them."""
        edges = [(edge.source, edge.target) for edge in self.edges]
        return [*edges, *((source, step.id) for step in self.steps for source in step.input_from)]

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """By step, the steps that it waits for."""
        known = dict.fromkeys(self.pairs)
        return {step.id: tuple(source for source, target in known if target == step.id) for step in self.steps}

    @property
    def terminals(self) -> list[str]:
        """The steps that none waits for."""
        awaited = {source for source, _ in self.pairs}
        return [step.id for step in self.steps if step.id not in awaited]

    @property
    def nested(self) -> list["Workflow"]:
        return [_nested(step.id, step.params) for step in self.steps if step.is_workflow]

    @property
    def levels(self) -> int:
        return 1 + max((each.levels for each in self.nested), default=0)


class Ended(msgspec.Struct, frozen=True):
    """What became of a step that did not fail."""

    state: Literal["completed", "skipped"]
    result: Any = None


class Ran(msgspec.Struct, frozen=True):
    """What a workflow gave: the result of its last step, or of each of several by id."""

    steps: dict[str, Ended]
    result: Any


# Checking


def _check(workflow: Workflow) -> None:
    """Refuse what could not be run to its end. A graph without cycles has a first and a last step."""
    _check_sizes(workflow)
    _check_names(workflow)
    earlier = _ancestors(workflow)
    for step in workflow.steps:
        try:
            _check_step(step, earlier[step.id])
        except InvalidWorkflow as error:
            raise _of_step(error, step, step.id) from error
    if workflow.levels > MAX_LEVELS:
        raise InvalidWorkflow(
            f"Workflows may be nested up to {MAX_LEVELS} levels deep", reason="too-deep", limit=MAX_LEVELS
        )


def _check_sizes(workflow: Workflow) -> None:
    if not workflow.steps:
        raise InvalidWorkflow("A workflow needs one step or more", reason="invalid")
    for what, given, limit in (("steps", workflow.steps, MAX_STEPS), ("edges", workflow.pairs, MAX_EDGES)):
        if len(given) > limit:
            raise InvalidWorkflow(f"A workflow may have up to {limit} {what}", reason="too-large", limit=limit)


def _check_names(workflow: Workflow) -> None:
    ids = [step.id for step in workflow.steps]
    for id in ids:
        if not _IS_ID.fullmatch(id) or id == INPUT:
            raise _wrong("invalid", id, f"{id[:100]!r} cannot name a step")
        if ids.count(id) > 1:
            raise _wrong("invalid", id, f"There are two steps {id}")
    unknown = next((id for pair in workflow.pairs for id in pair if id not in ids), None)
    if unknown is not None:
        raise _wrong("invalid", unknown, f"There is no step {unknown[:100]!r}")


def _ancestors(workflow: Workflow) -> dict[str, frozenset[str]]:
    """By step, all steps that have ended when it begins; in an order in which they can run."""
    inputs = workflow.inputs
    found: dict[str, frozenset[str]] = {}
    try:
        for id in TopologicalSorter(inputs).static_order():
            found[id] = frozenset(inputs[id]).union(*(found[source] for source in inputs[id]))
    except CycleError as error:
        cycle = cast("list[str]", error.args[1])
        raise InvalidWorkflow(
            f"The steps wait for each other: {', '.join(cycle)}", reason="cycle", steps=cycle
        ) from error
    return found


def _check_step(step: Step, earlier: frozenset[str]) -> None:
    if step.operation in REFUSED:
        raise _wrong("invalid", step.id, f"{step.operation} cannot be a step of a workflow")
    unknown = [name for name in step.retries.retry_on if name not in _ERRORS]
    if unknown:
        raise _wrong("invalid", step.id, f"There is no error {unknown[0][:100]!r} to retry on")
    if step.is_workflow and step.input_mapping.keys() - {INPUT}:
        # Steps that come from results could not be checked before.
        raise _wrong("mapping", step.id, f"Only the {INPUT} of a nested workflow can be mapped")
    mapped = [text for said in step.input_mapping.values() for text in _paths(said)]
    if len(mapped) > MAX_PATHS:
        raise _wrong("mapping", step.id, f"A step takes at most {MAX_PATHS} parameters from results")
    for text in mapped:
        _check_path(step, parse_path(text), earlier, "mapping")
    if step.condition:
        for path in parse_condition(step.condition).paths:
            _check_path(step, path, earlier, "condition")


def _paths(said: str | tuple[str, ...]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else said


def _check_path(step: Step, path: Path, earlier: frozenset[str], reason: str) -> None:
    if path.steps and path.root != INPUT and path.root not in earlier:
        raise _wrong(reason, step.id, f"{path.text[:100]} is of no step that {step.id} waits for")


def _nested(id: str, params: Mapping[str, Any]) -> Workflow:
    try:
        return msgspec.convert(params, Workflow)
    except msgspec.ValidationError as error:
        raise _wrong("invalid", id, f"The workflow in {id} cannot be read: {error}") from error


def _wrong(reason: str, step: str, message: str) -> InvalidWorkflow:
    return InvalidWorkflow(message, reason=reason, step=step[:100])


# Running


class Failure(msgspec.Struct, frozen=True):
    """An error as it is kept."""

    error: str
    message: str
    hint: str | None
    details: dict[str, Any]

    def restored(self) -> SiteError:
        return _ERRORS.get(self.error, OperationFailed)(self.message, hint=self.hint, **self.details)


class Saved(msgspec.Struct):
    """What a run is taken up from when its process has ended: its id, and what is settled."""

    run: str
    done: dict[str, Ended] = {}  # by key: the id of a step, after those of the steps that it is nested in
    failed: Failure | None = None


class Run:
    """One run with all that is nested in it: what bounds it, and what is kept of it."""

    def __init__(self, context: Context, total: int) -> None:
        self.context = context
        self.saved = msgspec.convert(context.saved, Saved) if context.saved else Saved(secrets.token_urlsafe(16))
        self.slots = asyncio.Semaphore(AT_ONCE)
        self._total = total
        self._telling = asyncio.Lock()  # reports of steps that end together must not overtake each other

    async def end(self, key: str, ended: Ended) -> Ended:
        """Keep what became of a step. The steps that were nested in it are part of that."""
        others = {each: kept for each, kept in self.saved.done.items() if not each.startswith(f"{key}:")}
        done, limit = {**others, key: ended}, self.context.limits.payload_bytes
        if len(msgspec.json.encode(done)) > limit:
            raise OperationFailed(f"The results of the steps take more than {limit} bytes", step=key, limit=limit)
        self.saved.done = done
        await self.tell()
        return ended

    async def fail(self, error: SiteError) -> None:
        """Keep the error: a task that is tried again must not try a step more often than its retries say."""
        self.saved.failed = Failure(type(error).__name__, error.message, error.hint, error.details)
        await self.tell()

    async def tell(self) -> None:
        async with self._telling:
            done = sum(":" not in key for key in self.saved.done)
            message = f"{done} of {self._total} steps are done"
            await self.context.progress(done / self._total, message, save=msgspec.to_builtins(self.saved))


Doing: TypeAlias = Callable[[Call, Caller], Awaitable[Outcome | Task]]


@dataclass(frozen=True, slots=True)
class Workflows:
    """Runs workflows through the doors of a site."""

    catalog: Callable[[], Catalog]
    gate: Gate
    call: Doing

    async def run(self, context: Context, workflow: Workflow) -> Ran:
        """Run it from its first steps, or from where it was when the process ended; the time begins anew then."""
        run = Run(context, len(workflow.steps))
        if run.saved.failed:
            raise run.saved.failed.restored()
        await self.gate.settled(lambda: self._check_operations(workflow, context.caller))
        await run.tell()
        seconds = min(workflow.timeout, ANONYMOUS_SECONDS) if context.caller.is_anonymous else workflow.timeout
        try:
            return await Level(self, run, workflow, seconds).ended()
        except SiteError as error:
            await run.fail(error)
            raise

    def _check_operations(self, workflow: Workflow, caller: Caller) -> None:
        for step in workflow.steps:
            operation = self.catalog().operation(step.operation)
            if not self.gate.may(operation, caller):
                raise _refusal(operation, step, caller)
        for each in workflow.nested:
            self._check_operations(each, caller)


def _refusal(operation: Operation, step: Step, caller: Caller) -> SiteError:
    kind = Unauthenticated if caller.is_anonymous else Forbidden
    return kind(f"{caller.name} may not run {operation.name}", operation=operation.name, step=step.id)


@dataclass(slots=True)
class Level:
    """A workflow being run: the outermost, or one that is a step of another."""

    site: Workflows
    run: Run
    workflow: Workflow
    seconds: float
    prefix: str = ""
    done: dict[str, Ended] = field(default_factory=dict[str, Ended])

    async def ended(self) -> Ran:
        """Run every step as soon as those that it waits for have ended. The first that fails stops the others."""
        steps = {step.id: step for step in self.workflow.steps}
        inputs, begun = self.workflow.inputs, dict[str, asyncio.Task[Ended]]()
        for id, earlier in _ancestors(self.workflow).items():
            awaited = [begun[source] for source in inputs[id]]
            begun[id] = asyncio.create_task(self._step(steps[id], awaited, earlier))
        try:
            async with asyncio.timeout(self.seconds):
                await _together(begun.values())
        except TimeoutError as error:
            raise TimedOut(f"The workflow did not finish within {self.seconds:g} seconds") from error
        return self._result()

    def _result(self) -> Ran:
        last = {id: self.done[id].result for id in self.workflow.terminals}
        result = last if len(last) > 1 else next(iter(last.values()))
        return Ran({step.id: self.done[step.id] for step in self.workflow.steps}, result)

    async def _step(self, step: Step, awaited: list[asyncio.Task[Ended]], earlier: frozenset[str]) -> Ended:
        if awaited:
            await asyncio.wait(awaited)
        key = f"{self.prefix}{step.id}"
        before = [each.result() for each in awaited]
        ended = self.run.saved.done.get(key) or await self.run.end(key, await self._became(step, key, before, earlier))
        self.done[step.id] = ended
        return ended

    async def _became(self, step: Step, key: str, before: list[Ended], earlier: frozenset[str]) -> Ended:
        if before and all(each.state == "skipped" for each in before):
            return Ended("skipped")
        data = self._data(earlier)
        try:
            if step.condition and not parse_condition(step.condition).holds(data):
                return Ended("skipped")
            params = {**step.params, **self._mapped(step, data)}
        except InvalidWorkflow as error:
            raise _of_step(error, step, key) from error
        return Ended("completed", await self._insist(step, key, params))

    def _data(self, earlier: frozenset[str]) -> dict[str, Any]:
        """What paths look at: the input, and what the steps before gave. A skipped step gave nothing."""
        given = {id: self.done[id].result for id in earlier if self.done[id].state == "completed"}
        return {INPUT: self.workflow.input, **given}

    def _mapped(self, step: Step, data: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that come from results. What a skipped step would have given is left out."""
        mapped: dict[str, Any] = {}
        left = self.run.context.limits.payload_bytes
        for name, said in step.input_mapping.items():
            found = [value for text in _paths(said) if (value := _at(text, name, data)) is not UNSET]
            # A result that is taken many times is small only until it is written.
            for value in found:
                left -= len(msgspec.json.encode(value))
                if left < 0:
                    raise InvalidWorkflow("The results used by the step are too large", reason="mapping", param=name)
            if not isinstance(said, str):
                mapped[name] = found
            elif found:
                mapped[name] = found[0]
        return mapped

    async def _insist(self, step: Step, key: str, params: Mapping[str, Any]) -> Any:
        """Do a step, and again after errors that its retries cover."""
        attempt, do = 0, self._nested if step.is_workflow else self._call
        while True:
            try:
                return await do(step, key, params)
            except SiteError as error:
                if _is_stopped():
                    raise asyncio.CancelledError from error
                if attempt >= step.retries.max or not step.retries.cover(error):
                    raise _of_step(error, step, key) from error
            await asyncio.sleep(step.retries.pause(attempt))
            attempt += 1

    async def _nested(self, step: Step, key: str, params: Mapping[str, Any]) -> Any:
        """A workflow in a workflow shares the run of the outer one: so it is bounded and taken up again with it."""
        await self.site.gate.spend(self.run.context.caller)
        workflow = _nested(step.id, params)
        seconds = min(workflow.timeout, step.timeout or MAX_SECONDS)
        return msgspec.to_builtins(await Level(self.site, self.run, workflow, seconds, f"{key}:").ended())

    async def _call(self, step: Step, key: str, params: Mapping[str, Any]) -> Any:
        # A key keeps a step from being done twice when a process dies between its end and the note of it. If the
        # process dies while the step runs, a transactional operation is run again under its key, and nobody knows how
        # far any other has come: it fails, and is left to people to look after.
        operation = self.site.catalog().operation(step.operation)
        needs_no_key = operation.idempotent or operation.kind is Kind.READ
        once = "" if needs_no_key else step.key or f"{self.run.saved.run}:{key}"
        call = Call(step.operation, params, run="now", key=once, timeout=step.timeout)
        try:
            async with self.run.slots:
                outcome = await self._call_when_free(call)
        except (KeyInUse, OutcomeUnknown) as error:
            if step.key or not once or error.details.get("key") != once:
                raise
            raise Interrupted(
                f"The server stopped while {step.operation} was running; how far it came is not known",
                operation=step.operation,
                hint="Check which changes it made, and run only the remaining steps.",
            ) from error
        return _given(outcome)

    async def _call_when_free(self, call: Call) -> Outcome | Task:
        """Make a call. While the process that ran it before may still do so, wait for its outcome."""
        while True:
            try:
                return await self.site.call(call, self.run.context.caller)
            except KeyInUse as error:
                if error.details.get("state") != "running":
                    raise
            await asyncio.sleep(WAIT_SECONDS)


def _given(outcome: Outcome | Task) -> Any:
    """What a call gave. Its key may stand for a task that was begun before, which has to be done."""
    if isinstance(outcome, Outcome):
        return outcome.result
    if not outcome.state.is_final:
        raise KeyInUse("A task with this idempotency key is still running", task=outcome.id)
    if outcome.state is not TaskState.COMPLETED:
        raise error_of(outcome)
    return outcome.result


def _at(text: str, param: str, data: Mapping[str, Any]) -> Any:
    """What lies at a path; UNSET if the step that it is of was skipped."""
    path = parse_path(text)
    value = path.find(data)
    if value is UNSET and path.root in data:
        raise InvalidWorkflow(f"The path {text[:100]} leads to nothing", reason="mapping", path=text, param=param)
    return value


async def _together(steps: Collection[asyncio.Task[Ended]]) -> None:
    """Wait until all have ended. The first error stops the others, and is raised when they have stopped."""
    # A TaskGroup of Python 3.11 leaves its parent marked as cancelled after an error, which retries go on after.
    try:
        done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_EXCEPTION)
        for each in steps:
            if each in done:
                each.result()
    finally:
        for each in steps:
            each.cancel()
        await asyncio.gather(*steps, return_exceptions=True)


def _is_stopped() -> bool:
    """Whether an error came of a cancellation, and hides it."""
    return cast("asyncio.Task[Any]", asyncio.current_task()).cancelling() > 0


def _of_step(error: SiteError, step: Step, key: str) -> SiteError:
    """The error of a step, which names it. One in a nested workflow names the innermost step already."""
    inner = error.details.get("step") if step.is_workflow else None
    return type(error)(error.message, hint=error.hint, **{**error.details, "step": inner or key})
