"""The tasks extension (SEP-2663): a call that takes long gives a task, which is a task of the site.

Nothing is kept here. A task never waits for input: what must be asked back is asked before it begins.
"""

import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from starlette.requests import Request

from portico.errors import TaskCancelled
from portico.protocols.mcp.elicitation import Context, is_modern
from portico.protocols.mcp.tools import Tools
from portico.protocols.nlweb.errors import INTERNAL
from portico.protocols.nlweb.item_rendering import members
from portico.requests import Call, Caller, Outcome, Task, TaskState
from portico.site import Site, shown_task

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS = 1000
STATUSES: Mapping[str, types.TaskStatus] = {
    TaskState.PENDING: "working",
    TaskState.RUNNING: "working",
    TaskState.COMPLETED: "completed",
    # What a tool could not do is its result. It failed only if the site did.
    TaskState.FAILED: "completed",
    TaskState.CANCELLED: "cancelled",
}


class TaskParams(types.RequestParams):
    task_id: str


def is_wanted(context: Context) -> bool:
    """Whether the client can be given a task instead of a result."""
    capabilities = context.session.client_capabilities
    return is_modern(context) and EXTENSION in ((capabilities and capabilities.extensions) or {})


def begun(task: Task) -> dict[str, Any]:
    """What a call gives instead of its result."""
    return {"resultType": "task", **_shown(shown_task(task))}


async def get(site: Site, tools: Tools, caller: Caller, context: Context, params: TaskParams) -> dict[str, Any]:
    _check(context, params)
    told = _shown(await _found(site, caller, params.task_id))
    if told["status"] != "completed":
        return told
    result = await tools.finished(params.task_id, caller, context)
    error: dict[str, Any] = members(result.structured_content).get("error", {})
    if error.get("code") == INTERNAL.code:
        return {**told, "status": "failed", "error": {"code": types.INTERNAL_ERROR, "message": error["message"]}}
    return {**told, "result": result.model_dump(by_alias=True, mode="json", exclude_none=True)}


async def update(site: Site, caller: Caller, context: Context, params: TaskParams) -> dict[str, Any]:
    _check(context, params)
    await _found(site, caller, params.task_id)
    return {}


async def cancel(site: Site, caller: Caller, context: Context, params: TaskParams) -> dict[str, Any]:
    _check(context, params)
    with contextlib.suppress(TaskCancelled):
        await site.awaited(params.task_id, caller, cancel=True)
    return {}


def _check(context: Context, params: TaskParams) -> None:
    if not is_modern(context):
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
    if not is_wanted(context):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"This needs the extension {EXTENSION}", needed)
    named = cast("Request", context.request).headers.get("mcp-name") if context.request else None
    if named is not None and named != params.task_id:
        raise MCPError(types.HEADER_MISMATCH, "Mcp-Name is another task than the request is about")


async def _found(site: Site, caller: Caller, id: str) -> dict[str, Any]:
    """A task of this caller, through an operation, so that the gate is asked."""
    outcome = await site.call(Call("get_task", {"id": id}, run="now"), caller)
    return cast("dict[str, Any]", cast("Outcome", outcome).result)


def _shown(task: Mapping[str, Any]) -> dict[str, Any]:
    message = {"statusMessage": task["message"]} if task["message"] else {}
    return {
        "taskId": task["id"],
        "status": STATUSES[task["state"]],
        **message,
        "createdAt": _instant(task["created"]),
        "lastUpdatedAt": _instant(task["updated"]),
        "ttlMs": None,  # kept for good
        "pollIntervalMs": POLL_MILLISECONDS,
    }


def _instant(said: str) -> str:
    return datetime.fromisoformat(said).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
