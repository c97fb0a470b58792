"""Workflows: dependent operations run as one, in order or in parallel, with results passed between them.

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
from portico.catalog import Catalog, Operation
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
INPUT = "input"  # the name of a workflow's input beside the results of its steps
MAX_PATHS = 64  # into earlier results, of one step
MAX_STEPS = 32
MAX_EDGES = MAX_STEPS * MAX_STEPS
MAX_LEVELS = 3  # of nested workflows, including the outermost
MAX_SECONDS = 3600.0
MAX_RETRIES = 5
MAX_PAUSE = 300  # seconds before a step is retried
ANONYMOUS_SECONDS = 60.0  # for which an anonymous caller may occupy a task slot
AT_ONCE = 8  # parallel calls of one run, at all levels together
WAIT_SECONDS = 1.0  # between polls of a step that another process may still be running

# A step that manages tasks could wait for the run that it belongs to.
REFUSED_OPERATIONS = frozenset({"get_task", "cancel_task", "verify_challenge"})

_ID = r"[A-Za-z0-9_.-]{1,64}"
_IS_ID = re.compile(_ID)
_ERRORS: Mapping[str, type[SiteError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SiteError)
}

Pause = Annotated[float, Meta(ge=0, le=MAX_PAUSE)]
Seconds = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
StepId = Annotated[str, Meta(extra_json_schema={"pattern": f"^{_ID}$"})]


class Retries(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often a failed step is retried, after how many seconds, and after which errors."""

    max: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = 2
    backoff: Literal["fixed", "linear", "exponential"] = "exponential"
    first: Pause = 1.0
    most: Pause = 30.0
    retry_on: tuple[str, ...] = ("Unavailable", "TimedOut", "RateLimited")

    def cover(self, error: SiteError) -> bool:
        return any(kind.__name__ in self.retry_on for kind in type(error).__mro__)

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after a failed attempt, counted from 0."""
        factors = {"fixed": 1, "linear": attempt + 1, "exponential": 2**attempt}
        return min(self.first * factors[self.backoff], self.most)


class WorkflowStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One operation of a workflow and the sources of its parameters."""

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
    """A dependency: one step waits for another."""

    source: str
    target: str


class Workflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Steps and their dependencies. An inconsistent workflow cannot be constructed."""

    steps: Annotated[tuple[WorkflowStep, ...], Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_STEPS})]
    edges: tuple[Edge, ...] = ()
    input: dict[str, Any] = {}
    timeout: Seconds = 30.0

    def __post_init__(self) -> None:
        _check(self)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of a step and one that waits for it."""
        edges = [(edge.source, edge.target) for edge in self.edges]
        return [*edges, *((source, step.id) for step in self.steps for source in step.input_from)]

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """By step, the steps that it waits for."""
        pairs = dict.fromkeys(self.pairs)
        return {step.id: tuple(source for source, target in pairs if target == step.id) for step in self.steps}

    @property
    def terminals(self) -> list[str]:
        """The steps that no other waits for."""
        awaited = {source for source, _ in self.pairs}
        return [step.id for step in self.steps if step.id not in awaited]

    @property
    def nested(self) -> list["Workflow"]:
        return [_parse_nested(step.id, step.params) for step in self.steps if step.is_workflow]

    @property
    def levels(self) -> int:
        return 1 + max((workflow.levels for workflow in self.nested), default=0)


class StepResult(msgspec.Struct, frozen=True):
    """The outcome of a step that did not fail."""

    state: Literal["completed", "skipped"]
    result: Any = None


class WorkflowResult(msgspec.Struct, frozen=True):
    """The outcome of a workflow: the result of its last step, or those of several by id."""

    steps: dict[str, StepResult]
    result: Any


# Checking


def _check(workflow: Workflow) -> None:
    """Raise InvalidWorkflow if a workflow could not be run to its end."""
    _check_sizes(workflow)
    _check_names(workflow)
    earlier = _ancestors(workflow)
    for step in workflow.steps:
        try:
            _check_step(step, earlier[step.id])
        except InvalidWorkflow as error:
            raise _with_step(error, step, step.id) from error
    if workflow.levels > MAX_LEVELS:
        raise InvalidWorkflow(
            f"Workflows may be nested up to {MAX_LEVELS} levels deep", reason="too-deep", limit=MAX_LEVELS
        )


def _check_sizes(workflow: Workflow) -> None:
    if not workflow.steps:
        raise InvalidWorkflow("A workflow needs one or more steps", reason="invalid")
    for what, items, limit in (("steps", workflow.steps, MAX_STEPS), ("edges", workflow.pairs, MAX_EDGES)):
        if len(items) > limit:
            raise InvalidWorkflow(f"A workflow may have up to {limit} {what}", reason="too-large", limit=limit)


def _check_names(workflow: Workflow) -> None:
    ids = [step.id for step in workflow.steps]
    for id in ids:
        if not _IS_ID.fullmatch(id) or id == INPUT:
            raise _invalid("invalid", id, f"{id[:100]!r} cannot name a step")
        if ids.count(id) > 1:
            raise _invalid("invalid", id, f"The step id {id} is used twice")
    unknown = next((id for pair in workflow.pairs for id in pair if id not in ids), None)
    if unknown is not None:
        raise _invalid("invalid", unknown, f"There is no step {unknown[:100]!r}")


def _ancestors(workflow: Workflow) -> dict[str, frozenset[str]]:
    """Return, by step, all steps that have ended when it starts, in an order in which they can run."""
    inputs = workflow.inputs
    ancestors: dict[str, frozenset[str]] = {}
    try:
        for id in TopologicalSorter(inputs).static_order():
            ancestors[id] = frozenset(inputs[id]).union(*(ancestors[source] for source in inputs[id]))
    except CycleError as error:
        cycle = cast("list[str]", error.args[1])
        raise InvalidWorkflow(
            f"The steps wait for each other: {', '.join(cycle)}", reason="cycle", steps=cycle
        ) from error
    return ancestors


def _check_step(step: WorkflowStep, earlier: frozenset[str]) -> None:
    if step.operation in REFUSED_OPERATIONS:
        raise _invalid("invalid", step.id, f"{step.operation} cannot be a step of a workflow")
    unknown = [name for name in step.retries.retry_on if name not in _ERRORS]
    if unknown:
        raise _invalid("invalid", step.id, f"`retry_on` names the unknown error {unknown[0][:100]!r}")
    if step.is_workflow and step.input_mapping.keys() - {INPUT}:
        # Steps that come from results could not be checked beforehand.
        raise _invalid("mapping", step.id, f"Only `{INPUT}`` of a nested workflow can be mapped")
    mapped = [text for source in step.input_mapping.values() for text in _paths_of(source)]
    if len(mapped) > MAX_PATHS:
        raise _invalid("mapping", step.id, f"A step may take at most {MAX_PATHS} parameters from results")
    for text in mapped:
        _check_path(step, parse_path(text), earlier, "mapping")
    if step.condition:
        for path in parse_condition(step.condition).paths:
            _check_path(step, path, earlier, "condition")


def _paths_of(source: str | tuple[str, ...]) -> tuple[str, ...]:
    return (source,) if isinstance(source, str) else source


def _check_path(step: WorkflowStep, path: Path, earlier: frozenset[str], reason: str) -> None:
    if path.steps and path.root != INPUT and path.root not in earlier:
        raise _invalid(reason, step.id, f"{path.text[:100]} is of no step that {step.id} waits for")


def _parse_nested(id: str, params: Mapping[str, Any]) -> Workflow:
    try:
        return msgspec.convert(params, Workflow)
    except msgspec.ValidationError as error:
        raise _invalid("invalid", id, f"The workflow in {id} is malformed: {error}") from error


def _invalid(reason: str, step: str, message: str) -> InvalidWorkflow:
    return InvalidWorkflow(message, reason=reason, step=step[:100])


# Running


class StoredFailure(msgspec.Struct, frozen=True):
    """An error as it is stored."""

    error: str
    message: str
    hint: str | None
    details: dict[str, Any]

    def to_error(self) -> SiteError:
        return _ERRORS.get(self.error, OperationFailed)(self.message, hint=self.hint, **self.details)


class SavedRun(msgspec.Struct):
    """The state from which a run is resumed after its process ended: its id and finished steps."""

    run: str
    done: dict[str, StepResult] = {}  # by key: the ids of enclosing steps, then that of the step
    failed: StoredFailure | None = None


class WorkflowRun:
    """One run, including nested workflows: its limits and its saved state."""

    def __init__(self, context: Context, total: int) -> None:
        self.context = context
        self.saved = msgspec.convert(context.saved, SavedRun) if context.saved else SavedRun(secrets.token_hex(16))
        self.slots = asyncio.Semaphore(AT_ONCE)
        self._total = total
        self._report_lock = asyncio.Lock()  # keeps reports of steps that end together in order

    async def finish_step(self, key: str, result: StepResult) -> StepResult:
        """Save the result of a step, which includes those of the steps nested in it."""
        others = {
            step_key: step_result
            for step_key, step_result in self.saved.done.items()
            if not step_key.startswith(f"{key}:")
        }
        done, limit = {**others, key: result}, self.context.limits.payload_bytes
        if len(msgspec.json.encode(done)) > limit:
            raise OperationFailed(f"The results of the steps take more than {limit} bytes", step=key, limit=limit)
        self.saved.done = done
        await self.report()
        return result

    async def fail(self, error: SiteError) -> None:
        """Save the error, so that a retried task does not try a step more often than its retries allow."""
        self.saved.failed = StoredFailure(type(error).__name__, error.message, error.hint, error.details)
        await self.report()

    async def report(self) -> None:
        async with self._report_lock:
            done = sum(":" not in key for key in self.saved.done)
            message = f"{done} of {self._total} steps are done"
            await self.context.progress(done / self._total, message, save=msgspec.to_builtins(self.saved))


CallSite: TypeAlias = Callable[[Call, Caller], Awaitable[Outcome | Task]]


@dataclass(frozen=True, slots=True)
class Workflows:
    """Runs workflows through a site's own calls."""

    catalog: Callable[[], Catalog]
    gate: Gate
    call: CallSite

    async def run(self, context: Context, workflow: Workflow) -> WorkflowResult:
        """Run a workflow from the start, or from its saved state, which restarts its time limit."""
        run = WorkflowRun(context, len(workflow.steps))
        if run.saved.failed:
            raise run.saved.failed.to_error()
        await self.gate.look_up(lambda: self._check_operations(workflow, context.caller))
        await run.report()
        seconds = min(workflow.timeout, ANONYMOUS_SECONDS) if context.caller.is_anonymous else workflow.timeout
        try:
            return await WorkflowExecution(self, run, workflow, seconds).execute()
        except SiteError as error:
            await run.fail(error)
            raise

    def _check_operations(self, workflow: Workflow, caller: Caller) -> None:
        for step in workflow.steps:
            operation = self.catalog().operation(step.operation)
            if not self.gate.may(operation, caller):
                raise _refusal(operation, step, caller)
        for nested in workflow.nested:
            self._check_operations(nested, caller)


def _refusal(operation: Operation, step: WorkflowStep, caller: Caller) -> SiteError:
    kind = Unauthenticated if caller.is_anonymous else Forbidden
    return kind(f"{caller.name} may not run {operation.name}", operation=operation.name, step=step.id)


@dataclass(slots=True)
class WorkflowExecution:
    """The execution of one workflow: the outermost, or one that is a step of another."""

    site: Workflows
    run: WorkflowRun
    workflow: Workflow
    seconds: float
    prefix: str = ""
    done: dict[str, StepResult] = field(default_factory=dict[str, StepResult])

    async def execute(self) -> WorkflowResult:
        """Run every step as soon as its dependencies have ended. The first failure stops the others."""
        steps = {step.id: step for step in self.workflow.steps}
        inputs, tasks = self.workflow.inputs, dict[str, asyncio.Task[StepResult]]()
        for id, earlier in _ancestors(self.workflow).items():
            awaited = [tasks[source] for source in inputs[id]]
            tasks[id] = asyncio.create_task(self._step(steps[id], awaited, earlier))
        try:
            async with asyncio.timeout(self.seconds):
                await _wait_all(tasks.values())
        except TimeoutError as error:
            raise TimedOut(f"The workflow did not finish within {self.seconds:g} seconds") from error
        return self._result()

    def _result(self) -> WorkflowResult:
        last = {id: self.done[id].result for id in self.workflow.terminals}
        result = last if len(last) > 1 else next(iter(last.values()))
        return WorkflowResult({step.id: self.done[step.id] for step in self.workflow.steps}, result)

    async def _step(
        self, step: WorkflowStep, awaited: list[asyncio.Task[StepResult]], earlier: frozenset[str]
    ) -> StepResult:
        if awaited:
            await asyncio.wait(awaited)
        key = f"{self.prefix}{step.id}"
        before = [task.result() for task in awaited]
        result = self.run.saved.done.get(key) or await self.run.finish_step(
            key, await self._run_step(step, key, before, earlier)
        )
        self.done[step.id] = result
        return result

    async def _run_step(
        self, step: WorkflowStep, key: str, before: list[StepResult], earlier: frozenset[str]
    ) -> StepResult:
        if before and all(result.state == "skipped" for result in before):
            return StepResult("skipped")
        data = self._data(earlier)
        try:
            if step.condition and not parse_condition(step.condition).holds(data):
                return StepResult("skipped")
            params = {**step.params, **self._map_params(step, data)}
        except InvalidWorkflow as error:
            raise _with_step(error, step, key) from error
        return StepResult("completed", await self._retry(step, key, params))

    def _data(self, earlier: frozenset[str]) -> dict[str, Any]:
        """Return what paths refer to: the input and the results of earlier steps that were not skipped."""
        results = {id: self.done[id].result for id in earlier if self.done[id].state == "completed"}
        return {INPUT: self.workflow.input, **results}

    def _map_params(self, step: WorkflowStep, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that come from results, without those of skipped steps."""
        mapped: dict[str, Any] = {}
        left = self.run.context.limits.payload_bytes
        for name, source in step.input_mapping.items():
            values = [value for text in _paths_of(source) if (value := _value_at(text, name, data)) is not UNSET]
            # A result that is used many times is small only until it is serialized.
            for value in values:
                left -= len(msgspec.json.encode(value))
                if left < 0:
                    raise InvalidWorkflow("The results used by the step are too large", reason="mapping", param=name)
            if not isinstance(source, str):
                mapped[name] = values
            elif values:
                mapped[name] = values[0]
        return mapped

    async def _retry(self, step: WorkflowStep, key: str, params: Mapping[str, Any]) -> Any:
        """Run a step, and retry it after errors that its retries cover."""
        attempt, do = 0, self._run_nested if step.is_workflow else self._call
        while True:
            try:
                return await do(step, key, params)
            except SiteError as error:
                if _is_stopped():
                    raise asyncio.CancelledError from error
                if attempt >= step.retries.max or not step.retries.cover(error):
                    raise _with_step(error, step, key) from error
            await asyncio.sleep(step.retries.pause(attempt))
            attempt += 1

    async def _run_nested(self, step: WorkflowStep, key: str, params: Mapping[str, Any]) -> Any:
        """Run a nested workflow as part of the outer run, with which it is limited and resumed."""
        await self.site.gate.spend(self.run.context.caller)
        workflow = _parse_nested(step.id, params)
        seconds = min(workflow.timeout, step.timeout or MAX_SECONDS)
        return msgspec.to_builtins(await WorkflowExecution(self.site, self.run, workflow, seconds, f"{key}:").execute())

    async def _call(self, step: WorkflowStep, key: str, params: Mapping[str, Any]) -> Any:
        # A key keeps a step from running twice when a process dies between its end and saving that. If the process
        # dies while the step runs, a transactional operation is run again under its key. How far any other one has
        # come is unknown, so it fails and is left to people.
        operation = self.site.catalog().operation(step.operation)
        once = "" if operation.is_idempotent else step.key or f"{self.run.saved.run}:{key}"
        call = Call(step.operation, params, run="now", key=once, timeout=step.timeout)
        try:
            async with self.run.slots:
                outcome = await self._call_when_free(call)
        except (KeyInUse, OutcomeUnknown) as error:
            if step.key or not once or error.details.get("key") != once:
                raise
            raise Interrupted(
                f"The server stopped while {step.operation} was running, and its outcome is unknown",
                operation=step.operation,
                hint="Check which changes it made, and run only the remaining steps.",
            ) from error
        return _result_of(outcome)

    async def _call_when_free(self, call: Call) -> Outcome | Task:
        """Make a call. While another process may still be running it, wait for its outcome."""
        while True:
            try:
                return await self.site.call(call, self.run.context.caller)
            except KeyInUse as error:
                if error.details.get("state") != "running":
                    raise
            await asyncio.sleep(WAIT_SECONDS)


def _result_of(outcome: Outcome | Task) -> Any:
    """Return the result of a call. Its key may identify an earlier task, which must have completed."""
    if isinstance(outcome, Outcome):
        return outcome.result
    if not outcome.state.is_final:
        raise KeyInUse("A task with this idempotency key is still running", task=outcome.id)
    if outcome.state is not TaskState.COMPLETED:
        raise error_of(outcome)
    return outcome.result


def _value_at(text: str, param: str, data: Mapping[str, Any]) -> Any:
    """Return the value at a path; UNSET if its step was skipped."""
    path = parse_path(text)
    value = path.find(data)
    if value is UNSET and path.root in data:
        raise InvalidWorkflow(f"The path {text[:100]} leads to no value", reason="mapping", path=text, param=param)
    return value


async def _wait_all(steps: Collection[asyncio.Task[StepResult]]) -> None:
    """Wait until all steps have ended. The first error stops the others and is raised after they have stopped."""
    # A TaskGroup of Python 3.11 leaves its parent marked as cancelled after an error, which breaks retries.
    try:
        done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_EXCEPTION)
        for step in steps:
            if step in done:
                step.result()
    finally:
        for step in steps:
            step.cancel()
        await asyncio.gather(*steps, return_exceptions=True)


def _is_stopped() -> bool:
    """Return whether the current task is being cancelled, which the error hides."""
    return cast("asyncio.Task[Any]", asyncio.current_task()).cancelling() > 0


def _with_step(error: SiteError, step: WorkflowStep, key: str) -> SiteError:
    """Return an error with the step that it is of. In a nested workflow, it already names the innermost step."""
    inner = error.details.get("step") if step.is_workflow else None
    return type(error)(error.message, hint=error.hint, **{**error.details, "step": inner or key})
