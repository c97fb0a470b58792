"""The operator's desk over HTTP: approvals, agents, tasks and the audit trail.

GET  /desk                             the page; it gets all its data from the endpoints below
GET  /desk/api/pending?cursor=         pending confirmations by page; challenges and blocks on the first page
GET  /desk/api/executions              agents at work
POST /desk/api/executions/{id}/end     {"note": …}; the agent's autonomy does not change
GET  /desk/api/tasks?limit=            the newest tasks of all callers, without parameters and results
POST /desk/api/tasks/{id}/cancel       cancel one of them, by its displayed id
GET  /desk/api/sources                 the sources of the site, and when they were loaded
POST /desk/api/sources/{number}/reload start loading one of them again
GET  /desk/api/traffic                 the last hour of this process, by minute
GET  /desk/api/feedback?limit=         feedback on answers, newest first
POST /desk/api/confirmations/{token}   {"decision": "approve" or "reject", "digest": of the call as shown, "note": …}
POST /desk/api/challenges/{id}/code    a fresh code; no other endpoint ever returns one
POST /desk/api/challenges/{id}/verify  {"code": …}
POST /desk/api/agents/unblock          {"caller": …, "note": …}
GET  /desk/api/audit?after=&limit=     the audit trail
GET  /desk/api/audit/check             problems with the trail, if any

For keys with the scope `approve`, on this machine unless safety.desk says otherwise. Accepts no cookies, and no
requests from other origins, whatever server.origins says. Errors are problem details (RFC 9457).
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from portico.access.identity import APPROVE
from portico.access.limits import check_payload, check_text
from portico.config import Config
from portico.conversations.feedback import Noted
from portico.errors import BadRequest, Forbidden, InvalidParams, SiteError, Unauthenticated, UnknownTask
from portico.operations.tasks import short_id
from portico.protocols.edge import EdgePolicy
from portico.protocols.http import decode, is_from_elsewhere, is_own_host, read_body
from portico.protocols.problems import Endpoint, make_handler, problem
from portico.requests import Caller, Task, TaskState
from portico.safety.models import Decision, Execution, PendingApprovals, PendingChallenge
from portico.site import Site
from portico.sources.refresh import SourceManager
from portico.telemetry import TrafficHistory
from portico.web.home import problem_page
from portico.web.style import APP_HEADERS, HEADERS
from portico.web.tools import desk_page

PATH: Final = "/desk"
API: Final = f"{PATH}/api"
MAX_LINES: Final = 1000  # of the audit trail, in one answer
MAX_TASKS: Final = 200
MAX_FEEDBACK: Final = 200
MAX_DIGITS: Final = 15
_NO_STORE: Final = {"cache-control": "no-store"}
_CALLER_MEMBERS: Final = ("caller", "by", "agent")  # members of a line that may name a caller
# Headers that proxies add.
_FORWARDED: Final = ("x-forwarded-", "x-real-ip", "forwarded", "via", "cf-", "true-client-ip", "x-client-ip")

T = TypeVar("T")
Note = Annotated[str, Meta(max_length=1000, description="Why; it is kept in the audit trail")]
Names = Annotated[dict[str, str], Meta(description="What the keys of the callers are called")]


class DecisionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decision: Decision
    note: Note = ""
    digest: Annotated[
        str, Meta(max_length=64, description="The digest that the call was shown with: another call is not approved")
    ] = ""


class CodeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: Annotated[str, Meta(max_length=200)]


class UnblockBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    caller: Annotated[str, Meta(min_length=1, max_length=300, description="As the block names it")]
    note: Note = ""


class EndBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    note: Note = ""


class PendingPage(PendingApprovals, frozen=True, kw_only=True):
    """A page of pending approvals, and the names of the callers' keys."""

    names: Names


class IssuedCode(msgspec.Struct, frozen=True):
    """A fresh code, for the operator who requested it."""

    challenge: PendingChallenge
    code: str


class RunningExecution(msgspec.Struct, frozen=True):
    """An execution of an agent, and its caller."""

    caller: str
    execution: Execution


class Executions(msgspec.Struct, frozen=True):
    executions: list[RunningExecution]
    names: Names


class AuditLine(msgspec.Struct, frozen=True):
    """A line of the audit trail."""

    seq: int
    at: datetime
    event: str
    body: Annotated[dict[str, Any], Meta(description="What happened, by what kind of event it is")]
    before: Annotated[str, Meta(description="The digest of the line before; empty for the first")]
    digest: str


class AuditTrail(msgspec.Struct, frozen=True):
    lines: list[AuditLine]
    names: Names


class TrailCheck(msgspec.Struct, frozen=True):
    problems: Annotated[list[str], Meta(description="Empty when every line follows from the one before")]


class UnblockResult(msgspec.Struct, frozen=True):
    unblocked: str


class TaskSummary(msgspec.Struct, frozen=True):
    """A task as the operator sees it."""

    id: str  # a digest: with the id itself a task could be cancelled
    caller: str
    name: str
    operation: str
    state: TaskState
    progress: float
    message: str
    error: str
    created: datetime
    updated: datetime


class TaskList(msgspec.Struct, frozen=True):
    tasks: list[TaskSummary]


class FeedbackList(msgspec.Struct, frozen=True):
    feedback: list[Noted]


def routes(site: Site, config: Config, sources: SourceManager, traffic: TrafficHistory) -> list[BaseRoute]:
    """Return the routes of this protocol."""

    async def show(_: Request, __: Caller) -> Response:
        return Response(desk_page(site.name), 200, {**APP_HEADERS, **_NO_STORE}, "text/html")

    def render_page(request: Request, error: SiteError) -> Response:
        return render_error(site.name, request.scope, error)

    work = (*_decisions(site), *_agents(site), *_trail(site), *_health(site, sources, traffic))
    return [
        Route(PATH, make_handler(show, render_page), methods=["GET"]),
        *(
            Route(f"{API}/{path}", make_handler(_for_approvers(handle)), methods=[method])
            for method, path, handle in work
        ),
    ]


def edge_policy(config: Config) -> EdgePolicy:
    """Return how the edge admits requests to /desk: from other places keys are not checked, so none can be guessed."""
    local_only = config.safety.desk == "local"
    own = msgspec.structs.replace(config.server, origins=())

    def check(connection: HTTPConnection) -> None:
        address = connection.client.host if connection.client else ""
        # A foreign domain that was pointed at this machine is not this machine.
        is_here = _is_here(connection, address) and is_own_host(connection, own)
        if (local_only and not is_here) or is_from_elsewhere(connection, own):
            raise Forbidden(
                "You may not open the desk from here", hint="The operator decides from where it can be reached."
            )

    return EdgePolicy(check=check)


def render_error(site_name: str, scope: Scope, error: SiteError) -> Response:
    """Return a page for the page, and problem details for what it asks."""
    response = problem(error)
    if scope["path"] != PATH:
        return response
    page = problem_page(site_name, "Closed", f"{error.message}. {error.hint or ''}")
    headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
    return Response(page, response.status_code, {**headers, **HEADERS}, "text/html")


Work: TypeAlias = tuple[str, str, Endpoint]  # a method, a path below the API, and what answers there


def _decisions(site: Site) -> list[Work]:
    """Return the endpoints for pending approvals and the decisions on them."""

    async def list_pending(request: Request, caller: Caller) -> Response:
        cursor = request.query_params.get("cursor", "")
        check_text(cursor, site.limits)
        page = await site.supervision.list_pending(caller, cursor)
        names = await _names(site, (entry.caller for entry in (*page.challenges, *page.blocks)))
        return _json(PendingPage(**msgspec.structs.asdict(page), names=names))

    async def confirm(request: Request, caller: Caller) -> Response:
        body = await _read(request, site, DecisionBody)
        token = _path_text(request, "token", site)
        return _json(await site.supervision.confirm(token, body.decision, body.note, caller, digest=body.digest))

    async def issue(request: Request, caller: Caller) -> Response:
        challenge, code = await site.supervision.reissue(_path_text(request, "id", site), caller)
        return _json(IssuedCode(challenge, code.reveal()))

    async def verify(request: Request, caller: Caller) -> Response:
        body = await _read(request, site, CodeBody)
        return _json(await site.supervision.verify(_path_text(request, "id", site), body.code, caller))

    async def unblock(request: Request, caller: Caller) -> Response:
        body = await _read(request, site, UnblockBody)
        await site.supervision.unblock(body.caller, body.note, caller)
        return _json(UnblockResult(body.caller))

    return [
        ("GET", "pending", list_pending),
        ("POST", "confirmations/{token}", confirm),
        ("POST", "challenges/{id}/code", issue),
        ("POST", "challenges/{id}/verify", verify),
        ("POST", "agents/unblock", unblock),
    ]


def _agents(site: Site) -> list[Work]:
    """Return the endpoints for agents and tasks under way."""

    async def executions(_: Request, caller: Caller) -> Response:
        running = [RunningExecution(*execution) for execution in await site.supervision.executions(caller)]
        return _json(Executions(running, await _names(site, (execution.caller for execution in running))))

    async def end(request: Request, caller: Caller) -> Response:
        body = await _read(request, site, EndBody)
        return _json(RunningExecution(*await site.supervision.end(_path_text(request, "id", site), body.note, caller)))

    async def tasks(request: Request, _: Caller) -> Response:
        limit = min(_number(request, "limit", 50), MAX_TASKS)
        return _json(TaskList([_task_summary(task) for task in await site.tasks.recent(limit)]))

    async def cancel(request: Request, caller: Caller) -> Response:
        await site.supervision.refuse_blocked(caller)
        id = _path_text(request, "id", site)
        task = next(
            (candidate for candidate in await site.tasks.recent(MAX_TASKS) if short_id(candidate.id) == id), None
        )
        if task is None:
            raise UnknownTask("There is no such task", hint=f"The newest {MAX_TASKS} can be cancelled here.")
        # Recorded before it is done, so that nothing is done without a record.
        if not task.state.is_final:
            whose = {"operation": task.call.operation, "caller": task.caller.rate_key}
            await site.supervision.note("TASK_CANCELLED", caller, task=id, **whose)
        return _json(_task_summary(await site.tasks.cancel(task.id, task.caller)))

    return [
        ("GET", "executions", executions),
        ("POST", "executions/{id}/end", end),
        ("GET", "tasks", tasks),
        ("POST", "tasks/{id}/cancel", cancel),
    ]


def _trail(site: Site) -> list[Work]:
    async def audit(request: Request, caller: Caller) -> Response:
        after, limit = _number(request, "after", 0), min(_number(request, "limit", 100), MAX_LINES)
        records = await site.supervision.trail(after, limit, caller)
        lines = [
            AuditLine(record.seq, record.at, record.event, dict(record.body), record.before, record.digest)
            for record in records
        ]
        callers = (str(line.body.get(name)) for line in lines for name in _CALLER_MEMBERS)
        return _json(AuditTrail(lines, await _names(site, callers)))

    async def check(_: Request, __: Caller) -> Response:
        return _json(TrailCheck(await site.supervision.check_trail()))

    return [("GET", "audit", audit), ("GET", "audit/check", check)]


def _health(site: Site, sources: SourceManager, traffic: TrafficHistory) -> list[Work]:
    """Return the endpoints for sources, traffic and feedback."""

    async def list_sources(_: Request, __: Caller) -> Response:
        return _json({"sources": await sources.all()})

    async def reload(request: Request, caller: Caller) -> Response:
        await site.supervision.refuse_blocked(caller)
        return _json(await sources.reload(_parse_number(request.path_params["number"], "number")), HTTPStatus.ACCEPTED)

    async def get_traffic(_: Request, __: Caller) -> Response:
        return _json({"at": datetime.now(UTC), "minutes": traffic.minutes()})

    async def feedback(request: Request, _: Caller) -> Response:
        limit = min(_number(request, "limit", 50), MAX_FEEDBACK)
        return _json(FeedbackList(await site.feedback.all(limit)))

    return [
        ("GET", "sources", list_sources),
        ("POST", "sources/{number}/reload", reload),
        ("GET", "traffic", get_traffic),
        ("GET", "feedback", feedback),
    ]


def _is_here(connection: HTTPConnection, address: str) -> bool:
    """Return whether a request was made on this machine. One that a proxy forwarded was not."""
    try:
        is_loopback = ip_address(address).is_loopback
    except ValueError:
        return False
    return is_loopback and not any(name.startswith(_FORWARDED) for name in connection.headers)


def _for_approvers(endpoint: Endpoint) -> Endpoint:
    async def handle(request: Request, caller: Caller) -> Response:
        if caller.is_anonymous:
            raise Unauthenticated("The desk requires an API key", hint="Send it as a bearer token.")
        if APPROVE not in caller.scopes:
            raise Forbidden(f"This requires the scope `{APPROVE}`", scope=APPROVE)
        return await endpoint(request, caller)

    return handle


async def _names(site: Site, texts: Iterable[str]) -> dict[str, str]:
    """Return the names of these callers' keys. Names are not unique; the ids are."""
    callers = sorted({text.rpartition(" ")[2] for text in texts})  # also at the end of `verified by key:2548990428d0`
    keys = {caller: await site.identity.find_key_of(caller) for caller in callers}
    return {caller: key.name for caller, key in keys.items() if key}


def _path_text(request: Request, what: str, site: Site) -> str:
    check_text(request.path_params[what], site.limits)
    return request.path_params[what]


async def _read(request: Request, site: Site, kind: type[T]) -> T:
    # Another page can make a browser send any other content type without a preflight.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest("This endpoint accepts `application/json` only", hint="Send `content-type: application/json`.")
    raw = decode(await read_body(request, site.limits.payload_bytes), site.limits)
    try:
        body = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InvalidParams(str(error)) from error
    check_payload(raw, site.limits)
    return body


def _number(request: Request, name: str, default: int) -> int:
    return _parse_number(request.query_params.get(name, str(default)), name)


def _parse_number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise BadRequest(f"`{name}` must be a number", parameter=name)
    return int(text)


def _task_summary(task: Task) -> TaskSummary:
    error = str((task.error or {}).get("message", ""))
    caller, call = task.caller, task.call
    return TaskSummary(
        short_id(task.id),
        caller.id,
        caller.name,
        call.operation,
        task.state,
        round(task.progress, 4),
        task.message,
        error,
        task.created,
        task.updated,
    )


def _json(body: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(body), status, _NO_STORE, "application/json")
