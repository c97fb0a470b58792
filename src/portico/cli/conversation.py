"""The conversation of `portico ask`: a person at a terminal asks a site, local or on a server.

Both are asked over NLWeb. A local site is opened in this process and answers without a network.
"""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import asdict
from math import isfinite
from typing import Any, TypeVar, cast

import httpx
from starlette.types import ASGIApp, Message, Scope

from portico.cli.terminal import ProgressBar, err, out, plain, print_json
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
from portico.plugins import load_attribute
from portico.protocols import carriers
from portico.protocols.http import CALLER
from portico.requests import Caller
from portico.server.assembly import Parts, open_site
from portico.server.http import application
from portico.telemetry import silence_library

T = TypeVar("T")
SHUTDOWN_SECONDS = 5.0  # for an application to end the work of a client that has left
MAX_DESCRIPTION = 200  # characters of a description
MAX_COLLECTIONS = 4  # that are named; more are counted

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
MakeCarrier = Callable[[httpx.AsyncClient], Carrier]


# The site


def carrier_for(over: str) -> MakeCarrier | None:
    """Return the carrier with this name, or None for plain HTTP. Its SDK takes a second to load."""
    if over == "http":
        return None
    if over not in carriers():
        raise ConfigError(f"{over!r} is not a protocol to ask over", hint=f"Use http, {', '.join(carriers())}.")
    # The SDKs would log to the terminal what their errors say better.
    silence_library(over)
    return load_attribute(carriers()[over])


@asynccontextmanager
async def connect_to_server(
    url: str, api_key: str | None, carrier: MakeCarrier | None = None
) -> AsyncGenerator[AsyncClient]:
    """Connect to a running server."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r} is not the address of a server", hint="Write http://127.0.0.1:8000.")
    try:
        client = AsyncClient(url, api_key=api_key, carrier=carrier)
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        raise ConfigError(f"The address or the key cannot be used: {error}") from error
    async with client:
        yield client


@asynccontextmanager
async def open_local_site(
    config: Config,
    collections: Sequence[str],
    caller: Callable[[Parts], Awaitable[Caller]],
    carrier: MakeCarrier | None = None,
) -> AsyncGenerator[AsyncClient]:
    """Open a site in this process, which also runs its tasks."""
    async with open_site(config, serves=False) as parts:
        await parts.index.start()
        for name in collections:
            parts.site.catalog.collection(name)  # raises if it does not exist
        app = application(parts)
        transport = InProcess(app, await caller(parts))
        server = config.server
        url = server.url or f"http://{server.host}:{server.port}"
        try:
            async with AsyncClient(url, transport=transport, carrier=carrier) as client:
                yield client
        finally:
            await app.close()


class InProcess(httpx.AsyncBaseTransport):
    """Sends requests to an application in this process. Bodies stream, and it learns when the client disconnects."""

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
    """One request and its response. Closing it disconnects, and raises what the application raised."""

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
            raise httpx.RemoteProtocolError("the application ended its response early")
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
        await asyncio.wait({self._work}, timeout=SHUTDOWN_SECONDS)
        self._work.cancel()
        with suppress(asyncio.CancelledError):
            await self._work


# The conversation


def converse(opening: Opening, question: str | None, options: Options, *, as_json: bool) -> None:
    """Ask one question, or without one start an interactive conversation."""
    if question is None and not _is_interactive():
        raise BadRequest("The question is missing", hint='Write portico ask "…", or run the command on a terminal.')
    try:
        with asyncio.Runner() as runner:
            client = runner.run(cast("Coroutine[Any, Any, AsyncClient]", opening.__aenter__()))
            try:
                talk = TerminalConversation(runner, client, options, quiet=as_json)
                _talk(talk, question, as_json)
            finally:
                runner.run(cast("Coroutine[Any, Any, Any]", opening.__aexit__(None, None, None)))
    except ClientError as error:
        raise as_site_error(error) from error


def _talk(talk: "TerminalConversation", question: str | None, as_json: bool) -> None:
    if question is None:
        talk.ask_repeatedly()
    elif as_json:
        talk.print_answer(question)
    else:
        talk.ask(question)


def as_site_error(error: ClientError) -> SiteError:
    """Translate an error of the client into one that the command line shows."""
    match error:
        case AskFailed(code=code, message=message):
            return ERRORS.get(code, OperationFailed)(message or code, code=code)
        case NotReached() | BadAnswer():
            return Unavailable(str(error), hint="Is this the address of a running server that speaks NLWeb?")
        case _:
            return SiteError(str(error))


class TerminalConversation:
    """Runs the event loop only while something is awaited, so that Ctrl-C is an exception between the steps."""

    def __init__(self, runner: asyncio.Runner, client: AsyncClient, options: Options, *, quiet: bool) -> None:
        self._runner = runner
        self._client = client
        self._conversation = client.conversation()
        self._options: Options = options
        self._quiet = quiet
        self._interpretation = Understood()

    def ask_repeatedly(self) -> None:
        """Ask question after question, until an empty one."""
        err.print("[dim]Ask in plain words. An empty line ends the conversation.[/]")
        while question := _read_line("[bold]?[/] "):
            try:
                self.ask(question)
            except ClientError as error:
                err.print(f"[bold red]Error:[/] {plain(as_site_error(error))}", highlight=False)
            except KeyboardInterrupt:
                err.print("[dim]Stopped.[/]")
            self._options = {**self._options, "previous": ()}  # the conversation keeps them from now on

    def ask(self, question: str) -> None:
        """Ask one question, with its clarifications and promises, up to the final answer."""
        response = self._run(self._follow(self._conversation.stream(question, **self._options), question))
        while not isinstance(response, Answer):
            if isinstance(response, Promise):
                response = self._resolve_promise(response)
                continue
            if not _is_interactive():
                show_questions(response)
                return
            answers = ask_back(response)
            response = self._run(self._follow(self._conversation.stream_answer(response, answers), question))
        show_end(response)

    def print_answer(self, question: str) -> None:
        """Ask one question and print the answer as JSON, without clarifications."""
        response = self._run(self._conversation.ask(question, **self._options))
        if isinstance(response, Promise):
            response = self._wait(response)
        print_json(to_json(response))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _follow(self, events: AsyncGenerator[Event], question: str) -> Response:
        async with aclosing(events):
            async for event in events:
                match event:
                    case Started(interpretation):
                        self._show_interpretation(interpretation, question)
                    case ItemFound(item=item):
                        show_item(item)
                    case Summary(text):
                        out.print(f"{plain(text)}\n", highlight=False)
                    case Completed(answer):
                        return answer
                    case Elicitation() | Promise():
                        return event
        raise BadAnswer("The answer has no end")

    def _show_interpretation(self, interpretation: Understood, question: str) -> None:
        """Print how the question was understood, unless that has not changed."""
        line = describe_interpretation(interpretation, question)
        if line and interpretation != self._interpretation:
            err.print(f"[dim]{plain(line)}[/]", highlight=False, soft_wrap=True)
        self._interpretation = interpretation

    def _resolve_promise(self, promise: Promise) -> Response:
        """Wait for a promise, and print its answer as if it had come at once."""
        response = self._wait(promise)
        if isinstance(response, Answer):
            for item in response.items:
                show_item(item)
            if response.summary:
                out.print(plain(response.summary), highlight=False)
        return response

    def _wait(self, promise: Promise) -> Response:
        try:
            return self._wait_with_progress(promise)
        except KeyboardInterrupt:
            response = self._run(self._client.cancel(promise))
        if isinstance(response, Answer):
            return response  # it was completed in the meantime
        err.print("Cancelled.")
        raise KeyboardInterrupt

    def _wait_with_progress(self, promise: Promise) -> Response:
        if not self._quiet:
            err.print(f"[dim]{plain(promise.message or 'This takes a while')}. Ctrl-C cancels it.[/]", highlight=False)
        with ProgressBar("waiting", self._quiet) as bar:

            def show_progress(now: Promise) -> None:
                bar.update(round(min(max(now.progress or 0.0, 0.0), 1.0) * 100), 100, 0.0, now.message or None)

            return self._run(self._client.wait(promise, show_progress))


# Output


def describe_interpretation(interpretation: Understood, question: str) -> str:
    """Describe on one line how a question was understood."""
    parts = [f"“{interpretation.text}”"] if interpretation.text not in {"", question} else []
    if len(interpretation.collections) <= MAX_COLLECTIONS:
        parts.extend(f"in {name}" for name in [", ".join(interpretation.collections)] if name)
    else:
        parts.append(f"in {len(interpretation.collections)} collections")
    parts.extend(constraint.says for constraint in interpretation.constraints)
    if interpretation.ignored:
        parts.append(f"ignored: {', '.join(interpretation.ignored)}")
    return " · ".join(parts)


def show_item(item: Item) -> None:
    score = "" if item.score is None else f"{item.score:.0f}"
    details = "  ".join(part for part in (item.id, score, " · ".join(facts(item))) if part)
    out.print(f"[bold]{plain(item.name or item.id)}[/]  [dim]{plain(details)}[/]", highlight=False, soft_wrap=True)
    if item.description:
        out.print(f"  {plain(' '.join(item.description.split())[:MAX_DESCRIPTION])}", highlight=False)
    if "result" in item.data:  # of an operation that was run
        print_json(item.data["result"])
    if item.actions:
        names = dict.fromkeys(action.name for action in item.actions)
        out.print(f"  [dim]→ {plain(', '.join(names))}[/]", highlight=False)


def show_end(answer: Answer) -> None:
    if not answer.items and not answer.summary:
        err.print("No results.")
    for note in (*answer.notes, *(str(error) for error in answer.troubles)):
        err.print(f"[yellow]{plain(note)}[/]", highlight=False, soft_wrap=True)
    if answer.cost.get("calls"):
        calls, tokens = answer.cost["calls"], answer.cost.get("prompt_tokens", 0)
        times = "1 call" if calls == 1 else f"{plain(calls)} calls"
        err.print(f"[dim]{times} of a language model, {plain(tokens)} input tokens[/]", highlight=False)


def show_questions(elicitation: Elicitation) -> None:
    """Print questions that cannot be answered here."""
    if elicitation.text:
        out.print(plain(elicitation.text), highlight=False)
    for question in elicitation.questions:
        options = f" ({', '.join(question.options)})" if question.options else ""
        out.print(f"- {plain(question.text + options)}", highlight=False)
    err.print("[dim]Ask again with this information, or ask on a terminal.[/]")


def facts(item: Item) -> list[str]:
    """Return what helps to choose: the type, and the time, duration, price and rating if known."""
    data = item.data
    rating = _first(data.get("aggregateRating")).get("ratingValue")
    parts = [
        "" if item.type == "Thing" else item.type,
        str(data.get("startDate") or "").replace("T", " ")[:16],
        next((text for name in _TIMES if (text := duration(data.get(name)))), ""),
        _price(data if "price" in data else _first(data.get("offers"))),
        "" if rating is None else f"★ {rating}",
    ]
    return [part for part in parts if part]


def _price(offer: Mapping[str, Any]) -> str:
    price, currency = offer.get("price"), offer.get("priceCurrency", "")
    if price is None:
        return ""
    return f"{price:.2f} {currency}".strip() if isinstance(price, float) else f"{price} {currency}".strip()


_TIMES = ("totalTime", "cookTime", "duration", "timeRequired")
_DURATION = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:\d{1,6}S)?)?\Z")


def duration(value: Any) -> str:
    """Format PT1H25M as 1 h 25 min; empty if the value is not a duration."""
    match = _DURATION.match(value) if isinstance(value, str) else None
    units = zip(match.groups(), ("d", "h", "min"), strict=True) if match else ()
    return " ".join(f"{int(count)} {unit}" for count, unit in units if count and int(count))


def _first(value: Any) -> Mapping[str, Any]:
    several: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    return cast("Mapping[str, Any]", several[0]) if several and isinstance(several[0], dict) else {}


def to_json(response: Response) -> dict[str, Any]:
    """Return a response as JSON."""
    if not isinstance(response, Answer):
        fields = asdict(response)
        fields.pop("session")
        return {"items": [], "elicitation" if isinstance(response, Elicitation) else "promise": fields}
    # The ID comes first and the score last, as in other commands.
    items = [
        {
            "id": item.id,
            **{name: item.data[name] for name in item.data if name not in _NOT_FIELDS},
            "_score": item.score,
        }
        for item in response.items
    ]
    return {
        "items": items,
        "summary": response.summary,
        "understood": asdict(response.understood),
        "notes": [*response.notes, *(str(error) for error in response.troubles)],
        "cost": dict(response.cost),
    }


_NOT_FIELDS = frozenset({"@id", "id", "score", "site"})


# Clarification


def _is_interactive() -> bool:
    return sys.stdin.isatty() and err.is_terminal


def _read_line(prompt: str) -> str:
    """Read a line; empty at the end of the input."""
    try:
        return err.input(prompt).strip()
    except EOFError:
        return ""


def ask_back(elicitation: Elicitation) -> dict[str, Any]:
    """Ask the questions of an elicitation. An empty line means the default, or no answer."""
    if elicitation.text:
        err.print(plain(elicitation.text), highlight=False)
    answers = {question.id: _answer(question) for question in elicitation.questions}
    return {id: value for id, value in answers.items() if value is not None}


def _answer(question: Question) -> Any:
    err.print(f"[bold]{plain(question.text)}[/]", highlight=False)
    for number, option in enumerate(question.options, 1):
        err.print(f"  {number}. {plain(option)}", highlight=False)
    hint, read = READERS.get(question.type, ("", lambda raw, _: raw))
    default = "empty for no preference" if question.default is None else f"empty for {question.default}"
    prompt = f"[dim]({plain(', '.join(filter(None, (hint, default))))})[/] "
    while raw := _read_line(prompt):
        answer = read(raw, question.options)
        if answer is not None:
            return answer
        err.print(f"[yellow]{plain(raw)} is not a valid answer.[/]", highlight=False)
    return question.default


def _choice(raw: str, options: tuple[str, ...]) -> str | None:
    """Return the option with this number or name."""
    if raw.isdecimal() and 1 <= int(raw) <= len(options):
        return options[int(raw) - 1]
    return next((option for option in options if option.lower() == raw.lower()), None)


def _choices(raw: str, options: tuple[str, ...]) -> list[str] | None:
    choices = [_choice(text.strip(), options) for text in raw.split(",") if text.strip()]
    return None if None in choices else list(dict.fromkeys(cast("list[str]", choices)))


def _number(raw: str, _options: tuple[str, ...]) -> int | float | None:
    try:
        value = float(raw.replace(",", "."))
    except ValueError:
        return None
    if not isfinite(value):
        return None
    return int(value) if value.is_integer() else value


_YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}
Reader = Callable[[str, tuple[str, ...]], Any]
READERS: Mapping[str, tuple[str, Reader]] = {
    "single_select": ("a number", _choice),
    "multi_select": ("numbers, as in 1,3", _choices),
    "number": ("a number", _number),
    "boolean": ("y or n", lambda raw, _: _YES_OR_NO.get(raw.lower())),
}
