"""The tasks extension (SEP-2663): a long call returns a task, which is a task of the site.

Nothing is stored here. A task never waits for input: all questions are asked before it begins.
"""

import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from starlette.requests import Request

from portico.errors import TaskCancelled, Unavailable
from portico.operations.builtin import render_task
from portico.protocols.mcp.elicitation import Context, is_modern
from portico.protocols.mcp.tools import Tools
from portico.protocols.problems import CODES
from portico.protocols.rendering import members
from portico.requests import Call, Caller, Outcome, Task, TaskState
from portico.site import Site

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS = 1000
STATUSES: Mapping[str, types.TaskStatus] = {
    TaskState.PENDING: "working",
    TaskState.RUNNING: "working",
    TaskState.COMPLETED: "completed",
    # An error of a tool is its result. The task failed only if the site did.
    TaskState.FAILED: "completed",
    TaskState.CANCELLED: "cancelled",
}


class McpTaskParams(types.RequestParams):
    task_id: str


def is_wanted(context: Context) -> bool:
    """Return whether the client accepts a task instead of a result."""
    capabilities = context.session.client_capabilities
    return is_modern(context) and EXTENSION in ((capabilities and capabilities.extensions) or {})


def task_result(task: Task) -> dict[str, Any]:
    """Return the task that a call gives instead of its result."""
    return {"resultType": "task", **_task_body(render_task(task))}


async def get(site: Site, tools: Tools, caller: Caller, context: Context, params: McpTaskParams) -> dict[str, Any]:
    _check(context, params)
    body = _task_body(await _get_task(site, caller, params.task_id))
    if body["status"] != "completed":
        return body
    result = await tools.task_result(params.task_id, caller, context)
    error: dict[str, Any] = members(result.structured_content).get("error", {})
    if error.get("code") == CODES[Unavailable]:
        return {**body, "status": "failed", "error": {"code": types.INTERNAL_ERROR, "message": error["message"]}}
    return {**body, "result": result.model_dump(by_alias=True, mode="json", exclude_none=True)}


async def update(site: Site, caller: Caller, context: Context, params: McpTaskParams) -> dict[str, Any]:
    _check(context, params)
    await _get_task(site, caller, params.task_id)
    return {}


async def cancel(site: Site, caller: Caller, context: Context, params: McpTaskParams) -> dict[str, Any]:
    _check(context, params)
    with contextlib.suppress(TaskCancelled):
        await site.task_events(params.task_id, caller, cancel=True)
    return {}


def _check(context: Context, params: McpTaskParams) -> None:
    if not is_modern(context):
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
    if not is_wanted(context):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"This needs the extension {EXTENSION}", needed)
    header = cast("Request", context.request).headers.get("mcp-name") if context.request else None
    if header is not None and header != params.task_id:
        raise MCPError(types.HEADER_MISMATCH, "Mcp-Name must be the same task as in the request")


async def _get_task(site: Site, caller: Caller, id: str) -> dict[str, Any]:
    """Return a task of this caller, through an operation, so that rights are checked."""
    outcome = await site.call(Call("get_task", {"id": id}, run="now"), caller)
    return cast("dict[str, Any]", cast("Outcome", outcome).result)


def _task_body(task: Mapping[str, Any]) -> dict[str, Any]:
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


def _instant(timestamp: str) -> str:
    return datetime.fromisoformat(timestamp).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
