"""`portico ask`: a person at a terminal talks with a site, here or on a server. Shows what comes; decides nothing.

Both kinds of site are asked in the same way, over NLWeb: one that is opened in this process answers without a network.
"""

import asyncio
import importlib
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import asdict
from math import isfinite
from typing import Any, TypeVar, cast

import httpx
from starlette.types import ASGIApp, Message, Scope

from portico.cli.terminal import Bar, err, out, plain, print_json
from portico.client import (
    Answer,
    AskFailed,
    AsyncClient,
    BadAnswer,
    Carrier,
    ClientError,
    Completed,
    Elicitation,
    Event,
    Item,
    ItemFound,
    NotReached,
    Options,
    Promise,
    Question,
    Response,
    Started,
    Summary,
    Understood,
)
from portico.config import Config
from portico.errors import (
    BadRequest,
    ConfigError,
    Forbidden,
    InvalidQuery,
    NotFound,
    OperationFailed,
    RateLimited,
    SiteError,
    TaskCancelled,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnknownTask,
    Unsupported,
)
from portico.protocols.http import CALLER
from portico.requests import Caller
from portico.server.assembly import Parts, opened_site
from portico.server.http import application
from portico.telemetry import quiet

T = TypeVar("T")
LEAVE_SECONDS = 5.0  # that an application has to end what nobody waits for any more
MAX_SHOWN = 200  # characters of a description
MAX_NAMED = 4  # collections

ERRORS: dict[str, type[SiteError]] = {
    "INVALID_QUERY": InvalidQuery,
    "TOKEN_LIMIT": TooLarge,
    "NOT_FOUND": NotFound,
    "UNKNOWN_PROMISE": UnknownTask,
    "UNAUTHENTICATED": Unauthenticated,
    "FORBIDDEN": Forbidden,
    "RATE_LIMITED": RateLimited,
    "CANCELLED": TaskCancelled,
    "TIMEOUT": TimedOut,
    "UNSUPPORTED_FORMAT": Unsupported,
    "UNSUPPORTED_MODE": Unsupported,
    "HTTP_401": Unauthenticated,
    "HTTP_403": Forbidden,
    "HTTP_404": NotFound,
    "HTTP_429": RateLimited,
}

Opening = AbstractAsyncContextManager[AsyncClient]


# Whom to ask, and which way

WAYS: Mapping[str, tuple[str, str]] = {
    "mcp": ("portico.client.transports.mcp", "McpCarrier"),
    "a2a": ("portico.client.transports.a2a", "A2aCarrier"),
}


def carrier(over: str) -> Callable[[httpx.AsyncClient], Carrier] | None:
    """The way to ask by this name; none for plain HTTP. The SDK of a way takes a second to load."""
    if over == "http":
        return None
    # What the SDKs log, without handlers of their own, lands on the terminal; errors tell it better.
    quiet(over)
    module, name = WAYS[over]
    return getattr(importlib.import_module(module), name)


@asynccontextmanager
async def asked_there(url: str, api_key: str | None, over: str = "http") -> AsyncGenerator[AsyncClient]:
    """A server that is running."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r} is not the address of a server", hint="Write http://127.0.0.1:8000.")
    try:
        client = AsyncClient(url, api_key=api_key, carrier=carrier(over))
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        raise ConfigError(f"The address or the key cannot be used: {error}") from error
    async with client:
        yield client


@asynccontextmanager
async def asked_here(
    config: Config, collections: Sequence[str], caller: Callable[[Parts], Awaitable[Caller]], over: str = "http"
) -> AsyncGenerator[AsyncClient]:
    """A site that is opened in this process, which does its long work too."""
    async with opened_site(config, serves=False) as parts:
        await parts.index.start()
        for name in collections:
            parts.site.catalog.collection(name)  # raises if there is none
        app = application(parts)
        line = InProcess(app, await caller(parts))
        server = config.server
        url = server.url or f"http://{server.host}:{server.port}"
        try:
            async with AsyncClient(url, transport=line, carrier=carrier(over)) as client:
                yield client
        finally:
            await app.close()


class InProcess(httpx.AsyncBaseTransport):
    """Carries requests to an application as a server would: bodies stream, and it is told when the client leaves."""

    def __init__(self, app: ASGIApp, caller: Caller) -> None:
        self._app = app
        self._caller = caller

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(await request.aread())
        try:
            begin = await exchange.begin(self._app, self._scope(request))
        except BaseException:
            await exchange.aclose()
            raise
        return httpx.Response(begin["status"], headers=begin["headers"], stream=exchange)

    def _scope(self, request: httpx.Request) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path,
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, request.url.port),
            "client": None,
            CALLER: self._caller,
        }


class _Exchange(httpx.AsyncByteStream):
    """One request and the response to it. Closing it is leaving; raises what the application raised."""

    def __init__(self, body: bytes) -> None:
        self._requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._responses: asyncio.Queue[Message | None] = asyncio.Queue()
        self._left = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def begin(self, app: ASGIApp, scope: Scope) -> Message:
        self._work = asyncio.create_task(self._run(app, scope))
        return await self._next()

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._responses.put)
        finally:
            self._responses.put_nowait(None)

    async def _receive(self) -> Message:
        if self._requests:
            return self._requests.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _next(self) -> Message:
        message = await self._responses.get()
        if message is None:
            raise httpx.RemoteProtocolError("the application broke off")
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._next()
            more = message.get("more_body", False)
            yield message.get("body", b"")

    async def aclose(self) -> None:
        self._left.set()
        if self._work is None:
            return
        await asyncio.wait({self._work}, timeout=LEAVE_SECONDS)
        self._work.cancel()
        with suppress(asyncio.CancelledError):
            await self._work


# The conversation


def converse(opening: Opening, question: str | None, options: Options, *, as_json: bool) -> None:
    """Ask one question, or without one as many as the person has."""
    if question is None and not _is_interactive():
        raise BadRequest("There is no question", hint='Write portico ask "…", or run it on a terminal.')
    try:
        with asyncio.Runner() as runner:
            client = runner.run(cast("Coroutine[Any, Any, AsyncClient]", opening.__aenter__()))
            try:
                talk = Talk(runner, client, options, quiet=as_json)
                _talk(talk, question, as_json)
            finally:
                runner.run(cast("Coroutine[Any, Any, Any]", opening.__aexit__(None, None, None)))
    except ClientError as error:
        raise as_site_error(error) from error


def _talk(talk: "Talk", question: str | None, as_json: bool) -> None:
    if question is None:
        talk.go_on()
    elif as_json:
        talk.print(question)
    else:
        talk.turn(question)


def as_site_error(error: ClientError) -> SiteError:
    """What went wrong, as the rest of the command line says it."""
    match error:
        case AskFailed(code=code, message=message):
            return ERRORS.get(code, OperationFailed)(message or code, code=code)
        case NotReached() | BadAnswer():
            return Unavailable(str(error), hint="Is this the address of a running server that speaks NLWeb?")
        case _:
            return SiteError(str(error))


class Talk:
    """Turns of a conversation. Runs the event loop only while something is awaited, so that Ctrl-C is an exception."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient, options: Options, *, quiet: bool) -> None:
        self._runner = runner
        self._client = client
        self._conversation = client.conversation()
        self._options: Options = options
        self._quiet = quiet
        self._understood = Understood()

    def go_on(self) -> None:
        """Question after question, until an empty one."""
        err.print("[dim]Ask in plain words. An empty line ends.[/]")
        while question := _read_line("[bold]?[/] "):
            try:
                self.turn(question)
            except ClientError as error:
                err.print(f"[bold red]Error:[/] {plain(as_site_error(error))}", highlight=False)
            except KeyboardInterrupt:
                err.print("[dim]Stopped.[/]")
            self._options = {**self._options, "previous": ()}  # from now on the conversation knows

    def turn(self, question: str) -> None:
        """One question, with what is asked back and waited for, up to its answer."""
        found = self._run(self._follow(self._conversation.stream(question, **self._options), question))
        while not isinstance(found, Answer):
            if isinstance(found, Promise):
                found = self._kept(found)
                continue
            if not _is_interactive():
                show_questions(found)
                return
            answers = ask_back(found)
            found = self._run(self._follow(self._conversation.stream_answer(found, answers), question))
        show_end(found)

    def print(self, question: str) -> None:
        """One question, answered as JSON. Nobody is there to be asked back."""
        found = self._run(self._conversation.ask(question, **self._options))
        if isinstance(found, Promise):
            found = self._waited(found)
        print_json(as_json(found))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _follow(self, events: AsyncGenerator[Event], question: str) -> Response:
        async with aclosing(events):
            async for event in events:
                match event:
                    case Started(understood):
                        self._show_understood(understood, question)
                    case ItemFound(item=item):
                        show_item(item)
                    case Summary(text):
                        out.print(f"{plain(text)}\n", highlight=False)
                    case Completed(answer):
                        return answer
                    case Elicitation() | Promise():
                        return event
        raise BadAnswer("The answer has no end")

    def _show_understood(self, understood: Understood, question: str) -> None:
        """In a dim line, unless it was said before."""
        line = understanding(understood, question)
        if line and understood != self._understood:
            err.print(f"[dim]{plain(line)}[/]", highlight=False, soft_wrap=True)
        self._understood = understood

    def _kept(self, promise: Promise) -> Response:
        """What was promised, shown as it would have been at once."""
        found = self._waited(promise)
        if isinstance(found, Answer):
            for item in found.items:
                show_item(item)
            if found.summary:
                out.print(plain(found.summary), highlight=False)
        return found

    def _waited(self, promise: Promise) -> Response:
        try:
            return self._watched(promise)
        except KeyboardInterrupt:
            found = self._run(self._client.cancel(promise))
        if isinstance(found, Answer):
            return found  # it was done meanwhile
        err.print("Cancelled.")
        raise KeyboardInterrupt

    def _watched(self, promise: Promise) -> Response:
        if not self._quiet:
            err.print(f"[dim]{plain(promise.message or 'This takes a while')}. Ctrl-C cancels it.[/]", highlight=False)
        with Bar("waiting", self._quiet) as bar:

            def told(now: Promise) -> None:
                bar.share(round(min(max(now.progress or 0.0, 0.0), 1.0) * 100), 100, 0.0, now.message or None)

            return self._run(self._client.wait(promise, told))


# What is shown


def understanding(understood: Understood, question: str) -> str:
    """What the question was taken to mean, in a line."""
    parts = [f"“{understood.text}”"] if understood.text not in {"", question} else []
    if len(understood.collections) <= MAX_NAMED:
        parts.extend(f"in {name}" for name in [", ".join(understood.collections)] if name)
    else:
        parts.append(f"in {len(understood.collections)} collections")
    parts.extend(each.says for each in understood.constraints)
    if understood.ignored:
        parts.append(f"ignored: {', '.join(understood.ignored)}")
    return " · ".join(parts)


def show_item(item: Item) -> None:
    score = "" if item.score is None else f"{item.score:.0f}"
    told = "  ".join(each for each in (item.id, score, " · ".join(facts(item))) if each)
    out.print(f"[bold]{plain(item.name or item.id)}[/]  [dim]{plain(told)}[/]", highlight=False, soft_wrap=True)
    if item.description:
        out.print(f"  {plain(' '.join(item.description.split())[:MAX_SHOWN])}", highlight=False)
    if "result" in item.data:  # of an operation that was run
        print_json(item.data["result"])
    if item.actions:
        names = dict.fromkeys(action.name for action in item.actions)
        out.print(f"  [dim]→ {plain(', '.join(names))}[/]", highlight=False)


def show_end(answer: Answer) -> None:
    if not answer.items and not answer.summary:
        err.print("Nothing fits.")
    for note in (*answer.notes, *(str(each) for each in answer.troubles)):
        err.print(f"[yellow]{plain(note)}[/]", highlight=False, soft_wrap=True)
    if answer.cost.get("calls"):
        calls, tokens = answer.cost["calls"], answer.cost.get("prompt_tokens", 0)
        times = "1 call" if calls == 1 else f"{plain(calls)} calls"
        err.print(f"[dim]{times} of a language model, {plain(tokens)} tokens read[/]", highlight=False)


def show_questions(elicitation: Elicitation) -> None:
    """What is asked back, for somebody who cannot be waited for."""
    if elicitation.text:
        out.print(plain(elicitation.text), highlight=False)
    for question in elicitation.questions:
        options = f" ({', '.join(question.options)})" if question.options else ""
        out.print(f"- {plain(question.text + options)}", highlight=False)
    err.print("[dim]Ask again and say this too, or ask on a terminal.[/]")


def facts(item: Item) -> list[str]:
    """What helps to choose: the type, and time, price and rating where there are any."""
    data = item.data
    rating = _first(data.get("aggregateRating")).get("ratingValue")
    found = [
        "" if item.type == "Thing" else item.type,
        str(data.get("startDate") or "").replace("T", " ")[:16],
        next((shown for name in _TIMES if (shown := duration(data.get(name)))), ""),
        _price(data if "price" in data else _first(data.get("offers"))),
        "" if rating is None else f"★ {rating}",
    ]
    return [each for each in found if each]


def _price(offer: Mapping[str, Any]) -> str:
    price, currency = offer.get("price"), offer.get("priceCurrency", "")
    if price is None:
        return ""
    return f"{price:.2f} {currency}".strip() if isinstance(price, float) else f"{price} {currency}".strip()


_TIMES = ("totalTime", "cookTime", "duration", "timeRequired")
_DURATION = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:\d{1,6}S)?)?\Z")


def duration(value: Any) -> str:
    """PT1H25M as 1 h 25 min; nothing for what is none."""
    found = _DURATION.match(value) if isinstance(value, str) else None
    units = zip(found.groups(), ("d", "h", "min"), strict=True) if found else ()
    return " ".join(f"{int(count)} {unit}" for count, unit in units if count and int(count))


def _first(value: Any) -> Mapping[str, Any]:
    several: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    return cast("Mapping[str, Any]", several[0]) if several and isinstance(several[0], dict) else {}


def as_json(found: Response) -> dict[str, Any]:
    """An answer for programs."""
    if not isinstance(found, Answer):
        said = asdict(found)
        said.pop("session")
        return {"items": [], "elicitation" if isinstance(found, Elicitation) else "promise": said}
    return {
        "items": [_json_item(item) for item in found.items],
        "summary": found.summary,
        "understood": asdict(found.understood),
        "notes": [*found.notes, *(str(each) for each in found.troubles)],
        "cost": dict(found.cost),
    }


def _json_item(item: Item) -> dict[str, Any]:
    """The id first and the score last, as other commands show items."""
    rest = {name: value for name, value in item.data.items() if name not in {"@id", "id", "score", "site"}}
    return {"id": item.id, **rest, "_score": item.score}


# What is asked back


def _is_interactive() -> bool:
    return sys.stdin.isatty() and err.is_terminal


def _read_line(prompt: str) -> str:
    """What the person writes; nothing at the end of input."""
    try:
        return err.input(prompt).strip()
    except EOFError:
        return ""


def ask_back(elicitation: Elicitation) -> dict[str, Any]:
    """The person's answers. What is left empty has its default, or no answer."""
    if elicitation.text:
        err.print(plain(elicitation.text), highlight=False)
    answers = {question.id: _answer(question) for question in elicitation.questions}
    return {id: value for id, value in answers.items() if value is not None}


def _answer(question: Question) -> Any:
    err.print(f"[bold]{plain(question.text)}[/]", highlight=False)
    for number, option in enumerate(question.options, 1):
        err.print(f"  {number}. {plain(option)}", highlight=False)
    hint, read = READERS.get(question.type, ("", _free_text))
    default = "nothing for no preference" if question.default is None else f"nothing for {question.default}"
    prompt = f"[dim]({plain(', '.join(filter(None, (hint, default))))})[/] "
    while raw := _read_line(prompt):
        answer = read(raw, question.options)
        if answer is not None:
            return answer
        err.print(f"[yellow]{plain(raw)} is no answer to this.[/]", highlight=False)
    return question.default


def _choice(raw: str, options: tuple[str, ...]) -> str | None:
    """An option by its number or its name."""
    if raw.isdecimal() and 1 <= int(raw) <= len(options):
        return options[int(raw) - 1]
    return next((option for option in options if option.lower() == raw.lower()), None)


def _choices(raw: str, options: tuple[str, ...]) -> list[str] | None:
    found = [_choice(each.strip(), options) for each in raw.split(",") if each.strip()]
    return None if None in found else list(dict.fromkeys(cast("list[str]", found)))


def _number(raw: str, _options: tuple[str, ...]) -> int | float | None:
    try:
        value = float(raw.replace(",", "."))
    except ValueError:
        return None
    if not isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _yes_or_no(raw: str, _options: tuple[str, ...]) -> bool | None:
    return {"y": True, "yes": True, "n": False, "no": False}.get(raw.lower())


def _free_text(raw: str, _options: tuple[str, ...]) -> str:
    return raw


Reader = Callable[[str, tuple[str, ...]], Any]
READERS: Mapping[str, tuple[str, Reader]] = {
    "single_select": ("a number", _choice),
    "multi_select": ("numbers, as in 1,3", _choices),
    "number": ("a number", _number),
    "boolean": ("y or n", _yes_or_no),
}
