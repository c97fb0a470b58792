"""The gateway: turns an invocation into a task for workers (NOP), and a task into a workflow of the site.

The workers are those of this site, in this process or another; nothing is delegated to other sites.
"""

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from portico.catalog import Operation
from portico.errors import InvalidWorkflow
from portico.items import problem_with
from portico.operations.calls import MAX_TIMEOUT
from portico.operations.tasks import short_id
from portico.operations.workflows import (
    MAX_LEVELS,
    MAX_PAUSE,
    MAX_RETRIES,
    MAX_SECONDS,
    MAX_STEPS,
    Edge,
    Retries,
    Workflow,
    WorkflowStep,
)
from portico.protocols.nwp.errors import UnknownAction
from portico.protocols.nwp.frames import Natural, TaskFrame
from portico.protocols.nwp.nodes import Node, NodeAction
from portico.requests import Call, Task
from portico.telemetry import Recorder, StepsDelegated

TIMEOUT_MS: Final = 30_000
MAX_TIMEOUT_MS: Final = int(MAX_SECONDS * 1000)
RETRIES: Final = 2  # default of a step
ONE_STEP: Final = "invoke"  # the id of the only step of an invocation

# The error types to retry, by the codes of the suite. Other errors would only occur again.
RETRYABLE_ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
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
MAX_ACTION: Final = 200  # characters of an action in telemetry
_PARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(-|\Z)")
_TRACE_ID = re.compile(r"[0-9a-f]{32}\Z")

ActionCheck = Callable[[NodeAction], None]


class StepRetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    max_retries: Natural | None = None
    backoff: Literal["fixed", "linear", "exponential"] = "exponential"
    initial_delay_ms: Natural = 1000
    max_delay_ms: Natural = 30_000
    retry_on: tuple[str, ...] | None = None


class DagNode(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    action: str  # a URL, or the id of an action
    agent: str | None = None  # the site chooses its workers itself
    params: dict[str, Any] | None = None
    input_from: tuple[str, ...] | None = None
    input_mapping: dict[str, str | tuple[str, ...]] | None = None
    timeout_ms: Natural | None = None
    retry_policy: StepRetryPolicy | None = None
    condition: str | None = None


class DagEdge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    source: str
    target: str


class Dag(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[DagNode, ...]
    edges: tuple[DagEdge, ...] = ()


class Trace(NamedTuple):
    """A span of a distributed trace (W3C Trace Context)."""

    trace_id: str
    span_id: str
    trace_flags: int = 0


# Invocations to tasks


def single_step_task(call: Call, action: NodeAction, id: str, trace: str) -> TaskFrame:
    """Return an invocation as a task of one step, retried only if it is repeatable."""
    step: dict[str, Any] = {
        "id": ONE_STEP,
        "action": action.id,
        "params": dict(call.params),
        # The caller's timeout belongs to the call: the same call with another timeout is the same task.
        "timeout_ms": int(MAX_TIMEOUT * 1000),
        "retry_policy": {"max_retries": RETRIES if action.operation.is_idempotent else 0},
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
    return add_trace(frame, trace)


def add_trace(frame: TaskFrame, parent: str) -> TaskFrame:
    """Return a task with a span of its own in the sender's trace."""
    context = frame.context or {}
    trace = _trace(context.get("trace_id"), parent)
    return msgspec.structs.replace(frame, context={**context, **trace._asdict()})


def _trace(trace_id: Any, parent: str) -> Trace:
    parent_match = _PARENT.match(parent)
    span = secrets.token_hex(8)
    if isinstance(trace_id, str) and _TRACE_ID.match(trace_id) and int(trace_id, 16):
        return Trace(trace_id, span)
    if parent_match and int(parent_match["trace"], 16) and int(parent_match["span"], 16):
        return Trace(parent_match["trace"], span, int(parent_match["flags"], 16))
    return Trace(secrets.token_hex(16), span)


def delegation_recorder(record: Recorder) -> Callable[[TaskFrame, Task], None]:
    """Return a callback that records every delegated task with its caller and trace."""

    def record_delegation(frame: TaskFrame, task: Task) -> None:
        trace = frame.context or {}
        nodes = (frame.dag or {}).get("nodes", ())
        actions = tuple(str(node["action"])[:MAX_ACTION] for node in nodes)
        record(StepsDelegated(short_id(task.id), actions, trace["trace_id"], trace["span_id"], task.caller.id))

    return record_delegation


# Tasks to steps


def workflow_of(frame: TaskFrame, node: Node, hosts: Collection[str], check: ActionCheck) -> Mapping[str, Any]:
    """Return a task as parameters of `run_workflow`. Checks every action in it, at any depth."""
    if (frame.delegate_depth or 0) >= MAX_LEVELS:
        raise InvalidWorkflow(f"A task may be delegated over at most {MAX_LEVELS} levels", reason="too-deep")
    problem = problem_with("dag", frame.dag or {})
    if problem:
        raise InvalidWorkflow(f"`dag` is invalid: {problem}", reason="invalid")
    try:
        dag = msgspec.convert(frame.dag, Dag)
    except msgspec.ValidationError as error:
        raise InvalidWorkflow(f"`dag` is invalid: {error}", reason="invalid") from error
    if len(dag.nodes) > MAX_STEPS:
        raise InvalidWorkflow(f"A workflow may have at most {MAX_STEPS} steps", reason="too-large", limit=MAX_STEPS)
    edges = tuple(Edge(step.source, step.target) for step in dag.edges)
    # Check the shape of the graph before the actions of its steps.
    Workflow(steps=tuple(_outline(step) for step in dag.nodes), edges=edges)
    seconds = min(frame.timeout_ms or TIMEOUT_MS, MAX_TIMEOUT_MS) / 1000
    retries = RETRIES if frame.max_retries is None else frame.max_retries
    steps = tuple(_step(step, _resolve_action(step, node, hosts), retries) for step in dag.nodes)
    workflow = Workflow(steps=steps, edges=edges, timeout=seconds)
    for action in _actions_in(workflow, node):
        check(action)
    return cast("dict[str, Any]", msgspec.to_builtins(workflow))


def _actions_in(workflow: Workflow, node: Node) -> Iterator[NodeAction]:
    """Yield the actions of a workflow and of the workflows nested in it."""
    offered_actions = {action.operation.name: action for action in node.actions.values()}
    for step in workflow.steps:
        if step.operation not in offered_actions:
            raise UnknownAction(f"{node.name} has no action for {step.operation[:100]!r}", step=step.id)
        yield offered_actions[step.operation]
    for nested in workflow.nested:
        yield from _actions_in(nested, node)


def _resolve_action(step: DagNode, node: Node, hosts: Collection[str]) -> NodeAction:
    id = _action_id(step, hosts) if "://" in step.action else step.action
    action = node.actions.get(id)
    if action is None:
        raise UnknownAction(f"{node.name} has no action {id[:100]!r}", action_id=id[:100], step=step.id[:100])
    return action


def _action_id(step: DagNode, hosts: Collection[str]) -> str:
    """Return the action id in a URL such as nwp://host/rooms-operations/invoke?action=rooms.list."""
    try:
        parts = urlsplit(step.action)
        ids, host = parse_qs(parts.query, max_num_fields=10).get("action", []), parts.hostname
    except ValueError:
        ids, host = [], None
    if len(ids) != 1 or host not in hosts:
        raise UnknownAction(
            f"{step.action[:200]!r} is not an action of this site",
            action_id=step.action[:200],
            step=step.id[:100],
            hint=f"Use an action id, or a URL such as nwp://{min(hosts, default='')}/gateway/invoke?action=….",
        )
    return ids[0]


def _outline(step: DagNode) -> WorkflowStep:
    """Return a step without its operation, to check the shape of the graph."""
    return WorkflowStep(
        id=step.id,
        operation="",
        input_from=step.input_from or (),
        input_mapping=step.input_mapping or {},
        condition=step.condition or "",
    )


def _step(step: DagNode, action: NodeAction, retries: int) -> WorkflowStep:
    return WorkflowStep(
        id=step.id,
        operation=action.operation.name,
        params=step.params or {},
        input_from=step.input_from or (),
        input_mapping=step.input_mapping or {},
        timeout=min(step.timeout_ms, MAX_TIMEOUT_MS) / 1000 if step.timeout_ms else None,
        retries=_retries(step.retry_policy or StepRetryPolicy(), action.operation, retries),
        condition=step.condition or "",
    )


def _retries(policy: StepRetryPolicy, operation: Operation, task_retries: int) -> Retries:
    """Return the retry policy of a step. A timeout may hide a success, so only a repeatable action is retried then."""
    codes = policy.retry_on
    again = ("TimedOut", "OperationFailed") if operation.is_idempotent else ()
    default = ("Unavailable", "RateLimited", *again)
    errors = dict.fromkeys(error for code in codes or () for error in RETRYABLE_ERRORS.get(code, ()))
    return Retries(
        max=min(task_retries if policy.max_retries is None else policy.max_retries, MAX_RETRIES),
        backoff=policy.backoff,
        first=min(policy.initial_delay_ms / 1000, MAX_PAUSE),
        most=min(policy.max_delay_ms / 1000, MAX_PAUSE),
        retry_on=default if codes is None else tuple(errors),
    )
