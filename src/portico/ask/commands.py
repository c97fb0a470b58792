"""Operations that a question asks for: "plan a day in town on Saturday". Reads words into parameters; runs nothing.

Only what is plainly a command counts: it begins with the operation's own verb, or with one that makes things, its
object follows, and nothing denies, quotes or asks about it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, cast

from portico.ask.events import Question
from portico.ask.languages.localization import Phrases
from portico.ask.outcomes import render_moment
from portico.ask.understanding.fields import id_param_names, key_of, words_of
from portico.ask.understanding.parsers import DateRange, Finding, Quantity, parse_question
from portico.ask.understanding.request_attributes import is_yes, render_value
from portico.catalog import Danger, Kind, Operation
from portico.items import Item, title_of
from portico.operations import schema_of
from portico.search.index.text import words

# Verbs that have anything made or done, whatever its name.
CREATION_VERBS = frozenset(
    {"create", "make", "prepare", "generate", "build", "produce", "start", "run", "begin", "launch", "do", "compile",
     "draft", "write", "erstelle", "mache", "starte", "crea", "haz", "inicia", "crée", "fais", "lance"}
)  # fmt: skip
VERB_SYNONYMS = {
    "book": frozenset({"reserve", "buche", "reserviere", "reserva", "réserve"}),
    "reserve": frozenset({"book"}),
    "plan": frozenset({"arrange", "organise", "organize", "plane", "planea", "planifie", "analyse", "analyze"}),
    "order": frozenset({"buy", "bestelle", "pide", "commande"}),
    "cancel": frozenset({"storniere", "cancela", "annule"}),
    "add": frozenset({"put", "lege"}),
}
# What politeness puts before a command.
_POLITE = re.compile(
    r"^(?:please|kindly|hey|hi|hello|now|then|just|so|ok|okay|bitte|por favor|s'il (?:te|vous) pla[iî]t"
    r"|(?:can|could|would|will) you|i(?:'d| would) like (?:you )?to|i (?:want|need) (?:you )?to|let'?s"
    r"|kannst du|könntest du|ich möchte|puedes|quiero|peux-tu|pouvez-vous|veuillez|je voudrais)[\s,]+",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;.]|\band\b|\bthen\b|\bund\b|\by\b|\bet\b", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:not|never|don'?t|do not|no longer|nicht|kein\w*|nunca|jamais)\b|[\"“”„«»]", re.IGNORECASE)
# Words that point at an object, and words that may follow one.
_POINTERS = frozenset(
    """a an the my our your this that these those some one another me us ein eine einen der die das den mein meine un
    una el la los las mi le les des ma mon""".split()  # noqa: SIM905 - a list of words is read as words
)
_LINKS = _POINTERS | frozenset(
    """for at on in to from with about around by into onto and then please now today tomorrow tonight next as via using
    under over before after until including für um am im mit para con en pour avec à de du""".split()  # noqa: SIM905
)
_SUBJECTS = frozenset({"i", "you", "we", "they", "he", "she", "it", "who", "which", "where", "what", "of"})
NAME_STOPWORDS = frozenset({"to", "from", "a", "an", "the", "of", "for", "my", "in", "on", "and", "with"})
MAX_BETWEEN = 4  # words that may describe an object: "a personalised weekly meal plan"
_LISTED = re.compile(
    r"\b(?:about|around|with|like|love|enjoy|interests?|interested in)[:\s]+(.{2,200})$", re.IGNORECASE
)
_PARTS = re.compile(r"\s*(?:,|;|\band\b|\bund\b|\by\b|\bet\b)\s*", re.IGNORECASE)
_COUNTED = re.compile(r"\b(\d{1,9}(?:\.\d{1,9})?)\s+(\w{1,40})")


@dataclass(frozen=True, slots=True)
class Command:
    """An operation with the parameters that are known, and the names of those that are missing."""

    operation: Operation
    params: Mapping[str, Any]
    missing: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # of items that parameters stand for
    choices: Mapping[str, "ItemChoice"] = field(
        default_factory=dict[str, "ItemChoice"]
    )  # for parameters that stand for items

    def with_item(self, name: str, item: Item) -> "Command":
        return replace(
            self,
            params={**self.params, name: item.id},
            missing=tuple(param for param in self.missing if param != name),
            names={**self.names, name: title_of(item.data) or item.id},
        )

    def without_param(self, name: str, choice: "ItemChoice") -> "Command":
        """Return the command without a parameter that names no item, or several."""
        params = {param: value for param, value in self.params.items() if param != name}
        _, required = shape_of(self.operation)
        missing = tuple(param for param in required if param not in params)
        all_missing = missing if name in missing else (*missing, name)
        return replace(self, params=params, missing=all_missing, choices={**self.choices, name: choice})

    @property
    def display_params(self) -> dict[str, Any]:
        """The parameters as people know them."""
        return {**self.params, **self.names}


@dataclass(frozen=True, slots=True)
class ItemChoice:
    """Items to choose from, by their names, and why what was said is none of them."""

    options: tuple[str, ...]
    why: str = ""


def find_operation(text: str, operations: Iterable[Operation], may: Callable[[Operation], bool]) -> Operation | None:
    """Return the operation a command names; none for what is not a command.

    What cannot be undone is never run from words.
    """
    command = text[:500].strip()
    if _DENIES.search(command):
        return None
    clauses = [words(clause) for clause in _clauses(command)]
    matches = [
        (len(operation.name), operation.name, operation)
        for operation in operations
        if _is_for_words(operation) and any(_is_command_for(clause, operation) for clause in clauses) and may(operation)
    ]
    return max(matches, key=lambda match: match[:2])[2] if matches else None


def _clauses(text: str) -> Iterator[str]:
    """Yield the whole command, and its parts if the first is a command, too."""
    while opening := _POLITE.match(text):
        text = text[opening.end() :]
    yield text
    first, *others = (part.strip() for part in _CLAUSE.split(text)[:6])
    if words(first.lower())[:1] and _is_verb(words(first.lower())[0]):
        yield from (part for part in others if part)


def _is_verb(word: str) -> bool:
    return word in CREATION_VERBS or word in VERB_SYNONYMS or any(word in others for others in VERB_SYNONYMS.values())


def _is_for_words(operation: Operation) -> bool:
    return (
        operation.kind != Kind.DELETE
        and not operation.open
        and not operation.collection
        and operation.danger <= Danger.REVERSIBLE
    )


def _is_command_for(clause: Sequence[str], operation: Operation) -> bool:
    """Return whether a clause commands this operation: its verb comes first, and its object follows."""
    name = [word for word in operation.name.split("_") if word not in NAME_STOPWORDS]
    if not clause or not name:
        return False
    verb, rest = clause[0].lower(), [word.lower() for word in clause[1:]]
    own = verb == name[0] or verb in VERB_SYNONYMS.get(name[0], ())
    object_stems = {_stem(word) for word in (name[1:] if own else name)}
    if not own and verb not in CREATION_VERBS:
        return False
    places = [at for at, word in enumerate(rest) if _stem(word) in object_stems]
    if {_stem(rest[at]) for at in places} != object_stems:
        return False
    last = places[-1] + 1 if places else 0
    between = [word for word in rest[:last] if word not in _POINTERS and _stem(word) not in object_stems]
    # "Add the paper boat kit to my cart": what is added stands between, where the name itself has room for it.
    has_room = len(name) < len(operation.name.split("_"))
    is_loose = not has_room and (len(between) > MAX_BETWEEN or not _LINKS.isdisjoint(between))
    behind = rest[last : last + 1]
    may_follow = _LINKS | _parameter_words(operation)
    # A name or a number says which one; another word makes a new thing of it, such as an order policy.
    says_which = clause[last + 1 : last + 2] and not clause[last + 1][:1].islower()
    is_grown = bool(behind) and behind[0] not in may_follow and not says_which
    is_object = not is_loose and not is_grown and _SUBJECTS.isdisjoint(rest[:last])
    return is_object if object_stems else not rest


def _parameter_words(operation: Operation) -> frozenset[str]:
    """Return what may be said of how it is to be done: the names of parameters, and what there is to choose from."""
    properties, _ = shape_of(operation)
    choices = [option for schema in properties.values() for option in schema.get("enum", ()) if isinstance(option, str)]
    return frozenset(word for text in (*properties, *choices) for word in words(words_of(text)))


def _stem(word: str) -> str:
    stems = key_of(word)
    return stems[0].replace("yz", "ys").replace("iz", "is") if stems else ""


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words(text.lower()))


def needs_confirmation(operation: Operation) -> bool:
    """Return whether to ask before it is done. A promise can be cancelled; what is done at once should be meant."""
    return operation.danger > Danger.SAFE and not operation.long


def parameter_for(properties: Iterable[str], kind: str) -> str:
    """Return the parameter that takes the id of an item of a kind; empty if there is none."""
    names = frozenset(properties)
    return next((name for name in id_param_names(kind) if name in names), "")


def accepts_item(operation: Operation, item: Item) -> bool:
    """Return whether an operation can be done with an item, as far as the item says so itself."""
    is_booked = operation.name.partition("_")[0] in {"book", "reserve"}
    return not is_booked or str(item.data.get("acceptsReservations", True)).lower() not in {"false", "no"}


def item_hint(text: str, operation: Operation, today: date, language: str) -> str:
    """Return what a command says of the thing it is about: "soup bowls" of "add two soup bowls to my cart"."""
    verb = operation.name.partition("_")[0]
    of_command = {*CREATION_VERBS, *_LINKS, *VERB_SYNONYMS.get(verb, ()), *operation.name.split("_"), *_NUMBER_WORDS}
    stems = {_stem(word) for word in of_command | _parameter_words(operation)}
    while opening := _POLITE.match(text):
        text = text[opening.end() :]
    bare = _without_clock(_without_dates(text, parse_question(text, today, language)))
    return " ".join(word for word in words(bare) if not word.isdecimal() and _stem(word.lower()) not in stems)


# Parameters


def read_command(operation: Operation, text: str, answers: Mapping[str, Any], today: date, language: str) -> Command:
    """Return the parameters that answers give or the words say."""
    properties, required = shape_of(operation)
    findings = parse_question(text, today, language)
    params: dict[str, Any] = {}
    for name, schema in properties.items():
        value = (
            _read_answer(name, schema, text, answers[name], today, language)
            if name in answers
            else _read_param(name, schema, text, findings, properties)
        )
        if value is not None:
            params[name] = value
    params.update(_find_number(text, findings, properties, params))
    return Command(operation, params, tuple(name for name in required if name not in params))


def _find_number(
    text: str, findings: Sequence[Finding], properties: Mapping[str, Mapping[str, Any]], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the one unused number for the one parameter that counts something: "add 3 kettles"."""
    counting = [name for name in properties if name in _COUNTING and name not in params]
    bare = _without_clock(_without_dates(text, findings))
    numbers = [
        int(word) if word.isdecimal() and len(word) <= 4 else _NUMBER_WORDS.get(word.lower()) for word in words(bare)
    ]
    left = [number for number in numbers if number is not None]
    return {counting[0]: left[0]} if len(counting) == 1 and len(left) == 1 else {}


_COUNTING = frozenset(
    {"quantity", "people", "persons", "guests", "count", "number", "amount", "seats", "tickets", "copies", "servings"}
)
_NUMBER_WORDS = {
    word: number
    for words_of in (
        "one two three four five six seven eight nine ten eleven twelve",
        "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
        "uno dos tres cuatro cinco seis siete ocho nueve diez once doce",
        "une deux trois quatre cinq six sept huit neuf dix onze douze",
    )
    for number, word in enumerate(words_of.split(), 1)
}
# An hour is one by what stands before it, by its minutes or by what follows: a number alone counts something.
_CLOCK = re.compile(
    r"\b(?:at|um|à|a las)\s+(\d{1,2})(?::(\d{2}))?\s*(am|pm|uhr|h)?\b"
    r"|(?<![\d:.])(\d{1,2}):(\d{2})\s*(am|pm|uhr)?(?![\w:])"
    r"|(?<![\d:.])(\d{1,2})()(?:\s*(am|pm|uhr)|h)\b",
    re.IGNORECASE,
)


def _without_clock(text: str) -> str:
    return _CLOCK.sub(" ", text)


def shape_of(operation: Operation) -> tuple[dict[str, Mapping[str, Any]], tuple[str, ...]]:
    """Return the parameters of an operation with their schemas, and which of them are required."""
    schema = schema_of(operation.params)
    target = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return dict(target.get("properties", {})), tuple(target.get("required", ()))


def _read_param(
    name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding], names: Iterable[str]
) -> Any:
    """Return what the words say of a parameter, by its type and its name."""
    if "enum" in schema:
        stems = _stems(text)
        return next(
            (option for option in schema["enum"] if isinstance(option, str) and set(_stems(option)) <= stems), None
        )
    match schema.get("type"):
        case "integer" | "number":
            return _read_number(name, schema, text, findings)
        case "string":
            return _read_text(name, schema, text, findings)
        case "array":
            listing = _LISTED.search(_cut_before_params(_without_dates(text, findings), names))
            parts = [part for part in _PARTS.split(listing[1].strip(" .?!")) if part] if listing else []
            return parts[: int(schema.get("maxItems", 10))] or None
        case _:
            return None


def _cut_before_params(text: str, names: Iterable[str]) -> str:
    """Return a text up to where another parameter is named: "music with pace 50" is about music."""
    alternatives = "|".join(re.escape(name) for name in names)
    match = re.search(rf"\b(?:with|and)\s+(?:a\s+)?(?:{alternatives})\b", text, re.IGNORECASE) if alternatives else None
    return text[: match.start()] if match else text


def _without_dates(text: str, findings: Sequence[Finding]) -> str:
    for finding in sorted(findings, key=lambda finding: -finding.start):
        text = f"{text[: finding.start]} {text[finding.end :]}" if isinstance(finding, DateRange) else text
    return text.strip()


def _read_number(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> float | int | None:
    stem = set(key_of(words_of(name)))
    whole = schema.get("type") == "integer"
    match = re.search(rf"\b{re.escape(name)}\b\s*(?:=|:|of|is)?\s*(\d{{1,9}}(?:\.\d{{1,9}})?)", text, re.IGNORECASE)
    if match:
        return int(float(match[1])) if whole else float(match[1])
    for finding in findings:
        if isinstance(finding, Quantity) and finding.noun and set(key_of(finding.noun)) & stem:
            return int(finding.value) if whole else finding.value
    for number, noun in _COUNTED.findall(text):
        if set(key_of(noun)) & stem:
            return int(float(number)) if whole else float(number)
    return None


def _read_text(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> str | None:
    if _is_dated(name, schema) and any(isinstance(finding, DateRange) and finding.start_at for finding in findings):
        return _read_moment(name, schema, text, findings)
    match = re.search(rf"\b{re.escape(name)}\b\s*(?:=|:|is)\s*[\"“]?([^\s\"”,]+)", text, re.IGNORECASE)
    return match[1] if match else None


def _description_of(name: str, schema: Mapping[str, Any]) -> str:
    return f"{words_of(name)} {schema.get('description', '')} {str(schema.get('format', '')).replace('-', ' ')}".lower()


def _is_dated(name: str, schema: Mapping[str, Any]) -> bool:
    return bool(re.search(r"\b(date|day|time|when)\b", _description_of(name, schema)))


def _read_moment(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> str | None:
    """Return the day that a text names, with the hour where the parameter has one."""
    when = next((finding for finding in findings if isinstance(finding, DateRange) and finding.start_at), None)
    if when is None or when.start_at is None:
        return None
    if not re.search(r"\btime\b", _description_of(name, schema)):
        return f"{when.start_at:%Y-%m-%d}"
    clock = _read_clock(text[when.end :]) or _read_clock(text[: when.start])
    return f"{when.start_at:%Y-%m-%d}T{clock}" if clock else None


def _read_clock(text: str) -> str | None:
    match = _CLOCK.search(text)
    if not match:
        return None
    hours, minutes, half = (next((group for group in match.groups()[place::3] if group), "") for place in range(3))
    if int(hours) > 24 or int(minutes or 0) > 59:
        return None
    half = half.lower() if half.lower() in {"am", "pm"} else ""
    hour = int(hours) % (12 if half else 24) + (12 if half == "pm" else 0)
    return f"{hour:02}:{minutes or '00'}"


_WRITTEN = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.{0,30})?\Z")


def _read_answer(name: str, schema: Mapping[str, Any], text: str, value: Any, today: date, language: str) -> Any:
    """Return an answer as the parameter takes it.

    A day or an hour is read as in a command, which may have said the other.
    """
    is_said = isinstance(value, str) and schema.get("type") == "string" and "enum" not in schema
    if not is_said or not _is_dated(name, schema) or _WRITTEN.match(value.strip()):
        return _coerce(value, schema)
    alone = parse_question(value, today, language)
    together = f"{value}, {text}"
    moment = _read_moment(name, schema, value, alone) or _read_moment(
        name, schema, together, parse_question(together, today, language)
    )
    is_half = _read_clock(value) or any(isinstance(finding, DateRange) for finding in alone)
    return moment or (None if is_half else value)


def _coerce(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return an answer in the type that the parameter has: people write numbers as text, and one thing for several."""
    match schema.get("type"), value:
        case "array", str():
            return [part for part in _PARTS.split(value.strip()) if part]
        case "integer", str() if re.fullmatch(r"\s*[-+]?\d{1,18}\s*", value):
            return int(value)
        case "number", str() if re.fullmatch(r"\s*[-+]?\d{1,18}(\.\d{1,18})?\s*", value):
            return float(value)
        case "boolean", str():
            return is_yes(value)
        case (("string" | None), list()) if value and schema.get("type") != "array":
            return cast("list[Any]", value)[0]
        case _:
            return value


CONFIRM = "confirm"


def questions_for(command: Command, phrases: Phrases, *, confirm: bool) -> tuple[Question, ...]:
    """Return one typed question for each missing parameter, and whether to confirm."""
    properties, _ = shape_of(command.operation)
    questions = tuple(
        _item_question(name, properties.get(name, {}), command.choices.get(name), phrases) for name in command.missing
    )
    defaults = {name: schema["default"] for name, schema in properties.items() if schema.get("default")}
    values = {**defaults, **command.display_params}
    parts = (f"{words_of(name)} {render_param(values[name], phrases)}" for name in properties if name in values)
    listing = ", ".join(parts)[:300]
    what = f"{words_of(command.operation.name)} ({listing})" if listing else words_of(command.operation.name)
    return (*questions, Question(CONFIRM, phrases.confirm(what), "boolean")) if confirm else questions


def render_param(value: Any, phrases: Phrases) -> str:
    """Return a parameter for people: a time as the language writes it."""
    return (render_moment(value, phrases) if isinstance(value, str) else "") or render_value(value)


def _item_question(name: str, schema: Mapping[str, Any], choice: ItemChoice | None, phrases: Phrases) -> Question:
    question = _question(name, schema, phrases)
    if choice is None:
        return question
    if not choice.options:
        return replace(question, text=f"{choice.why} {question.text}".strip())
    text = str(schema.get("description") or "") or phrases.which(words_of(name))
    return Question(name, f"{choice.why} {text}".strip(), "single_select", choice.options)


def _question(name: str, schema: Mapping[str, Any], phrases: Phrases) -> Question:
    text = str(schema.get("description") or "") or phrases.missing(words_of(name))
    options = tuple(str(option) for option in schema.get("enum", ()))
    inner = cast("Mapping[str, Any]", schema.get("items", {}))
    several = tuple(str(option) for option in inner.get("enum", ()))
    if options:
        return Question(name, text, "single_select", options, schema.get("default"))
    if several:
        return Question(name, text, "multi_select", several, schema.get("default"))
    match schema.get("type"):
        case "integer" | "number":
            return Question(name, text, "number", default=schema.get("default"))
        case "boolean":
            return Question(name, text, "boolean", default=schema.get("default"))
        case _:
            return Question(name, text, "free_text", default=schema.get("default"))
