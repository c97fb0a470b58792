"""The operations on tasks, and the one that runs a workflow: every site has them."""

from typing import Any

import msgspec

from portico.catalog import Kind, Operation
from portico.operations import Context
from portico.operations.tasks import TaskManager
from portico.operations.workflows import RUN, Workflow, WorkflowResult, Workflows
from portico.requests import Task


class TaskParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


def render_task(task: Task) -> dict[str, Any]:
    """Return a task as plain JSON."""
    return {
        "id": task.id,
        "operation": task.call.operation,
        "state": task.state.value,
        "progress": round(task.progress, 4),
        "message": task.message,
        "created": task.created.isoformat(),
        "updated": task.updated.isoformat(),
        "estimate": task.estimate,
        "result": task.result,
        "error": task.error,
    }


def task_operations(tasks: TaskManager) -> list[Operation]:
    async def get_task(context: Context, params: TaskParams) -> dict[str, Any]:
        return render_task(await tasks.get(params.id, context.caller))

    async def cancel_task(context: Context, params: TaskParams) -> dict[str, Any]:
        return render_task(await tasks.cancel(params.id, context.caller))

    result = dict[str, Any]
    return [
        Operation("get_task", Kind.READ, "How a task is getting on.", TaskParams, result, get_task, open=True),
        Operation("cancel_task", Kind.EXECUTE, "Stop a task of your own.", TaskParams, result, cancel_task, open=True),
    ]


def workflow_operation(workflows: Workflows) -> Operation:
    return Operation(
        RUN,
        Kind.EXECUTE,
        "Run operations that depend on each other, each with what others gave.",
        Workflow,
        WorkflowResult,
        workflows.run,
        open=True,  # each step passes the gate by itself
        long=True,
        attempts=3,
    )
