"""A client for NLWeb 0.55, sync and async. Needs httpx and msgspec, and nothing of the server.

    with Client("http://127.0.0.1:8000") as site:
        match site.ask("vegetarian dinner under 30 minutes"):
            case Answer(items=items): ...
            case Elicitation(questions=questions): ...
            case Promise() as promise: answer = site.wait(promise)

Both clients are one: what is said and understood is written once, for asyncio. The sync one runs it over a line that
never makes it wait, so that it needs no event loop.
"""

import asyncio
import codecs
import contextlib
import re
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, TypeVar, Unpack, cast

import httpx
import msgspec

VERSION = "0.55"
LARGEST = 8 * 1024 * 1024  # bytes of one response
TIMEOUT = 60.0  # seconds without a byte
GROWTH = 1.5  # of the pauses between two looks at a promise
LONGEST_PAUSE = 10.0
MOST_MISSED = 20  # looks in a row at a server that is not there
MOST_PREVIOUS = 10  # questions that a conversation sends along

T = TypeVar("T")


class ClientError(Exception):
    """Whatever goes wrong between asking and the answer."""


class NotReached(ClientError):
    """The server cannot be reached, or the connection broke."""


class BadAnswer(ClientError):
    """What came back is not NLWeb, or too large."""


class AskFailed(ClientError):
    """The server says that it cannot answer. The code is NLWeb's, or HTTP_ and the status where there is none."""

    def __init__(self, code: str, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.status = status
        self.retry_after = retry_after  # seconds


# What comes back


@dataclass(frozen=True, slots=True)
class Session:
    """What the server wants to see again with the next question. Opaque."""

    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do with an item. How, stands in `data`, by protocol."""

    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return _text(self.data.get("name"))

    @property
    def description(self) -> str:
        return _text(self.data.get("description"))

    @property
    def protocol(self) -> str:
        return _text(self.data.get("protocol"))


@dataclass(frozen=True, slots=True)
class Item:
    """One result. Everything the server said of it is in `data`."""

    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        return _text(self.data.get("@id")) or self.url

    @property
    def type(self) -> str:
        """The first of its types."""
        return next(iter(_texts(self.data.get("@type"))), "")

    @property
    def name(self) -> str:
        return next((found for key in ("name", "headline", "title") if (found := _text(self.data.get(key)))), "")

    @property
    def url(self) -> str:
        return _text(self.data.get("url"))

    @property
    def score(self) -> float | None:
        return _number(self.data.get("score"))

    @property
    def description(self) -> str:
        return _text(self.data.get("description")) or _text(self.data.get("text"))

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(Action(each) for each in _objects(self.data.get("actions")))


@dataclass(frozen=True, slots=True)
class Constraint:
    """One thing that was understood: of which field, what, and from which words."""

    field: str
    says: str
    words: str


@dataclass(frozen=True, slots=True)
class Understood:
    """What the question was taken to mean."""

    text: str = ""  # the question so that it stands alone
    collections: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    ignored: tuple[str, ...] = ()  # what was sent and has no meaning there


@dataclass(frozen=True, slots=True)
class Answer:
    """Items, best first; none if the server found nothing."""

    items: tuple[Item, ...]
    summary: str = ""
    understood: Understood = Understood()
    notes: tuple[str, ...] = ()
    cost: Mapping[str, Any] = field(default_factory=dict[str, Any])
    session: Session | None = None
    troubles: tuple[AskFailed, ...] = ()  # errors in the middle of a stream that went on


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str = ""
    type: str = "free_text"  # or single_select, multi_select, number, boolean
    options: tuple[str, ...] = ()
    default: Any = None


@dataclass(frozen=True, slots=True)
class Elicitation:
    """The server asks back. Answers go with the same question and the session of this."""

    text: str = ""
    questions: tuple[Question, ...] = ()
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """The answer takes longer. The token is good for `check`, `wait` and `cancel`."""

    token: str
    estimated_time: float | None = None  # seconds
    message: str = ""
    progress: float | None = None  # 0 to 1
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Started:
    understood: Understood


@dataclass(frozen=True, slots=True)
class ItemFound:
    """An item and its place in the answer; places come in any order."""

    index: int
    item: Item


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary so far; a later one takes the place of an earlier one."""

    text: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of a stream, with everything it brought."""

    answer: Answer


Response: TypeAlias = Answer | Elicitation | Promise
Event: TypeAlias = Started | ItemFound | Summary | Completed | Elicitation | Promise
"""Of a stream. The last one is Completed, Elicitation or Promise."""

Told: TypeAlias = Callable[[Promise], None]


# What is sent


class Options(TypedDict, total=False):
    """What can be said beside the question's text."""

    site: str  # part of the server's corpus
    filters: Mapping[str, Any]  # {"itemType": "Recipe", "price": "less than $20"}
    previous: Sequence[str]  # questions before this one, oldest first; a conversation knows them itself
    memory: str  # what is known of the person
    context: Mapping[str, Any]  # further attributes, or a context of your own @type
    answers: Mapping[str, Any]  # to an Elicitation, by question id
    modes: Sequence[str]  # list, summarize, generate
    language: str
    limit: int
    start: int  # how many of the best to leave out: the pages before
    remember: bool  # keep the question and the memory for the next time; needs a key
    user: str | Mapping[str, Any]  # for whom it is asked, where many share a key
    session: Session | None


Path: TypeAlias = Literal["ask", "await"]


@dataclass(frozen=True, slots=True)
class _Post:
    path: Path
    body: Mapping[str, Any]
    accept: str = "application/json"

    @property
    def sent(self) -> dict[str, Any]:
        headers = {"Accept": self.accept, "Accept-Encoding": "identity"}
        return {"content": msgspec.json.encode(self.body), "headers": headers}


@dataclass(frozen=True, slots=True)
class _Head:
    """What comes before the body of a response."""

    status: int
    kind: str
    retry_after: str


def _ask_post(text: str, options: Options, *, streaming: bool = False) -> _Post:
    session = options.get("session")
    context = {
        **options.get("context", {}),
        **_said(prev=list(options.get("previous", ())), memory=options.get("memory"), answers=options.get("answers")),
    }
    prefer = {
        "streaming": streaming,
        "response_format": "conversational_search",
        "mode": ", ".join(options.get("modes", ("list",))),
        **_said(**{"accept-language": options.get("language")}),
    }
    body = {
        "query": {**options.get("filters", {}), "text": text, **_said(site=options.get("site"))}
        | ({"limit": options["limit"]} if "limit" in options else {}),
        **_said(context=context),
        "prefer": prefer,
        "meta": {
            "version": VERSION,
            **_said(
                session_context=session and session.context,
                start_num=options.get("start"),
                remember=options.get("remember"),
                user=options.get("user"),
            ),
        },
    }
    return _Post("ask", body, "text/event-stream" if streaming else "application/json")


def _await_post(promise: Promise | str, action: Literal["checkin", "cancel"]) -> _Post:
    token = promise if isinstance(promise, str) else promise.token
    body = {"promise_token": token, "action": action, "meta": {"version": VERSION}}
    return _Post("await", body)


def _said(**values: Any) -> dict[str, Any]:
    """Without what is empty."""
    return {name: value for name, value in values.items() if value}


# What is understood


class _WireError(msgspec.Struct, frozen=True):
    code: str
    message: str | None = None
    retry_after: float | None = None


class _Body(msgspec.Struct, frozen=True):
    """Any response, and the data of any event."""

    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict[str, Any])
    results: list[dict[str, Any]] = []
    elicitation: Elicitation | None = None
    promise: Promise | None = None
    error: _WireError | None = None
    index: int = 0
    item: dict[str, Any] = {}


def _read(raw: bytes | str) -> _Body:
    try:
        return msgspec.json.decode(raw, type=_Body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"The answer is not NLWeb: {error}") from None


def _response(head: _Head, raw: bytes) -> Response:
    """What a whole response says. Raises AskFailed for a failure, unless it is that nothing was found."""
    if head.status >= 300:
        raise _refusal(head, raw)
    body = _read(raw)
    troubles = [_failure(body.error, head.status)] if body.error else []
    return _concluded(body, enumerate(body.results), body, troubles)


def _refusal(head: _Head, raw: bytes) -> ClientError:
    if head.status < 400:
        return BadAnswer(f"The server answers elsewhere (status {head.status}); redirects are not followed")
    wait = float(head.retry_after) if re.fullmatch(r"[0-9]{1,6}", head.retry_after) else None
    with contextlib.suppress(BadAnswer):
        if found := _read(raw).error:
            return AskFailed(found.code, found.message or "", head.status, wait)
    return AskFailed(f"HTTP_{head.status}", f"The server answered with status {head.status}", head.status, wait)


def _failure(error: _WireError, status: int) -> AskFailed:
    return AskFailed(error.code, error.message or "", status, error.retry_after)


def _concluded(
    first: _Body, results: Iterable[tuple[int, Mapping[str, Any]]], last: _Body, troubles: Sequence[AskFailed]
) -> Response:
    """The response that the beginning, the results and the end of a stream make; a plain one is all three."""
    meta = {**first.meta, **last.meta}
    session = _session(meta)
    elicitation, promise = last.elicitation or first.elicitation, last.promise or first.promise
    match _text(meta.get("response_type")).lower():
        case "elicitation" if elicitation:
            return replace(elicitation, session=session)
        case "promise" if promise:
            return replace(promise, session=session)
        case "failure" if troubles and troubles[-1].code != "NO_RESULTS":
            raise troubles[-1]
        case "answer" | "failure":
            return _answer(meta, [item for _, item in sorted(results, key=lambda each: each[0])], session, troubles)
        case other:
            raise BadAnswer(f"The answer is not NLWeb: its type is {other[:40]!r}")


def _answer(
    meta: Mapping[str, Any], results: list[Mapping[str, Any]], session: Session | None, troubles: Sequence[AskFailed]
) -> Answer:
    return Answer(
        tuple(Item(each) for each in results if not _is_summary(each)),
        "\n".join(_text(each.get("text")) for each in results if _is_summary(each)),
        _understood(meta),
        tuple(_texts(meta.get("notes"))),
        _object(meta.get("cost")),
        session,
        tuple(each for each in troubles if each.code != "NO_RESULTS"),
    )


def _is_summary(item: Mapping[str, Any]) -> bool:
    return item.get("@type") == "SearchSummary"


def _understood(meta: Mapping[str, Any]) -> Understood:
    told = _object(meta.get("understood"))
    constraints = tuple(
        Constraint(_text(each.get("field")), _text(each.get("says")), _text(each.get("words")))
        for each in _objects(told.get("constraints"))
    )
    text, ignored = _text(meta.get("decontextualized_query")), tuple(_texts(meta.get("ignored")))
    return Understood(text, tuple(_texts(told.get("collections"))), constraints, ignored)


def _session(meta: Mapping[str, Any]) -> Session | None:
    context = _object(meta.get("session_context"))
    return Session(context) if context else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [_object(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [each for each in cast("list[Any]", value) if isinstance(each, str)] if isinstance(value, list) else []


# Streams


class Frames:
    """Server-sent events out of bytes, however these are cut."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line: list[str] = []  # pieces of a line that has not ended
        self._after_return = False  # a line ended with CR; an LF that follows belongs to it
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """The name and the data of every event that these bytes complete."""
        text = self._decoder.decode(chunk)
        if not text:
            return
        if self._after_return:
            text = text.removeprefix("\n")
        self._after_return = text.endswith("\r") or (self._after_return and not text)
        *ended, rest = _LINE_END.split(text)
        for piece in ended:
            line = "".join((*self._line, piece))
            self._line.clear()
            yield from self._take(line)
        self._line.append(rest)

    def _take(self, line: str) -> Iterator[tuple[str, str]]:
        if not line:
            if self._data:
                yield self._event or "message", "\n".join(self._data)
            self._event, self._data = "", []
            return
        name, _, value = line.partition(":")
        match name:
            case "event":
                self._event = value.removeprefix(" ")
            case "data":
                self._data.append(value.removeprefix(" "))
            case _:  # comments, ids and pauses mean nothing here
                pass


_LINE_END = re.compile("\r\n|\r|\n")
EVENTS = frozenset({"start", "result", "error", "complete"})  # later versions may have others


class _Reading:
    """From the pieces of a response to Events, whether it is a stream or not. Takes no more than a bound."""

    def __init__(self, largest: int) -> None:
        self._left = largest
        self._head = _Head(0, "", "")
        self._plain: list[bytes] = []
        self._frames = Frames()
        self._first = _Body()
        self._results: dict[int, Mapping[str, Any]] = {}
        self._troubles: list[AskFailed] = []
        self.is_complete = False

    def take(self, piece: _Head | bytes) -> Iterator[Event]:
        if isinstance(piece, _Head):
            self._head = piece
            return
        self._left -= len(piece)
        if self._left < 0:
            raise BadAnswer("The answer is too large")
        if not self._is_stream:
            self._plain.append(piece)
            return
        for name, data in self._frames.feed(piece):
            if name in EVENTS:
                yield from self._understand(name, _read(data))

    def ended(self) -> Iterator[Event]:
        """What is left to say when the last piece was taken."""
        if not self._is_stream:
            yield from _told_at_once(_response(self._head, b"".join(self._plain)))
        elif not self.is_complete:
            raise self._troubles[-1] if self._troubles else NotReached("The answer broke off")

    @property
    def _is_stream(self) -> bool:
        return self._head.status < 300 and self._head.kind == "text/event-stream"

    def _understand(self, name: str, body: _Body) -> Iterator[Event]:
        if self.is_complete:
            return
        match name:
            case "start":
                self._first = body
                yield Started(_understood(body.meta))
            case "result":
                self._results[body.index] = body.item
                yield _found(body)
            case "error" if body.error:
                self._troubles.append(_failure(body.error, self._head.status))
            case "complete":
                self.is_complete = True
                found = _concluded(self._first, self._results.items(), body, self._troubles)
                yield Completed(found) if isinstance(found, Answer) else found
            case _:
                pass


def _found(body: _Body) -> ItemFound | Summary:
    if _is_summary(body.item):
        return Summary(_text(body.item.get("text")))
    return ItemFound(body.index, Item(body.item))


def _told_at_once(found: Response) -> Iterator[Event]:
    if not isinstance(found, Answer):
        yield found
        return
    yield Started(found.understood)
    if found.summary:
        yield Summary(found.summary)
    yield from (ItemFound(index, item) for index, item in enumerate(found.items))
    yield Completed(found)


# The lines that bytes travel on


class _Line(Protocol):
    """How a client reaches its server, and how it lets time pass."""

    def pieces(self, post: _Post) -> AsyncGenerator[_Head | bytes]: ...

    async def pause(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class _AsyncLine:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def pieces(self, post: _Post) -> AsyncGenerator[_Head | bytes]:
        with _reaching():
            async with self._http.stream("POST", post.path, **post.sent) as response:
                yield _head(response)
                async for piece in response.aiter_bytes():
                    yield piece

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()


class Carrier(Protocol):
    """Takes requests to a server in another way than as a POST."""

    async def post(self, path: Path, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The whole answer, as NLWeb has it. Raises a ClientError where there is none."""
        ...


class _CarriedLine(_AsyncLine):
    """Answers come in one piece, whatever the request prefers."""

    def __init__(self, http: httpx.AsyncClient, carrier: Carrier) -> None:
        super().__init__(http)
        self._carrier = carrier

    async def pieces(self, post: _Post) -> AsyncGenerator[_Head | bytes]:
        answer = await self._carrier.post(post.path, post.body)
        yield _Head(200, "application/json", "")
        yield msgspec.json.encode(answer)


class _SyncLine:
    """Async in form alone: it blocks, and never gives way."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def pieces(self, post: _Post) -> AsyncGenerator[_Head | bytes]:
        with _reaching(), self._http.stream("POST", post.path, **post.sent) as response:
            yield _head(response)
            for piece in response.iter_bytes():
                yield piece

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop to hold up

    async def close(self) -> None:
        self._http.close()


def _done(work: Awaitable[T]) -> T:
    """The result of work over a _SyncLine, which is done in one step."""
    try:
        next(iter(work.__await__()))
    except StopIteration as done:
        return done.value
    raise RuntimeError("A sync client cannot wait for asyncio")


def _drawn(events: AsyncGenerator[T]) -> Generator[T]:
    try:
        while True:
            yield _done(anext(events))
    except StopAsyncIteration:
        return
    finally:
        _done(events.aclose())


def _settings(url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    # Nothing from the environment: a proxy or a .netrc there would learn the key.
    return {"base_url": url, "headers": headers, "timeout": timeout, "trust_env": False, "follow_redirects": False}


class _Bounded(httpx.AsyncBaseTransport):
    """Lets through only so much of a response, for carriers whose SDK reads all that comes."""

    def __init__(self, inner: httpx.AsyncBaseTransport, largest: int) -> None:
        self._inner = inner
        self._largest = largest

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        stream = _BoundedStream(cast("httpx.AsyncByteStream", response.stream), self._largest)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, left: int) -> None:
        self._inner = inner
        self._left = left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx.ReadError("the answer is too large")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _head(response: httpx.Response) -> _Head:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return _Head(response.status_code, kind, response.headers.get("retry-after", ""))


@contextlib.contextmanager
def _reaching() -> Generator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise NotReached(f"The server cannot be reached: {str(error) or type(error).__name__}") from error


# The clients


class _Asking:
    """What both clients do, whatever the line."""

    def __init__(self, line: _Line, largest: int) -> None:
        self._line = line
        self._largest = largest

    async def ask(self, text: str, **options: Unpack[Options]) -> Response:
        """Raises AskFailed for a failure; when nothing was found, the Answer has no items."""
        return await self._exchanged(_ask_post(text, options))

    def stream(self, text: str, **options: Unpack[Options]) -> AsyncGenerator[Event]:
        """Events as they come. Closing it ends the work on the server."""
        return self._events(_ask_post(text, options, streaming=True))

    async def check(self, promise: Promise | str) -> Response:
        """How a promise is getting on: a promise still, or what was promised."""
        return await self._exchanged(_await_post(promise, "checkin"))

    async def cancel(self, promise: Promise | str) -> Response | None:
        """Stop the work. None when it was stopped; what was promised when it was done already."""
        try:
            return await self._exchanged(_await_post(promise, "cancel"))
        except AskFailed as error:
            if error.code != "CANCELLED":
                raise
        return None

    async def wait(self, promise: Promise, told: Told | None = None, every: float = 0.5) -> Answer | Elicitation:
        """Look again and again, with growing pauses from `every` seconds on, until it is done.

        A server that is away for a while, as when it is started anew, is looked for again.
        """
        pause, missed = every, 0
        while True:
            await self._line.pause(pause)
            pause = max(every, min(pause * GROWTH, LONGEST_PAUSE))
            try:
                found = await self.check(promise)
                missed = 0
            except NotReached:
                missed += 1
                if missed > MOST_MISSED:
                    raise
                continue
            except AskFailed as error:
                if error.code != "RATE_LIMITED":
                    raise
                pause = error.retry_after or pause
                continue
            if not isinstance(found, Promise):
                return found
            if told:
                told(found)

    async def close(self) -> None:
        await self._line.close()

    async def _exchanged(self, post: _Post) -> Response:
        async with contextlib.aclosing(self._events(post)) as events:
            async for event in events:
                match event:
                    case Completed(answer):
                        return answer
                    case Elicitation() | Promise():
                        return event
                    case _:
                        pass
        raise BadAnswer("The answer has no end")

    async def _events(self, post: _Post) -> AsyncGenerator[Event]:
        reading = _Reading(self._largest)
        async with contextlib.aclosing(self._line.pieces(post)) as pieces:
            async for piece in pieces:
                for event in reading.take(piece):
                    yield event
                if reading.is_complete:
                    return
        for event in reading.ended():
            yield event


class AsyncConversation:
    """Questions that build on each other. Sends the earlier ones along, and what the server wants to see again."""

    def __init__(self, client: _Asking) -> None:
        self._client = client
        self._text = ""
        self._options: Options = {}
        self.previous: tuple[str, ...] = ()
        self.session: Session | None = None

    async def ask(self, text: str, **options: Unpack[Options]) -> Response:
        self._turn_to(text, options)
        return self._noted(await self._client.ask(text, **self._said()))

    async def answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> Response:
        """Answer what was asked back: the last question is asked again, with these."""
        self._add(elicitation, answers)
        return self._noted(await self._client.ask(self._text, **self._said()))

    async def stream(self, text: str, **options: Unpack[Options]) -> AsyncGenerator[Event]:
        self._turn_to(text, options)
        async with contextlib.aclosing(self._client.stream(text, **self._said())) as events:
            async for event in events:
                yield self._noted(event)

    async def stream_answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> AsyncGenerator[Event]:
        self._add(elicitation, answers)
        async with contextlib.aclosing(self._client.stream(self._text, **self._said())) as events:
            async for event in events:
                yield self._noted(event)

    def _turn_to(self, text: str, options: Options) -> None:
        """A new question: the one before becomes a previous one, unless the caller says which those are."""
        known = (*self.previous, self._text) if self._text else self.previous
        self.previous = tuple(options.get("previous") or known)[-MOST_PREVIOUS:]
        self._text, self._options = text, options

    def _add(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> None:
        self._options = {**self._options, "answers": {**self._options.get("answers", {}), **answers}}
        self.session = elicitation.session or self.session

    def _said(self) -> Options:
        return {"session": self.session, **self._options, "previous": self.previous}

    def _noted(self, found: T) -> T:
        """Keep the session of whatever comes with one."""
        whole = found.answer if isinstance(found, Completed) else found
        if isinstance(whole, Answer | Elicitation | Promise):
            self.session = whole.session or self.session
        return found


class AsyncClient(_Asking):
    """Asks an NLWeb server, with asyncio. A carrier is made with the HTTP client that would post otherwise."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        largest: int = LARGEST,
        transport: httpx.AsyncBaseTransport | None = None,
        carrier: Callable[[httpx.AsyncClient], Carrier] | None = None,
    ) -> None:
        if carrier:
            transport = _Bounded(transport or httpx.AsyncHTTPTransport(trust_env=False), largest)
        http = httpx.AsyncClient(transport=transport, **_settings(url, api_key, timeout))
        super().__init__(_CarriedLine(http, carrier(http)) if carrier else _AsyncLine(http), largest)

    def conversation(self) -> AsyncConversation:
        return AsyncConversation(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Conversation:
    """The same as AsyncConversation, without asyncio."""

    def __init__(self, client: _Asking) -> None:
        self._inner = AsyncConversation(client)

    def ask(self, text: str, **options: Unpack[Options]) -> Response:
        return _done(self._inner.ask(text, **options))

    def answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> Response:
        return _done(self._inner.answer(elicitation, answers))

    def stream(self, text: str, **options: Unpack[Options]) -> Generator[Event]:
        return _drawn(self._inner.stream(text, **options))

    def stream_answer(self, elicitation: Elicitation, answers: Mapping[str, Any]) -> Generator[Event]:
        return _drawn(self._inner.stream_answer(elicitation, answers))


class Client:
    """The same as AsyncClient, without asyncio."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        largest: int = LARGEST,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        http = httpx.Client(transport=transport, **_settings(url, api_key, timeout))
        self._inner = _Asking(_SyncLine(http), largest)

    def ask(self, text: str, **options: Unpack[Options]) -> Response:
        return _done(self._inner.ask(text, **options))

    def stream(self, text: str, **options: Unpack[Options]) -> Generator[Event]:
        return _drawn(self._inner.stream(text, **options))

    def check(self, promise: Promise | str) -> Response:
        return _done(self._inner.check(promise))

    def cancel(self, promise: Promise | str) -> Response | None:
        return _done(self._inner.cancel(promise))

    def wait(self, promise: Promise, told: Told | None = None, every: float = 0.5) -> Answer | Elicitation:
        return _done(self._inner.wait(promise, told, every))

    def conversation(self) -> Conversation:
        return Conversation(self._inner)

    def close(self) -> None:
        _done(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
