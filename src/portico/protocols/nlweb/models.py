"""Requests as NLWeb clients write them, and what they mean as an Ask. Reads leniently what cannot do harm."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast, get_args

import msgspec

from portico.config import ActionForm, Asking
from portico.errors import BadRequest
from portico.protocols.nlweb.dialects import FLAT, V54, Format, Voice
from portico.protocols.nlweb.errors import InvalidAction, MissingField, UnsupportedFormat, UnsupportedMode
from portico.protocols.nlweb.schema import Schema, whole_schema
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


def _says(description: str = "", **schema: Any) -> msgspec.Meta:
    """What is published of a member that is read more leniently."""
    return msgspec.Meta(description=description or None, extra_json_schema=schema or None)


class Query(msgspec.Struct, frozen=True):
    """The rest of its attributes are filters."""

    text: Annotated[str | None, _says("The question, in plain words")] = None
    site: Annotated[Any, _says("Collection to look in", type="string")] = None
    item_type: Annotated[Any, _says("schema.org type, e.g. Recipe", type="string")] = msgspec.field(
        name="itemType", default=None
    )


class Context(msgspec.Struct, frozen=True):
    """Whatever else it holds belongs to a kind of context of the caller's own."""

    prev: Annotated[
        str | list[str] | None, _says("Earlier questions, oldest first", type="array", items={"type": "string"})
    ] = None
    text: Annotated[str | None, _says("What the talk is about")] = None
    memory: Annotated[str | list[str] | None, _says("Lasting wishes: vegetarian", type="string")] = None
    answers: Annotated[dict[str, Any] | None, _says("Answers to an elicitation, by question id")] = None


class Prefer(msgspec.Struct, frozen=True):
    streaming: bool | None = None
    response_format: Annotated[str | list[str] | None, _says("conversational_search or chatgpt_app", type="string")] = (
        None
    )
    mode: Annotated[str | list[str] | None, _says("list, summarize, generate", type="string")] = None
    language: Annotated[str | None, _says("e.g. en")] = msgspec.field(name="accept-language", default=None)
    growing: Annotated[bool | None, _says("Stream a summary as it is written")] = msgspec.field(
        name="portico_text", default=None
    )
    acts: Annotated[bool | None, _says("false: answer only, and run no operation")] = msgspec.field(
        name="portico_act", default=None
    )

    actions: Annotated[str | list[str] | None, _says("Form of actions: HTTP, MCP, A2A", type="string")] = msgspec.field(
        name="portico_actions", default=None
    )


class Session(msgspec.Struct, frozen=True):
    """What a client brings back. Untrusted, whatever it says."""

    conversation_id: Annotated[Any, _says(type="string")] = None
    state_token: Annotated[Any, _says(type="string")] = None


class Meta(msgspec.Struct, frozen=True):
    """`user` is a label of the caller's. It tells its users apart, and says nothing of who asks."""

    version: Annotated[str | float | None, _says("0.55", type="string")] = None
    api_version: Annotated[str | float | None, _says("0.54", type="string")] = None
    session_context: Annotated[Session | None, _says("As the last answer gave it in _meta")] = None
    user: Annotated[Any, _says("Whom you ask for; with an API key", type="string")] = None
    remember: Annotated[bool | None, _says("Keep this for next time")] = None
    start_num: Annotated[Any, _says("Items to skip", type="integer")] = None


class Body(msgspec.Struct, frozen=True):
    query: dict[str, Any] | str
    context: dict[str, Any] | str | None = None
    prefer: Prefer | None = None
    meta: Meta | None = None


class Awaiting(msgspec.Struct, frozen=True):
    promise_token: Annotated[str | None, _says("Of a promise")] = None
    action: Annotated[Any, _says(type="string", enum=["checkin", "cancel"])] = None
    prefer: Prefer | None = None
    meta: Meta | None = None


def ask_schema() -> Schema:
    """What `ask` takes, in one piece (A.1). Reading it forgives more: a text for an object, null, one for several."""
    schema = whole_schema(Body)
    members: dict[str, Schema] = {
        **schema["properties"],
        "query": whole_schema(Query, ("text",)),
        "context": whole_schema(Context),
    }
    return {**schema, "properties": {name: {"description": _SECTIONS[name], **each} for name, each in members.items()}}


def await_schema() -> Schema:
    """What `await` takes (A.2). The insides of its sections are those of `ask`, and not said again."""
    schema = whole_schema(Awaiting, ("promise_token", "action"))
    members: dict[str, Schema] = schema["properties"]
    said = {name: {"type": "object"} if name in _SECTIONS else each for name, each in members.items()}
    return {**schema, "properties": said}


_SECTIONS = {
    "query": "The question; further attributes filter, e.g. price",
    "context": "What came before",
    "prefer": "How to answer",
    "meta": "Version and session",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """A request as it was read: the question, and how its answer is wanted."""

    voice: Voice
    ask: Ask
    format: Format
    streaming: bool | None  # None: not said
    session: Session
    has_previous: bool  # the caller told the questions before, so that nobody needs to remember them
    remembers: str = ""  # what the flat dialect says is to be remembered
    ignored: tuple[str, ...] = ()
    growing: bool = False  # a summary is wanted piece by piece too
    user: Any = None
    action_forms: tuple[ActionForm, ...] = ()  # empty: those of the binding


@dataclass(frozen=True, slots=True)
class Checkin:
    """A look at a promise, or its cancellation."""

    voice: Voice
    token: str
    cancel: bool
    streaming: bool | None
    format: Format
    session: Session
    growing: bool = False
    user: Any = None
    action_forms: tuple[ActionForm, ...] = ()


def read_await(raw: Any, voice: Voice) -> Checkin:
    body = _converted(_object(raw), Awaiting)
    if not body.promise_token:
        raise MissingField("promise_token is missing", hint="Send the token of a promise.")
    if body.action not in ("checkin", "cancel"):  # anything may stand there, also what has no hash
        raise InvalidAction("action is neither checkin nor cancel", hint='Send "action": "checkin" or "cancel".')
    prefer = body.prefer or Prefer()
    meta = body.meta or Meta()
    return Checkin(
        voice,
        body.promise_token,
        body.action == "cancel",
        prefer.streaming,
        _format(prefer, voice),
        meta.session_context or Session(),
        bool(prefer.growing),
        meta.user,
        _action_forms(prefer, []),
    )


def read_ask(raw: Any, voice: Voice, settings: Asking, language: str = "") -> Wish:
    """A question in any dialect. `language` is what the transport says of it."""
    flat = voice.dialect is FLAT
    told = _object(raw)
    if voice.dialect is V54 and isinstance(told.get("query"), str):
        raise BadRequest("query must be an object, not a text", hint=_HINTS["query"])
    body = _converted(nested(told) if flat else told, Body)
    return _Reading(body, voice, settings, language).wish(_remembered(told) if flat else "")


def _remembered(flat: Mapping[str, Any]) -> str:
    """What is to be remembered. A page that has nothing sends the commas between its nothings."""
    said = _text(flat.get("item_to_remember"))
    return said if any(each.isalnum() for each in said) else ""


class _Reading:
    """Reads one body, and keeps note of what had no meaning."""

    def __init__(self, body: Body, voice: Voice, settings: Asking, language: str) -> None:
        self._voice = voice
        self._settings = settings
        self._header_language = language
        self._ignored: list[str] = []
        query = body.query if isinstance(body.query, dict) else {"text": body.query}
        given = body.context if body.context is not None else {}
        context = given if isinstance(given, dict) else {"text": given}
        self._attributes = query
        self._query = _converted(query, Query, "query")
        self._profile = {name: value for name, value in context.items() if name not in _OF_CONTEXT}
        self._context = _converted(context, Context, "context")
        self._prefer = body.prefer or Prefer()
        self._meta = body.meta or Meta()

    def wish(self, remembers: str) -> Wish:
        ask = self._ask(remembers)
        action_forms = _action_forms(self._prefer, self._ignored)
        return Wish(
            self._voice,
            ask,
            _format(self._prefer, self._voice),
            self._prefer.streaming,
            self._meta.session_context or Session(),
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
        given = {name: self._attributes[name] for name in PAGE_HINTS if self._attributes.get(name) is not None}
        counts = {name: count for name, value in given.items() if (count := _count(value)) is not None and count > 0}
        self._ignored.extend(f"query.{name}" for name in given if name not in counts)
        wanted = next(iter(counts.values()), self._settings.items)
        return min(wanted, self._settings.most)

    def _start(self) -> int:
        given = self._meta.start_num
        count = _count(given)
        if given is not None and count is None:
            self._ignored.append("meta.start_num")
        return count or 0

    def _language(self) -> str:
        said = self._prefer.language
        if said is None:
            return first_language(self._header_language)
        found = first_language(said)
        if said.strip() and not found:
            self._ignored.append("prefer.accept-language")
        return found

    def _modes(self) -> frozenset[Mode]:
        named = _listed(self._prefer.mode)
        known = [MODES[name] for name in named if name in MODES]
        if named and not known:
            raise UnsupportedMode(
                f"prefer.mode names no mode that is known here: {_shown(named)}",
                hint="Use list, summarize or generate.",
            )
        self._ignored.extend(f"prefer.mode {name[:40]}" for name in named if name not in MODES)
        return frozenset[Mode]({"list"}).union(*known)


def _format(prefer: Prefer, voice: Voice) -> Format:
    named = _listed(prefer.response_format)
    if not named:
        return voice.dialect.format
    for name in named:
        if name in FORMATS:
            return FORMATS[name]
    raise UnsupportedFormat(
        f"prefer.response_format names no format that is known here: {_shown(named)}",
        hint="Use conversational_search or chatgpt_app.",
    )


def _action_forms(prefer: Prefer, ignored: list[str]) -> tuple[ActionForm, ...]:
    """The forms in which actions are wanted. Names of unknown ones are added to what is ignored."""
    named = _listed(prefer.actions)
    ignored.extend(f"prefer.portico_actions {name[:40]}" for name in named if name.upper() not in ACTION_FORMS)
    return tuple(dict.fromkeys(ACTION_FORMS[name.upper()] for name in named if name.upper() in ACTION_FORMS))


ACTION_FORMS: Mapping[str, ActionForm] = {form: form for form in get_args(ActionForm)}
_OF_CONTEXT = frozenset({"@type", "@context", "prev", "text", "memory", "answers"})


def check_text(text: str) -> None:
    if not text.strip():
        raise BadRequest("query.text is missing or empty", hint=_HINTS["query.text"])


# The flat dialect


class FlatBody(msgspec.Struct, frozen=True):
    """The members that mean something by themselves; every other is a filter. In a URL or a form all are texts."""

    query: Annotated[str, _says("The question, in plain words")]
    prev: Annotated[Any, _says("Earlier questions: a JSON array, or one question", type="string")] = None
    context: Annotated[Any, _says("What the talk is about", type="string")] = None
    memory: Annotated[str | list[str] | None, _says("What is known of the person: vegetarian", type="string")] = None
    streaming: Annotated[Any, _says("Events as they come, unless false", type="boolean")] = None
    generate_mode: Annotated[str | None, _says("none, list, summarize or generate")] = None
    mode: Annotated[str | list[str] | None, _says("The same, for who does not say generate_mode", type="string")] = None
    response_format: Annotated[str | list[str] | None, _says("conversational_search or chatgpt_app", type="string")] = (
        None
    )
    query_id: Annotated[Any, _says("Comes back with every message", type="string")] = None
    decontextualized_query: Annotated[Any, _says("The question so that it stands alone", type="string")] = None
    item_to_remember: Annotated[Any, _says("What to remember of the person", type="string")] = None
    remember: Annotated[Any, _says("Keep this for next time", type="boolean")] = None
    start_num: Annotated[Any, _says("Items to skip", type="integer")] = None


_FLAT_META = frozenset({"remember", "start_num"})
_NOT_FILTERS = frozenset(
    {
        *FlatBody.__struct_fields__,
        *("meta", "prefer"),
        "context_url",  # never fetched: nobody sends Portico anywhere
    }
)


def flat_schema() -> Schema:
    return whole_schema(FlatBody)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A flat request in the nested form. Its values may be texts, as from the query of a URL."""
    if flat.get("query") is None:
        raise BadRequest("query is missing", hint="Send the question, in plain words, as query.")
    if not isinstance(flat["query"], str):
        raise BadRequest("query must be a text", hint="Send one question, in plain words.")
    filters = {name: value for name, value in flat.items() if name not in _NOT_FILTERS and value != ""}
    query = {name: _number(value) if name in PAGE_HINTS else value for name, value in filters.items()}
    # A question that the client made to stand alone is a hint: what was asked stays what was asked.
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


def _previous(given: Any) -> list[str] | None:
    """Earlier questions: a list, a JSON array in a text, or one question."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [given]
    several: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given]
    return [each for each in several if isinstance(each, str) and each.strip()] or None


def _switch(given: Any) -> bool | None:
    """A yes or no as URLs write it."""
    if given is None or given == "":
        return None
    return str(given).strip().lower() not in {"false", "0"}


def _number(given: Any) -> Any:
    return int(given) if isinstance(given, str) and given.isdecimal() and len(given) < 16 else given


# Small things


def first_language(said: str) -> str:
    """The language that a list such as `de-CH, en;q=0.8` likes best; empty if it names none."""
    best: list[tuple[float, str]] = []
    for part in said[:200].split(","):
        tag, _, quality = part.strip().partition(";")
        weight = re.match(r"\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*\Z", quality)
        liked = float(weight[1]) if weight else 1.0
        if _LANGUAGE.match(tag.strip()) and liked > 0:
            best.append((liked, tag.strip()))
    return max(best, key=lambda each: each[0], default=(0.0, ""))[1]


def _count(value: Any) -> int | None:
    """A whole number from 0 on, also if it is written as 9.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 and value == int(value) else None


def _texts(value: str | list[str] | None) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value or []
    return tuple(each for each in given if each.strip())


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _listed(value: str | Sequence[str] | None) -> list[str]:
    parts = [value] if isinstance(value, str) else value or []
    return [name.strip() for part in parts for name in part.split(",") if name.strip()]


def _shown(names: Sequence[str]) -> str:
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


def _converted(raw: Mapping[str, Any], kind: type[S], place: str = "") -> S:
    """Raw members as a type; what does not fit is said in the words of the request."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), place) from error


def _explained(said: str, place: str) -> BadRequest:
    if missing := _MISSING.match(said):
        where = _where(place, f"{missing[2] or ''}.{missing[1]}")
        return BadRequest(f"{where} is missing", hint=_HINTS.get(where))
    if expected := _EXPECTED.match(said):
        where = _where(place, expected[3] or "")
        wanted = [_WORDS.get(each, each) for each in expected[1].split(" | ") if each != "null"]
        got = _WORDS.get(expected[2], expected[2])
        hint = _HINTS.get(where, "Correct it, or leave it out.")
        return BadRequest(f"{where} must be {' or '.join(wanted)}, not {got}", hint=hint)
    return BadRequest(f"The request cannot be read: {said}")


def _where(place: str, path: str) -> str:
    return f"{place}{path}".replace("[...]", "[]").lstrip(".") or "the request"
