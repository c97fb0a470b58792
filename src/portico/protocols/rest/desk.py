"""The operator's desk over HTTP: what waits for a person, and the word of whoever may give it. Decides nothing itself.

GET  /desk                             the page; it holds nothing, and all it shows it asks for below
GET  /desk/api/pending?cursor=         what waits: confirmations by the page; challenges and blocks on the first
GET  /desk/api/executions              agents at work
POST /desk/api/executions/{id}/end     {"note": …}; what the agent may do by itself stays as it is
GET  /desk/api/tasks?limit=            the newest tasks of all callers, without what they were given or gave
POST /desk/api/tasks/{id}/cancel       stops one of them, by the id that is shown
GET  /desk/api/sources                 what the site is loaded from, and how fresh that is
POST /desk/api/sources/{number}/reload begins to load one of them again
GET  /desk/api/traffic                 the last hour of this process, by minute
GET  /desk/api/feedback?limit=         what people say of answers, newest first
POST /desk/api/confirmations/{token}   {"decision": "approve" or "reject", "digest": of the call as shown, "note": …}
POST /desk/api/challenges/{id}/code    a fresh code: nothing else that is served ever says one
POST /desk/api/challenges/{id}/verify  {"code": …}
POST /desk/api/agents/unblock          {"caller": …, "note": …}
GET  /desk/api/audit?after=&limit=     the audit trail
GET  /desk/api/audit/check             what is wrong with it, if anything

For holders of a key with the scope `approve`, on this machine unless safety.desk says otherwise. Takes no cookies, and
nothing from pages elsewhere, whatever server.origins says. Errors are problem details (RFC 9457).
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

from portico.access.identity import APPROVE
from portico.access.limits import check_payload, check_text
from portico.config import Config
from portico.conversations.feedback import Noted
from portico.errors import BadRequest, Forbidden, InvalidParams, SiteError, Unauthenticated, UnknownTask
from portico.operations.tasks import shown_id
from portico.protocols.http import caller_of, decode, is_from_elsewhere, is_own_host, read_body
from portico.protocols.rest.operations import Answer, Endpoint, answering, metered, problem
from portico.requests import Caller, Task, TaskState
from portico.safety.models import Challenged, Decision, Execution, PendingApprovals
from portico.site import Site
from portico.sources.refresh import Sources
from portico.telemetry import Traffic
from portico.web.desk import desk_page
from portico.web.home import problem_page
from portico.web.style import ASKING_HEADERS, HEADERS

PATH: Final = "/desk"
API: Final = f"{PATH}/api"
MAX_LINES: Final = 1000  # of the audit trail, in one answer
MAX_TASKS: Final = 200
MAX_OPINIONS: Final = 200
MAX_DIGITS: Final = 15
_UNKEPT: Final = {"cache-control": "no-store"}
_NAMING: Final = ("caller", "by", "agent")  # what in a line of the trail may name a caller
# What those who pass requests on add to them.
_FORWARDED: Final = ("x-forwarded-", "x-real-ip", "forwarded", "via", "cf-", "true-client-ip", "x-client-ip")

T = TypeVar("T")
Note = Annotated[str, Meta(max_length=1000, description="Why; it is kept in the audit trail")]
Names = Annotated[dict[str, str], Meta(description="What the keys of the callers are called")]


class Decided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decision: Decision
    note: Note = ""
    digest: Annotated[
        str, Meta(max_length=64, description="The digest that the call was shown with: another call is not approved")
    ] = ""


class Typed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: Annotated[str, Meta(max_length=200)]


class Unblocked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    caller: Annotated[str, Meta(min_length=1, max_length=300, description="As the block names it")]
    note: Note = ""


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    note: Note = ""


class PendingNamed(PendingApprovals, frozen=True, kw_only=True):
    """What waits for a person, and what the keys of those who want it are called."""

    names: Names


class Issued(msgspec.Struct, frozen=True):
    """A fresh code, for the eyes of whoever asked for it."""

    challenge: Challenged
    code: str


class AtWork(msgspec.Struct, frozen=True):
    """An execution of an agent, and whose it is."""

    caller: str
    execution: Execution


class Executions(msgspec.Struct, frozen=True):
    executions: list[AtWork]
    names: Names


class LineSeen(msgspec.Struct, frozen=True):
    """A line of the audit trail."""

    seq: int
    at: datetime
    event: str
    body: Annotated[dict[str, Any], Meta(description="What happened, by what kind of event it is")]
    before: Annotated[str, Meta(description="The digest of the line before; empty for the first")]
    digest: str


class Trail(msgspec.Struct, frozen=True):
    lines: list[LineSeen]
    names: Names


class Checked(msgspec.Struct, frozen=True):
    problems: Annotated[list[str], Meta(description="Empty when every line follows from the one before")]


class Released(msgspec.Struct, frozen=True):
    unblocked: str


class TaskSeen(msgspec.Struct, frozen=True):
    """A task as somebody sees it whose it is not."""

    id: str  # for telling tasks apart: with the id itself one could be ended
    caller: str
    name: str
    operation: str
    state: TaskState
    progress: float
    message: str
    error: str
    created: datetime
    updated: datetime


class Tasks(msgspec.Struct, frozen=True):
    tasks: list[TaskSeen]


class FeedbackGiven(msgspec.Struct, frozen=True):
    feedback: list[Noted]


def routes(site: Site, config: Config, sources: Sources, traffic: Traffic) -> list[BaseRoute]:
    """The addresses of this face."""
    local_only = config.safety.desk == "local"
    own = msgspec.structs.replace(config.server, origins=())

    async def visitor(connection: HTTPConnection, site: Site) -> Caller:
        """Who comes to the desk. From elsewhere no key is even looked at, so that none can be tried out."""
        address = connection.client.host if connection.client else ""
        # A name that somebody else has pointed at this machine is not this machine.
        is_here = _is_here(connection, address) and is_own_host(connection, own)
        if (local_only and not is_here) or is_from_elsewhere(connection, own):
            await site.gate.spend(site.identity.nobody(address))
            error = Forbidden("The desk is not open to you", hint="The operator decides from where it can be reached.")
            site.refused("desk", error)
            raise error
        return await caller_of(connection, site)

    async def show(_: Request, __: Caller) -> Response:
        return Response(desk_page(site.name), 200, {**ASKING_HEADERS, **_UNKEPT}, "text/html")

    def refused(_: Request, error: SiteError) -> Response:
        told = problem(error)
        page = problem_page(site.name, "Closed", f"{error.message}. {error.hint or ''}")
        headers = {name: value for name, value in told.headers.items() if not name.startswith("content-")}
        return Response(page, told.status_code, {**headers, **HEADERS}, "text/html")

    def behind(endpoint: Endpoint) -> Answer:
        return answering(metered(endpoint, site), site, who=visitor)

    work = (*_decisions(site), *_agents(site), *_trail(site), *_affairs(site, sources, traffic))
    return [
        Route(PATH, answering(metered(show, site), site, refused, who=visitor), methods=["GET"]),
        *(Route(f"{API}/{path}", behind(_for_approvers(each)), methods=[method]) for method, path, each in work),
    ]


Work: TypeAlias = tuple[str, str, Endpoint]  # a method, a path below the API, and what answers there


def _decisions(site: Site) -> list[Work]:
    """What waits for a person, and what a person says to it."""

    async def pending(request: Request, caller: Caller) -> Response:
        cursor = request.query_params.get("cursor", "")
        check_text(cursor, site.limits)
        found = await site.guard.list_pending(caller, cursor)
        known = await _names(site, (each.caller for each in (*found.challenges, *found.blocks)))
        return _json(PendingNamed(**msgspec.structs.asdict(found), names=known))

    async def confirm(request: Request, caller: Caller) -> Response:
        said = await _read(request, site, Decided)
        token = _named(request, "token", site)
        return _json(await site.guard.confirm(token, said.decision, said.note, caller, digest=said.digest))

    async def issue(request: Request, caller: Caller) -> Response:
        challenged, code = await site.guard.reissue(_named(request, "id", site), caller)
        return _json(Issued(challenged, code.revealed()))

    async def verify(request: Request, caller: Caller) -> Response:
        said = await _read(request, site, Typed)
        return _json(await site.guard.verify(_named(request, "id", site), said.code, caller))

    async def unblock(request: Request, caller: Caller) -> Response:
        said = await _read(request, site, Unblocked)
        await site.guard.unblock(said.caller, said.note, caller)
        return _json(Released(said.caller))

    return [
        ("GET", "pending", pending),
        ("POST", "confirmations/{token}", confirm),
        ("POST", "challenges/{id}/code", issue),
        ("POST", "challenges/{id}/verify", verify),
        ("POST", "agents/unblock", unblock),
    ]


def _agents(site: Site) -> list[Work]:
    """What is under way, and ending it."""

    async def executions(_: Request, caller: Caller) -> Response:
        found = [AtWork(*each) for each in await site.guard.executions(caller)]
        return _json(Executions(found, await _names(site, (each.caller for each in found))))

    async def end(request: Request, caller: Caller) -> Response:
        said = await _read(request, site, Ended)
        return _json(AtWork(*await site.guard.end(_named(request, "id", site), said.note, caller)))

    async def tasks(request: Request, _: Caller) -> Response:
        limit = min(_number(request, "limit", 50), MAX_TASKS)
        return _json(Tasks([_seen(each) for each in await site.tasks.recent(limit)]))

    async def cancel(request: Request, caller: Caller) -> Response:
        await site.guard.refuse_blocked(caller)
        id = _named(request, "id", site)
        found = next((each for each in await site.tasks.recent(MAX_TASKS) if shown_id(each.id) == id), None)
        if found is None:
            raise UnknownTask("There is no such task", hint=f"The newest {MAX_TASKS} can be cancelled here.")
        # Said before it is done, so that nothing is done unsaid.
        if not found.state.is_final:
            whose = {"operation": found.call.operation, "caller": found.caller.rate_key}
            await site.guard.note("TASK_CANCELLED", caller, task=id, **whose)
        return _json(_seen(await site.tasks.cancel(found.id, found.caller)))

    return [
        ("GET", "executions", executions),
        ("POST", "executions/{id}/end", end),
        ("GET", "tasks", tasks),
        ("POST", "tasks/{id}/cancel", cancel),
    ]


def _trail(site: Site) -> list[Work]:
    async def audit(request: Request, caller: Caller) -> Response:
        after, limit = _number(request, "after", 0), min(_number(request, "limit", 100), MAX_LINES)
        found = await site.guard.trail(after, limit, caller)
        lines = [LineSeen(each.seq, each.at, each.event, dict(each.body), each.before, each.digest) for each in found]
        told = (str(line.body.get(name)) for line in lines for name in _NAMING)
        return _json(Trail(lines, await _names(site, told)))

    async def check(_: Request, __: Caller) -> Response:
        return _json(Checked(await site.guard.check_trail()))

    return [("GET", "audit", audit), ("GET", "audit/check", check)]


def _affairs(site: Site, sources: Sources, traffic: Traffic) -> list[Work]:
    """How the site is doing: what it is made from, how busy it is, and what people say of it."""

    async def listed(_: Request, __: Caller) -> Response:
        return _json({"sources": await sources.all()})

    async def reload(request: Request, caller: Caller) -> Response:
        await site.guard.refuse_blocked(caller)
        return _json(await sources.reload(_whole(request.path_params["number"], "number")), HTTPStatus.ACCEPTED)

    async def busy(_: Request, __: Caller) -> Response:
        return _json({"at": datetime.now(UTC), "minutes": traffic.minutes()})

    async def feedback(request: Request, _: Caller) -> Response:
        limit = min(_number(request, "limit", 50), MAX_OPINIONS)
        return _json(FeedbackGiven(await site.feedback.all(limit)))

    return [
        ("GET", "sources", listed),
        ("POST", "sources/{number}/reload", reload),
        ("GET", "traffic", busy),
        ("GET", "feedback", feedback),
    ]


def _is_here(connection: HTTPConnection, address: str) -> bool:
    """Whether a request was made on this machine. One that somebody passed on was not, whoever it says it is from."""
    try:
        is_loopback = ip_address(address).is_loopback
    except ValueError:
        return False
    return is_loopback and not any(name.startswith(_FORWARDED) for name in connection.headers)


def _for_approvers(endpoint: Endpoint) -> Endpoint:
    async def asked(request: Request, caller: Caller) -> Response:
        if caller.is_anonymous:
            raise Unauthenticated("The desk requires an API key", hint="Send it as a bearer token.")
        if APPROVE not in caller.scopes:
            raise Forbidden(f"This needs the scope {APPROVE}", scope=APPROVE)
        return await endpoint(request, caller)

    return asked


async def _names(site: Site, told: Iterable[str]) -> dict[str, str]:
    """What the keys of these callers are called by who made them. Not unique: the ids tell them apart."""
    callers = sorted({text.rpartition(" ")[2] for text in told})  # also at the end of `verified by key:2548990428d0`
    keys = {caller: await site.identity.key_of(caller) for caller in callers}
    return {caller: key.name for caller, key in keys.items() if key}


def _named(request: Request, what: str, site: Site) -> str:
    check_text(request.path_params[what], site.limits)
    return request.path_params[what]


async def _read(request: Request, site: Site, kind: type[T]) -> T:
    # A page elsewhere can make a browser send any other kind without asking first.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest("The desk is told JSON", hint="Send `content-type: application/json`.")
    said = decode(await read_body(request, site.limits.payload_bytes), site.limits)
    try:
        read = msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        raise InvalidParams(str(error)) from error
    check_payload(said, site.limits)
    return read


def _number(request: Request, name: str, default: int) -> int:
    return _whole(request.query_params.get(name, str(default)), name)


def _whole(said: str, name: str) -> int:
    if not (said.isascii() and said.isdecimal() and len(said) <= MAX_DIGITS):
        raise BadRequest(f"{name} is a number", parameter=name)
    return int(said)


def _seen(task: Task) -> TaskSeen:
    error = str((task.error or {}).get("message", ""))
    caller, call = task.caller, task.call
    return TaskSeen(
        shown_id(task.id),
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
    return Response(msgspec.json.encode(body), status, _UNKEPT, "application/json")
