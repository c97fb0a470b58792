"""Parses the requests of NLWeb clients into an Ask. Tolerates what can do no harm."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast, get_args

import msgspec

from portico.config import AskSettings
from portico.errors import BadRequest
from portico.items import MAX_EXACT_INTEGER
from portico.protocols import ActionForm
from portico.protocols.nlweb.dialects import FLAT, V54, ClientInfo, Format
from portico.protocols.nlweb.errors import InvalidAction, MissingField, UnsupportedFormat, UnsupportedMode
from portico.protocols.schemas import Schema, whole_schema
from portico.requests import Ask, Mode

S = TypeVar("S", bound=msgspec.Struct)

FORMATS: Mapping[str, Format] = {
    "conversational_search": "conversational_search",
    "conv_search": "conversational_search",
    "chatgpt_app": "chatgpt_app",
}
MODES: Mapping[str, frozenset[Mode]] = {
    "none": frozenset({"list"}),  # the flat dialect's word for a plain list
    "list": frozenset({"list"}),
    "summarize": frozenset({"list", "summarize"}),  # adds a summary: by itself it lists too
    "generate": frozenset({"list", "generate"}),
}
PAGE_HINTS = ("max_results", "limit", "num_results")  # the first that is given counts
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*\Z")


def _meta(description: str = "", **schema: Any) -> msgspec.Meta:
    """Return what the schema publishes of a member that is parsed more leniently."""
    return msgspec.Meta(description=description or None, extra_json_schema=schema or None)


class AskQuery(msgspec.Struct, frozen=True):
    """The section `query`. All further attributes are filters."""

    text: Annotated[str | None, _meta("The question, in plain words")] = None
    site: Annotated[Any, _meta("Collection to look in", type="string")] = None
    item_type: Annotated[Any, _meta("schema.org type, e.g. Recipe", type="string")] = msgspec.field(
        name="itemType", default=None
    )


class ContextBody(msgspec.Struct, frozen=True):
    """The section `context`. Further members belong to a context type of the caller's own."""

    prev: Annotated[
        str | list[str] | None, _meta("Earlier questions, oldest first", type="array", items={"type": "string"})
    ] = None
    text: Annotated[str | None, _meta("What the talk is about")] = None
    memory: Annotated[str | list[str] | None, _meta("Lasting wishes: vegetarian", type="string")] = None
    answers: Annotated[dict[str, Any] | None, _meta("Answers to an elicitation, by question id")] = None


class Prefer(msgspec.Struct, frozen=True):
    streaming: bool | None = None
    response_format: Annotated[str | list[str] | None, _meta("conversational_search or chatgpt_app", type="string")] = (
        None
    )
    mode: Annotated[str | list[str] | None, _meta("list, summarize, generate", type="string")] = None
    language: Annotated[str | None, _meta("e.g. en")] = msgspec.field(name="accept-language", default=None)
    growing: Annotated[bool | None, _meta("Stream a summary as it is written")] = msgspec.field(
        name="portico_text", default=None
    )
    acts: Annotated[bool | None, _meta("false: answer only, and run no operation")] = msgspec.field(
        name="portico_act", default=None
    )

    actions: Annotated[str | list[str] | None, _meta("Form of actions: HTTP, MCP, A2A", type="string")] = msgspec.field(
        name="portico_actions", default=None
    )


class SessionContext(msgspec.Struct, frozen=True):
    """The session that a client sends back. Nothing in it is trusted."""

    conversation_id: Annotated[Any, _meta(type="string")] = None
    state_token: Annotated[Any, _meta(type="string")] = None


class RequestMeta(msgspec.Struct, frozen=True):
    """The section `meta`. `user` is a label with which a caller tells its users apart; it grants nothing."""

    version: Annotated[str | float | None, _meta("0.55", type="string")] = None
    api_version: Annotated[str | float | None, _meta("0.54", type="string")] = None
    session_context: Annotated[SessionContext | None, _meta("As the last answer gave it in _meta")] = None
    user: Annotated[Any, _meta("Whom you ask for; with an API key", type="string")] = None
    remember: Annotated[bool | None, _meta("Keep this for next time")] = None
    start_num: Annotated[Any, _meta("Items to skip", type="integer")] = None


class AskBody(msgspec.Struct, frozen=True):
    query: dict[str, Any] | str
    context: dict[str, Any] | str | None = None
    prefer: Prefer | None = None
    meta: RequestMeta | None = None


class AwaitBody(msgspec.Struct, frozen=True):
    promise_token: Annotated[str | None, _meta("Of a promise")] = None
    action: Annotated[Any, _meta(type="string", enum=["checkin", "cancel"])] = None
    prefer: Prefer | None = None
    meta: RequestMeta | None = None


def ask_schema() -> Schema:
    """Return the schema of `ask` (A.1). The parser tolerates more, such as a string for an object, or null."""
    schema = whole_schema(AskBody)
    members: dict[str, Schema] = {
        **schema["properties"],
        "query": whole_schema(AskQuery, ("text",)),
        "context": whole_schema(ContextBody),
    }
    return {
        **schema,
        "properties": {name: {"description": _SECTIONS[name], **section} for name, section in members.items()},
    }


def await_schema() -> Schema:
    """Return the schema of `await` (A.2). Its sections are those of `ask`, and not repeated."""
    schema = whole_schema(AwaitBody, ("promise_token", "action"))
    members: dict[str, Schema] = schema["properties"]
    properties = {name: {"type": "object"} if name in _SECTIONS else section for name, section in members.items()}
    return {**schema, "properties": properties}


_SECTIONS = {
    "query": "The question; further attributes filter, e.g. price",
    "context": "What came before",
    "prefer": "How to answer",
    "meta": "Version and session",
}


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A parsed request: the question, and how to answer it."""

    client: ClientInfo
    ask: Ask
    format: Format
    streaming: bool | None  # None: not said
    session: SessionContext
    has_previous: bool  # the caller sent the earlier questions itself
    memory_text: str = ""  # what the flat dialect asks to remember
    ignored: tuple[str, ...] = ()
    streams_text: bool = False  # stream a summary piece by piece, too
    user: Any = None
    action_forms: tuple[ActionForm, ...] = ()  # empty: those of the binding


@dataclass(frozen=True, slots=True)
class AwaitRequest:
    """A request to check a promise, or to cancel it."""

    client: ClientInfo
    token: str
    cancel: bool
    streaming: bool | None
    format: Format
    session: SessionContext
    streams_text: bool = False
    user: Any = None
    action_forms: tuple[ActionForm, ...] = ()


def parse_await(raw: Any, client: ClientInfo) -> AwaitRequest:
    body = _convert(_object(raw), AwaitBody)
    if not body.promise_token:
        raise MissingField("`promise_token` is missing", hint="Send the token of a promise.")
    if body.action not in ("checkin", "cancel"):  # anything may stand there, also what has no hash
        raise InvalidAction("`action` must be `checkin` or `cancel`", hint='Send "action": "checkin" or "cancel".')
    prefer = body.prefer or Prefer()
    meta = body.meta or RequestMeta()
    return AwaitRequest(
        client,
        body.promise_token,
        body.action == "cancel",
        prefer.streaming,
        _format(prefer, client),
        meta.session_context or SessionContext(),
        bool(prefer.growing),
        meta.user,
        _action_forms(prefer, []),
    )


def parse_ask(raw: Any, client: ClientInfo, settings: AskSettings, language: str = "") -> AskRequest:
    """Parse a question in any dialect. `language` is the Accept-Language of the transport."""
    flat = client.dialect is FLAT
    members = _object(raw)
    if client.dialect is V54 and isinstance(members.get("query"), str):
        raise BadRequest("`query` must be an object, not a string", hint=_HINTS["query"])
    body = _convert(nest_flat_request(members) if flat else members, AskBody)
    memory_text = _text(members.get("item_to_remember")) if flat else ""
    if not any(character.isalnum() for character in memory_text):
        memory_text = ""  # the known page sends bare commas if there is nothing
    return _AskParser(body, client, settings, language).parse(memory_text)


class _AskParser:
    """Parses one body, and collects the attributes that are ignored."""

    def __init__(self, body: AskBody, client: ClientInfo, settings: AskSettings, language: str) -> None:
        self._client = client
        self._settings = settings
        self._header_language = language
        self._ignored: list[str] = []
        query = body.query if isinstance(body.query, dict) else {"text": body.query}
        raw_context = body.context if body.context is not None else {}
        context = raw_context if isinstance(raw_context, dict) else {"text": raw_context}
        self._attributes = query
        self._query = _convert(query, AskQuery, "query")
        self._profile = {name: value for name, value in context.items() if name not in _OF_CONTEXT}
        self._context = _convert(context, ContextBody, "context")
        self._prefer = body.prefer or Prefer()
        self._meta = body.meta or RequestMeta()

    def parse(self, remembers: str) -> AskRequest:
        ask = self._ask(remembers)
        action_forms = _action_forms(self._prefer, self._ignored)
        return AskRequest(
            self._client,
            ask,
            _format(self._prefer, self._client),
            self._prefer.streaming,
            self._meta.session_context or SessionContext(),
            self._context.prev is not None,
            remembers,
            tuple(self._ignored),
            bool(self._prefer.growing),
            self._meta.user,
            action_forms,
        )

    def _ask(self, remembers: str) -> Ask:
        memory = (*_texts(self._context.memory), *([remembers] if remembers else []))
        return Ask(
            self._query.text or "",
            filters=self._filters(),
            previous=_texts(self._context.prev),
            background=self._context.text or "",
            memory=memory,
            profile=self._profile,
            answers=self._context.answers or {},
            modes=self._modes(),
            limit=self._limit(),
            start=self._start(),
            language=self._language(),
            may_clarify=self._settings.clarify,
            may_act=self._prefer.acts is not False,
            remember=bool(self._meta.remember or remembers),
        )

    def _filters(self) -> dict[str, Any]:
        own = {"text", *PAGE_HINTS}
        return {name: value for name, value in self._attributes.items() if name not in own and value is not None}

    def _limit(self) -> int:
        hints = {name: self._attributes[name] for name in PAGE_HINTS if self._attributes.get(name) is not None}
        counts = {name: count for name, value in hints.items() if (count := _count(value)) is not None and count > 0}
        self._ignored.extend(f"query.{name}" for name in hints if name not in counts)
        limit = next(iter(counts.values()), self._settings.items)
        return min(limit, self._settings.most)

    def _start(self) -> int:
        value = self._meta.start_num
        count = _count(value)
        if value is not None and count is None:
            self._ignored.append("meta.start_num")
        return count or 0

    def _language(self) -> str:
        preference = self._prefer.language
        if preference is None:
            return first_language(self._header_language)
        language = first_language(preference)
        if preference.strip() and not language:
            self._ignored.append("prefer.accept-language")
        return language

    def _modes(self) -> frozenset[Mode]:
        names = _split_names(self._prefer.mode)
        modes = [MODES[name] for name in names if name in MODES]
        if names and not modes:
            raise UnsupportedMode(
                f"`prefer.mode` names no supported mode: {_quote_names(names)}",
                hint="Use list, summarize or generate.",
            )
        self._ignored.extend(f"prefer.mode {name[:40]}" for name in names if name not in MODES)
        return frozenset[Mode]({"list"}).union(*modes)


def _format(prefer: Prefer, client: ClientInfo) -> Format:
    names = _split_names(prefer.response_format)
    if not names:
        return client.dialect.format
    for name in names:
        if name in FORMATS:
            return FORMATS[name]
    raise UnsupportedFormat(
        f"`prefer.response_format` names no supported format: {_quote_names(names)}",
        hint="Use conversational_search or chatgpt_app.",
    )


def _action_forms(prefer: Prefer, ignored: list[str]) -> tuple[ActionForm, ...]:
    """Return the preferred forms of actions. Unknown names are added to `ignored`."""
    names = _split_names(prefer.actions)
    ignored.extend(f"prefer.portico_actions {name[:40]}" for name in names if name.upper() not in ACTION_FORMS)
    return tuple(dict.fromkeys(ACTION_FORMS[name.upper()] for name in names if name.upper() in ACTION_FORMS))


ACTION_FORMS: Mapping[str, ActionForm] = {form: form for form in get_args(ActionForm)}
_OF_CONTEXT = frozenset({"@type", "@context", "prev", "text", "memory", "answers"})


def check_text(text: str) -> None:
    if not text.strip():
        raise BadRequest("`query.text` is missing or empty", hint=_HINTS["query.text"])


# The flat dialect


class FlatBody(msgspec.Struct, frozen=True):
    """The members with a meaning of their own; every other is a filter. In a URL or a form all are strings."""

    query: Annotated[str, _meta("The question, in plain words")]
    prev: Annotated[Any, _meta("Earlier questions: a JSON array, or one question", type="string")] = None
    context: Annotated[Any, _meta("What the talk is about", type="string")] = None
    memory: Annotated[str | list[str] | None, _meta("What is known of the person: vegetarian", type="string")] = None
    streaming: Annotated[Any, _meta("Events as they come, unless false", type="boolean")] = None
    generate_mode: Annotated[str | None, _meta("none, list, summarize or generate")] = None
    mode: Annotated[str | list[str] | None, _meta("The same, for who does not say generate_mode", type="string")] = None
    response_format: Annotated[str | list[str] | None, _meta("conversational_search or chatgpt_app", type="string")] = (
        None
    )
    query_id: Annotated[Any, _meta("Comes back with every message", type="string")] = None
    decontextualized_query: Annotated[Any, _meta("The question so that it stands alone", type="string")] = None
    item_to_remember: Annotated[Any, _meta("What to remember of the person", type="string")] = None
    remember: Annotated[Any, _meta("Keep this for next time", type="boolean")] = None
    start_num: Annotated[Any, _meta("Items to skip", type="integer")] = None


_FLAT_META = frozenset({"remember", "start_num"})
_NOT_FILTERS = frozenset(
    {
        *FlatBody.__struct_fields__,
        *("meta", "prefer"),
        "context_url",  # never fetched: a request must not make the server call other hosts
    }
)


def flat_schema() -> Schema:
    return whole_schema(FlatBody)


def nest_flat_request(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat request in the nested form. Its values may be strings, as in the query of a URL."""
    if flat.get("query") is None:
        raise BadRequest("`query` is missing", hint="Send the question, in plain words, as `query`.")
    if not isinstance(flat["query"], str):
        raise BadRequest("`query` must be a string", hint="Send one question, in plain words.")
    filters = {name: value for name, value in flat.items() if name not in _NOT_FILTERS and value != ""}
    query = {name: _number(value) if name in PAGE_HINTS else value for name, value in filters.items()}
    # A question that the client rewrote is only a hint: the question itself stays as it was sent.
    background = " ".join(filter(None, (_text(flat.get("context")), _text(flat.get("decontextualized_query")))))
    context = {"prev": _previous(flat.get("prev")), "text": background, "memory": flat.get("memory")}
    prefer = {
        "streaming": _switch(flat.get("streaming")),
        "mode": flat.get("generate_mode") or flat.get("mode"),
        "response_format": flat.get("response_format"),
    }
    meta = {name: flat[name] for name in _FLAT_META if name in flat}
    meta["start_num"] = _number(meta.get("start_num"))
    meta["remember"] = _switch(meta.get("remember"))
    return {"query": {**query, "text": flat["query"]}, "context": context, "prefer": prefer, "meta": meta}


def _previous(value: Any) -> list[str] | None:
    """Return the earlier questions from a list, a JSON array in a string, or one question."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [value]
    several: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [question for question in several if isinstance(question, str) and question.strip()] or None


def _switch(value: Any) -> bool | None:
    """Return a boolean as URLs write it."""
    if value is None or value == "":
        return None
    return str(value).strip().lower() not in {"false", "0"}


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 16 else value


# Small things


def first_language(header: str) -> str:
    """Return the preferred language of a list such as `de-CH, en;q=0.8`; empty if it names none."""
    best: list[tuple[float, str]] = []
    for part in header[:200].split(","):
        tag, _, quality = part.strip().partition(";")
        weight = re.match(r"\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*\Z", quality)
        weight_value = float(weight[1]) if weight else 1.0
        if _LANGUAGE.match(tag.strip()) and weight_value > 0:
            best.append((weight_value, tag.strip()))
    return max(best, key=lambda choice: choice[0], default=(0.0, ""))[1]


def _count(value: Any) -> int | None:
    """Return an integer of at least 0, also if it is written as 9.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_EXACT_INTEGER and value == int(value) else None


def _texts(value: str | list[str] | None) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value or []
    return tuple(text for text in texts if text.strip())


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _split_names(value: str | Sequence[str] | None) -> list[str]:
    parts = [value] if isinstance(value, str) else value or []
    return [name.strip() for part in parts for name in part.split(",") if name.strip()]


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in names[:5])


def _object(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise BadRequest("The request is not a JSON object", hint=_HINTS["query"])
    return cast("dict[str, Any]", raw)


_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
}
_HINTS = {
    "query": 'Send {"query": {"text": "…"}}.',
    "query.text": "Send the question, in plain words, as query.text.",
}
_EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: - at `\$?([^`]*)`)?\Z")
_MISSING = re.compile(r"Object missing required field `([^`]+)`(?: - at `\$?([^`]*)`)?\Z")


def _convert(raw: Mapping[str, Any], kind: type[S], place: str = "") -> S:
    """Convert raw members to a type. Errors name the member as the request does."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), place) from error


def _explain(message: str, place: str) -> BadRequest:
    if missing := _MISSING.match(message):
        where = _where(place, f"{missing[2] or ''}.{missing[1]}")
        return BadRequest(f"{where} is missing", hint=_HINTS.get(where))
    if expected := _EXPECTED.match(message):
        where = _where(place, expected[3] or "")
        types = [_WORDS.get(name, name) for name in expected[1].split(" | ") if name != "null"]
        request = _WORDS.get(expected[2], expected[2])
        hint = _HINTS.get(where, "Correct it, or leave it out.")
        return BadRequest(f"{where} must be {' or '.join(types)}, not {request}", hint=hint)
    return BadRequest(f"The request cannot be read: {message}")


def _where(place: str, path: str) -> str:
    return f"{place}{path}".replace("[...]", "[]").lstrip(".") or "the request"
