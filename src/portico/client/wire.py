"""The wire format of NLWeb 0.55: builds the bodies of requests and turns responses, whole or streamed, into events."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import msgspec

from portico.client.models import (
    Answer,
    AskFailed,
    BadAnswer,
    ClientError,
    Completed,
    Constraint,
    Elicitation,
    Event,
    Item,
    ItemFound,
    NotReached,
    Options,
    Promise,
    Response,
    Session,
    Started,
    Summary,
    Understood,
    as_object,
    as_objects,
    as_text,
    as_texts,
)
from portico.client.sse import SseDecoder

VERSION = "0.55"
EVENTS = frozenset({"start", "result", "error", "complete"})  # others, of later versions, are ignored
RequestPath: TypeAlias = Literal["ask", "await"]

# Requests


@dataclass(frozen=True, slots=True)
class Request:
    path: RequestPath
    body: Mapping[str, Any]
    accept: str = "application/json"

    @property
    def request_args(self) -> dict[str, Any]:
        headers = {"Accept": self.accept, "Accept-Encoding": "identity"}
        return {"content": msgspec.json.encode(self.body), "headers": headers}


def ask_request(text: str, options: Options, *, streaming: bool = False) -> Request:
    session = options.get("session")
    context = {
        **options.get("context", {}),
        **_without_empty(
            prev=list(options.get("previous", ())), memory=options.get("memory"), answers=options.get("answers")
        ),
    }
    prefer = {
        "streaming": streaming,
        "response_format": "conversational_search",
        "mode": ", ".join(options.get("modes", ("list",))),
        **_without_empty(**{"accept-language": options.get("language")}),
    }
    body = {
        "query": {**options.get("filters", {}), "text": text, **_without_empty(site=options.get("site"))}
        | ({"limit": options["limit"]} if "limit" in options else {}),
        **_without_empty(context=context),
        "prefer": prefer,
        "meta": {
            "version": VERSION,
            **_without_empty(
                session_context=session and session.context,
                start_num=options.get("start"),
                remember=options.get("remember"),
                user=options.get("user"),
            ),
        },
    }
    return Request("ask", body, "text/event-stream" if streaming else "application/json")


def await_request(promise: Promise | str, action: Literal["checkin", "cancel"]) -> Request:
    token = promise if isinstance(promise, str) else promise.token
    body = {"promise_token": token, "action": action, "meta": {"version": VERSION}}
    return Request("await", body)


def _without_empty(**values: Any) -> dict[str, Any]:
    """Drop empty values."""
    return {name: value for name, value in values.items() if value}


# Responses


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The status and headers of a response."""

    status: int
    kind: str
    retry_after: str


class _WireError(msgspec.Struct, frozen=True):
    code: str
    message: str | None = None
    retry_after: float | None = None


class _ResponseBody(msgspec.Struct, frozen=True):
    """The body of any response, and the data of any event."""

    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict[str, Any])
    results: list[dict[str, Any]] = []
    elicitation: Elicitation | None = None
    promise: Promise | None = None
    error: _WireError | None = None
    index: int = 0
    item: dict[str, Any] = {}


def _parse_body(raw: bytes | str) -> _ResponseBody:
    try:
        return msgspec.json.decode(raw, type=_ResponseBody)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"The answer is not NLWeb: {error}") from None


def _parse_response(head: ResponseHead, raw: bytes) -> Response:
    """Parse a whole response. Raise AskFailed for a failure, unless it only says that nothing was found."""
    if head.status >= 300:
        raise _error_of(head, raw)
    body = _parse_body(raw)
    troubles = [_ask_failed(body.error, head.status)] if body.error else []
    return _assemble(body, enumerate(body.results), body, troubles)


def _error_of(head: ResponseHead, raw: bytes) -> ClientError:
    if head.status < 400:
        return BadAnswer(f"The server redirects (status {head.status}); redirects are not followed")
    wait = float(head.retry_after) if re.fullmatch(r"[0-9]{1,6}", head.retry_after) else None
    with contextlib.suppress(BadAnswer):
        if error := _parse_body(raw).error:
            return AskFailed(error.code, error.message or "", head.status, wait)
    return AskFailed(f"HTTP_{head.status}", f"The server answered with status {head.status}", head.status, wait)


def _ask_failed(error: _WireError, status: int) -> AskFailed:
    return AskFailed(error.code, error.message or "", status, error.retry_after)


def _assemble(
    first: _ResponseBody,
    results: Iterable[tuple[int, Mapping[str, Any]]],
    last: _ResponseBody,
    troubles: Sequence[AskFailed],
) -> Response:
    """Assemble a response from the first event, the results and the last event; a plain response is all three."""
    meta = {**first.meta, **last.meta}
    session = _session(meta)
    elicitation, promise = last.elicitation or first.elicitation, last.promise or first.promise
    match as_text(meta.get("response_type")).lower():
        case "elicitation" if elicitation:
            return replace(elicitation, session=session)
        case "promise" if promise:
            return replace(promise, session=session)
        case "failure" if troubles and troubles[-1].code != "NO_RESULTS":
            raise troubles[-1]
        case "answer" | "failure":
            return _answer(meta, [item for _, item in sorted(results, key=lambda result: result[0])], session, troubles)
        case other:
            raise BadAnswer(f"The answer is not NLWeb: its type is {other[:40]!r}")


def _answer(
    meta: Mapping[str, Any], results: list[Mapping[str, Any]], session: Session | None, troubles: Sequence[AskFailed]
) -> Answer:
    return Answer(
        tuple(Item(item) for item in results if not _is_summary(item)),
        "\n".join(as_text(item.get("text")) for item in results if _is_summary(item)),
        _parse_understood(meta),
        tuple(as_texts(meta.get("notes"))),
        as_object(meta.get("cost")),
        session,
        tuple(error for error in troubles if error.code != "NO_RESULTS"),
    )


def _is_summary(item: Mapping[str, Any]) -> bool:
    return item.get("@type") == "SearchSummary"


def _parse_understood(meta: Mapping[str, Any]) -> Understood:
    reading = as_object(meta.get("understood"))
    constraints = tuple(
        Constraint(as_text(item.get("field")), as_text(item.get("says")), as_text(item.get("words")))
        for item in as_objects(reading.get("constraints"))
    )
    text, ignored = as_text(meta.get("decontextualized_query")), tuple(as_texts(meta.get("ignored")))
    return Understood(text, tuple(as_texts(reading.get("collections"))), constraints, ignored)


def _session(meta: Mapping[str, Any]) -> Session | None:
    context = as_object(meta.get("session_context"))
    return Session(context) if context else None


# Streams


class ResponseReader:
    """Turns the chunks of a response into events, whether it is a stream or not. Limits its size."""

    def __init__(self, largest: int) -> None:
        self._left = largest
        self._head = ResponseHead(0, "", "")
        self._plain: list[bytes] = []
        self._frames = SseDecoder()
        self._first = _ResponseBody()
        self._results: dict[int, Mapping[str, Any]] = {}
        self._troubles: list[AskFailed] = []
        self.is_complete = False

    def take(self, piece: ResponseHead | bytes) -> Iterator[Event]:
        if isinstance(piece, ResponseHead):
            self._head = piece
            return
        self._left -= len(piece)
        if self._left < 0:
            raise BadAnswer("The response is too large")
        if not self._is_stream:
            self._plain.append(piece)
            return
        for name, data in self._frames.feed(piece):
            if name in EVENTS:
                yield from self._handle_event(name, _parse_body(data))

    def finish(self) -> Iterator[Event]:
        """Yield the remaining events after the last chunk."""
        if not self._is_stream:
            yield from _response_events(_parse_response(self._head, b"".join(self._plain)))
        elif not self.is_complete:
            raise self._troubles[-1] if self._troubles else NotReached("The response ended early")

    @property
    def _is_stream(self) -> bool:
        return self._head.status < 300 and self._head.kind == "text/event-stream"

    def _handle_event(self, name: str, body: _ResponseBody) -> Iterator[Event]:
        if self.is_complete:
            return
        match name:
            case "start":
                self._first = body
                yield Started(_parse_understood(body.meta))
            case "result":
                self._results[body.index] = body.item
                yield _item_event(body)
            case "error" if body.error:
                self._troubles.append(_ask_failed(body.error, self._head.status))
            case "complete":
                self.is_complete = True
                response = _assemble(self._first, self._results.items(), body, self._troubles)
                yield Completed(response) if isinstance(response, Answer) else response
            case _:
                pass


def _item_event(body: _ResponseBody) -> ItemFound | Summary:
    if _is_summary(body.item):
        return Summary(as_text(body.item.get("text")))
    return ItemFound(body.index, Item(body.item))


def _response_events(response: Response) -> Iterator[Event]:
    if not isinstance(response, Answer):
        yield response
        return
    yield Started(response.understood)
    if response.summary:
        yield Summary(response.summary)
    yield from (ItemFound(index, item) for index, item in enumerate(response.items))
    yield Completed(response)
