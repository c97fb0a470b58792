"""What a gateway makes of an invocation: a task for workers (NOP), and of a task steps that the site runs.

The workers are those of this site, in this process or another; nothing is handed to other sites.
"""

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from portico.catalog import Kind, Operation
from portico.errors import InvalidWorkflow
from portico.items import problem_with
from portico.operations.tasks import shown_id
from portico.operations.workflows import (
    MAX_LEVELS,
    MAX_PAUSE,
    MAX_RETRIES,
    MAX_SECONDS,
    MAX_STEPS,
    Edge,
    Retries,
    Step,
    Workflow,
)
from portico.protocols.nwp.errors import UnknownAction
from portico.protocols.nwp.frames import Natural, TaskFrame
from portico.protocols.nwp.nodes import Action, Node
from portico.requests import Call, Task
from portico.site import MAX_TIMEOUT
from portico.telemetry import Delegated, Observe

TIMEOUT_MS: Final = 30_000
MAX_TIMEOUT_MS: Final = int(MAX_SECONDS * 1000)
RETRIES: Final = 2  # of a step that does not say
ONE_STEP: Final = "invoke"  # the id of the only step of an invocation

# What is worth another try, by the words of the suite; the rest would only fail again.
RETRIED: Final[Mapping[str, tuple[str, ...]]] = {
    "NPS-LIMIT-RATE": ("RateLimited",),
    "NPS-SERVER-INTERNAL": ("OperationFailed",),
    "NPS-SERVER-TIMEOUT": ("TimedOut",),
    "NPS-SERVER-UNAVAILABLE": ("Unavailable",),
    "NWP-NODE-UNAVAILABLE": ("Unavailable", "OperationFailed"),
    "NWP-RATE-LIMIT-EXCEEDED": ("RateLimited",),
    "NOP-DELEGATE-TIMEOUT": ("TimedOut",),
    "NOP-RESOURCE-INSUFFICIENT": ("Unavailable",),
    "NOP-TASK-TIMEOUT": ("TimedOut",),
}
MAX_SHOWN: Final = 200  # characters of an action that are told
_PARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(-|\Z)")
_TRACE_ID = re.compile(r"[0-9a-f]{32}\Z")

Check = Callable[[Action], None]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    max_retries: Natural | None = None
    backoff: Literal["fixed", "linear", "exponential"] = "exponential"
    initial_delay_ms: Natural = 1000
    max_delay_ms: Natural = 30_000
    retry_on: tuple[str, ...] | None = None


class DagNode(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    action: str  # an address, or the id of an action
    agent: str | None = None  # the site chooses its workers itself
    params: dict[str, Any] | None = None
    input_from: tuple[str, ...] | None = None
    input_mapping: dict[str, str | tuple[str, ...]] | None = None
    timeout_ms: Natural | None = None
    retry_policy: RetryPolicy | None = None
    condition: str | None = None


class DagEdge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    source: str
    target: str


class Dag(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[DagNode, ...]
    edges: tuple[DagEdge, ...] = ()


class Trace(NamedTuple):
    """Where a request belongs, for those who follow it through several systems."""

    trace_id: str
    span_id: str
    trace_flags: int = 0


# Invocations to tasks


def one_step(call: Call, action: Action, id: str, trace: str) -> TaskFrame:
    """An invocation as a task of one step. What may not be done twice is not tried twice."""
    step: dict[str, Any] = {
        "id": ONE_STEP,
        "action": action.id,
        "params": dict(call.params),
        # How long the caller waits is a matter of the call: the same with another timeout is the same task.
        "timeout_ms": int(MAX_TIMEOUT * 1000),
        "retry_policy": {"max_retries": RETRIES if _is_repeatable(action.operation) else 0},
    }
    frame = TaskFrame(
        task_id=id,
        dag={"nodes": [step], "edges": []},
        timeout_ms=MAX_TIMEOUT_MS,
        max_retries=RETRIES,
        priority=call.priority,
        callback_url=call.callback or None,
        request_id=id,
    )
    return traced(frame, trace)


def traced(frame: TaskFrame, parent: str) -> TaskFrame:
    """A task with a place in the trace of whoever sent it, and a span of its own."""
    said = frame.context or {}
    trace = _trace(said.get("trace_id"), parent)
    return msgspec.structs.replace(frame, context={**said, **trace._asdict()})


def _trace(said: Any, parent: str) -> Trace:
    found = _PARENT.match(parent)
    span = secrets.token_hex(8)
    if isinstance(said, str) and _TRACE_ID.match(said) and int(said, 16):
        return Trace(said, span)
    if found and int(found["trace"], 16) and int(found["span"], 16):
        return Trace(found["trace"], span, int(found["flags"], 16))
    return Trace(secrets.token_hex(16), span)


def delegation(observe: Observe) -> Callable[[TaskFrame, Task], None]:
    """Tells an operator of every task that is handed to workers: whose it is, and to which trace it belongs."""

    def tell(frame: TaskFrame, task: Task) -> None:
        trace = frame.context or {}
        nodes = (frame.dag or {}).get("nodes", ())
        actions = tuple(str(each["action"])[:MAX_SHOWN] for each in nodes)
        observe(Delegated(shown_id(task.id), actions, trace["trace_id"], trace["span_id"], task.caller.id))

    return tell


def _is_repeatable(operation: Operation) -> bool:
    return operation.idempotent or operation.kind == Kind.READ


# Tasks to steps


def workflow_of(frame: TaskFrame, node: Node, hosts: Collection[str], check: Check) -> Mapping[str, Any]:
    """The steps of a task as parameters of `run_workflow`. Every action in it is checked, at whatever depth."""
    if (frame.delegate_depth or 0) >= MAX_LEVELS:
        raise InvalidWorkflow(f"Work is delegated over at most {MAX_LEVELS} levels", reason="too-deep")
    problem = problem_with("dag", frame.dag or {})
    if problem:
        raise InvalidWorkflow(f"The dag cannot be used: {problem}", reason="invalid")
    try:
        dag = msgspec.convert(frame.dag, Dag)
    except msgspec.ValidationError as error:
        raise InvalidWorkflow(f"The dag cannot be read: {error}", reason="invalid") from error
    if len(dag.nodes) > MAX_STEPS:
        raise InvalidWorkflow(f"A workflow has at most {MAX_STEPS} steps", reason="too-large", limit=MAX_STEPS)
    edges = tuple(Edge(each.source, each.target) for each in dag.edges)
    # What is no graph is none whatever its steps do: that comes before the question whether they can be done here.
    Workflow(steps=tuple(_outline(each) for each in dag.nodes), edges=edges)
    seconds = min(frame.timeout_ms or TIMEOUT_MS, MAX_TIMEOUT_MS) / 1000
    retries = RETRIES if frame.max_retries is None else frame.max_retries
    steps = tuple(_step(each, _action(each, node, hosts), retries) for each in dag.nodes)
    workflow = Workflow(steps=steps, edges=edges, timeout=seconds)
    for action in _actions(workflow, node):
        check(action)
    return cast("dict[str, Any]", msgspec.to_builtins(workflow))


def _actions(workflow: Workflow, node: Node) -> Iterator[Action]:
    """What the steps of a workflow do, and those of the workflows in it, which name operations."""
    offered = {action.operation.name: action for action in node.actions.values()}
    for step in workflow.steps:
        if step.operation not in offered:
            raise UnknownAction(f"{node.name} has no action for {step.operation[:100]!r}", step=step.id)
        yield offered[step.operation]
    for each in workflow.nested:
        yield from _actions(each, node)


def _action(each: DagNode, node: Node, hosts: Collection[str]) -> Action:
    id = _named(each, hosts) if "://" in each.action else each.action
    found = node.actions.get(id)
    if found is None:
        raise UnknownAction(f"{node.name} has no action {id[:100]!r}", action_id=id[:100], step=each.id[:100])
    return found


def _named(each: DagNode, hosts: Collection[str]) -> str:
    """The id of an action by its address, as in nwp://host/rooms-operations/invoke?action=rooms.list."""
    try:
        parts = urlsplit(each.action)
        named, at = parse_qs(parts.query, max_num_fields=10).get("action", []), parts.hostname
    except ValueError:
        named, at = [], None
    if len(named) != 1 or at not in hosts:
        raise UnknownAction(
            f"{each.action[:200]!r} is no action of this site",
            action_id=each.action[:200],
            step=each.id[:100],
            hint=f"As in nwp://{min(hosts, default='')}/gateway/invoke?action=…, or the id of an action.",
        )
    return named[0]


def _outline(each: DagNode) -> Step:
    """Where a step stands among the others, without what it does."""
    return Step(
        id=each.id,
        operation="",
        input_from=each.input_from or (),
        input_mapping=each.input_mapping or {},
        condition=each.condition or "",
    )


def _step(each: DagNode, action: Action, retries: int) -> Step:
    return Step(
        id=each.id,
        operation=action.operation.name,
        params=each.params or {},
        input_from=each.input_from or (),
        input_mapping=each.input_mapping or {},
        timeout=min(each.timeout_ms, MAX_TIMEOUT_MS) / 1000 if each.timeout_ms else None,
        retries=_retries(each.retry_policy or RetryPolicy(), action.operation, retries),
        condition=each.condition or "",
    )


def _retries(policy: RetryPolicy, operation: Operation, otherwise: int) -> Retries:
    """How often a step is tried again. What took too long may have been done: it is repeated only if it may be."""
    said = policy.retry_on
    again = ("TimedOut", "OperationFailed") if _is_repeatable(operation) else ()
    default = ("Unavailable", "RateLimited", *again)
    known = dict.fromkeys(error for code in said or () for error in RETRIED.get(code, ()))
    return Retries(
        max=min(otherwise if policy.max_retries is None else policy.max_retries, MAX_RETRIES),
        backoff=policy.backoff,
        first=min(policy.initial_delay_ms / 1000, MAX_PAUSE),
        most=min(policy.max_delay_ms / 1000, MAX_PAUSE),
        retry_on=default if said is None else tuple(known),
    )
