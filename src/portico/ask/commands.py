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
from portico.ask.outcomes import moment_in
from portico.ask.understanding.fields import key_of, names_of_id, spoken
from portico.ask.understanding.parsers import Finding, Quantity, When, read
from portico.ask.understanding.request_attributes import is_yes, shown_value
from portico.catalog import Danger, Kind, Operation
from portico.items import Item, title_of
from portico.operations import schema_of
from portico.search.index.text import words

# Verbs that have anything made or done, whatever its name.
MAKING = frozenset(
    {"create", "make", "prepare", "generate", "build", "produce", "start", "run", "begin", "launch", "do", "compile",
     "draft", "write", "erstelle", "mache", "starte", "crea", "haz", "inicia", "crée", "fais", "lance"}
)  # fmt: skip
ALSO_CALLED = {
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
SMALL = frozenset({"to", "from", "a", "an", "the", "of", "for", "my", "in", "on", "and", "with"})
MOST_BETWEEN = 4  # words that may describe an object: "a personalised weekly meal plan"
_LISTED = re.compile(
    r"\b(?:about|around|with|like|love|enjoy|interests?|interested in)[:\s]+(.{2,200})$", re.IGNORECASE
)
_PARTS = re.compile(r"\s*(?:,|;|\band\b|\bund\b|\by\b|\bet\b)\s*", re.IGNORECASE)
_COUNTED = re.compile(r"\b(\d{1,9}(?:\.\d{1,9})?)\s+(\w{1,40})")


@dataclass(frozen=True, slots=True)
class Deed:
    """An operation with the parameters that were said, and those that it still needs."""

    operation: Operation
    params: Mapping[str, Any]
    missing: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # of items that parameters stand for
    choices: Mapping[str, "Choice"] = field(default_factory=dict[str, "Choice"])  # for parameters that stand for items

    def with_item(self, name: str, item: Item) -> "Deed":
        return replace(
            self,
            params={**self.params, name: item.id},
            missing=tuple(each for each in self.missing if each != name),
            names={**self.names, name: title_of(item.data) or item.id},
        )

    def asking(self, name: str, choice: "Choice") -> "Deed":
        """Without a parameter that stands for no item, or for which there are several."""
        params = {each: value for each, value in self.params.items() if each != name}
        _, required = shape_of(self.operation)
        missing = tuple(each for each in required if each not in params)
        wanted = missing if name in missing else (*missing, name)
        return replace(self, params=params, missing=wanted, choices={**self.choices, name: choice})

    @property
    def shown(self) -> dict[str, Any]:
        """The parameters as people know them."""
        return {**self.params, **self.names}


@dataclass(frozen=True, slots=True)
class Choice:
    """Items to choose from, by their names, and why what was said is none of them."""

    options: tuple[str, ...]
    why: str = ""


def wanted_operation(text: str, operations: Iterable[Operation], may: Callable[[Operation], bool]) -> Operation | None:
    """The operation a command names; none for what is not a command. What cannot be undone is never run from words."""
    command = text[:500].strip()
    if _DENIES.search(command):
        return None
    clauses = [words(clause) for clause in _clauses(command)]
    fitting = [
        (len(operation.name), operation.name, operation)
        for operation in operations
        if _is_for_words(operation) and any(_commands(clause, operation) for clause in clauses) and may(operation)
    ]
    return max(fitting, key=lambda each: each[:2])[2] if fitting else None


def _clauses(text: str) -> Iterator[str]:
    """The whole command, and its parts if the first is a command, too."""
    while found := _POLITE.match(text):
        text = text[found.end() :]
    yield text
    first, *others = (part.strip() for part in _CLAUSE.split(text)[:6])
    if words(first.lower())[:1] and _is_verb(words(first.lower())[0]):
        yield from (part for part in others if part)


def _is_verb(word: str) -> bool:
    return word in MAKING or word in ALSO_CALLED or any(word in others for others in ALSO_CALLED.values())


def _is_for_words(operation: Operation) -> bool:
    return (
        operation.kind != Kind.DELETE
        and not operation.open
        and not operation.collection
        and operation.danger <= Danger.REVERSIBLE
    )


def _commands(clause: Sequence[str], operation: Operation) -> bool:
    """Whether a clause tells to do this: the verb first, what it is done to behind it, and nothing grown onto that."""
    name = [word for word in operation.name.split("_") if word not in SMALL]
    if not clause or not name:
        return False
    verb, rest = clause[0].lower(), [word.lower() for word in clause[1:]]
    own = verb == name[0] or verb in ALSO_CALLED.get(name[0], ())
    wanted = {_stem(word) for word in (name[1:] if own else name)}
    if not own and verb not in MAKING:
        return False
    places = [at for at, word in enumerate(rest) if _stem(word) in wanted]
    if {_stem(rest[at]) for at in places} != wanted:
        return False
    last = places[-1] + 1 if places else 0
    between = [word for word in rest[:last] if word not in _POINTERS and _stem(word) not in wanted]
    # "Add the paper boat kit to my cart": what is added stands between, where the name itself has room for it.
    has_room = len(name) < len(operation.name.split("_"))
    is_loose = not has_room and (len(between) > MOST_BETWEEN or not _LINKS.isdisjoint(between))
    behind = rest[last : last + 1]
    may_follow = _LINKS | _parameter_words(operation)
    # A name or a number says which one; another word makes a new thing of it, such as an order policy.
    says_which = clause[last + 1 : last + 2] and not clause[last + 1][:1].islower()
    is_grown = bool(behind) and behind[0] not in may_follow and not says_which
    is_object = not is_loose and not is_grown and _SUBJECTS.isdisjoint(rest[:last])
    return is_object if wanted else not rest


def _parameter_words(operation: Operation) -> frozenset[str]:
    """What may be said of how it is to be done: the names of parameters, and what there is to choose from."""
    properties, _ = shape_of(operation)
    choices = [each for schema in properties.values() for each in schema.get("enum", ()) if isinstance(each, str)]
    return frozenset(word for said in (*properties, *choices) for word in words(spoken(said)))


def _stem(word: str) -> str:
    found = key_of(word)
    return found[0].replace("yz", "ys").replace("iz", "is") if found else ""


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words(text.lower()))


def needs_confirmation(operation: Operation) -> bool:
    """Whether to ask before it is done. A promise can be cancelled; what is done at once should be meant."""
    return operation.danger > Danger.SAFE and not operation.long


def parameter_for(properties: Iterable[str], kind: str) -> str:
    """The parameter that takes the id of an item of a kind; empty if there is none."""
    known = frozenset(properties)
    return next((name for name in names_of_id(kind) if name in known), "")


def suits(operation: Operation, item: Item) -> bool:
    """Whether an operation can be done with an item, as far as the item says so itself."""
    is_booked = operation.name.partition("_")[0] in {"book", "reserve"}
    return not is_booked or str(item.data.get("acceptsReservations", True)).lower() not in {"false", "no"}


def hint_of(text: str, operation: Operation, today: date, language: str) -> str:
    """What a command says of the thing it is about: "soup bowls" of "add two soup bowls to my cart"."""
    verb = operation.name.partition("_")[0]
    of_command = {*MAKING, *_LINKS, *ALSO_CALLED.get(verb, ()), *operation.name.split("_"), *_NUMBER_WORDS}
    stems = {_stem(word) for word in of_command | _parameter_words(operation)}
    while found := _POLITE.match(text):
        text = text[found.end() :]
    bare = _unclocked(_undated(text, read(text, today, language)))
    return " ".join(word for word in words(bare) if not word.isdecimal() and _stem(word.lower()) not in stems)


# Parameters


def read_deed(operation: Operation, text: str, given: Mapping[str, Any], today: date, language: str) -> Deed:
    """The parameters that answers give or the words say."""
    properties, required = shape_of(operation)
    findings = read(text, today, language)
    params: dict[str, Any] = {}
    for name, schema in properties.items():
        value = (
            _answered(name, schema, text, given[name], today, language)
            if name in given
            else _said(name, schema, text, findings, properties)
        )
        if value is not None:
            params[name] = value
    params.update(_left_over(text, findings, properties, params))
    return Deed(operation, params, tuple(name for name in required if name not in params))


def _left_over(
    text: str, findings: Sequence[Finding], properties: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any]
) -> dict[str, Any]:
    """The one number that is left, for the one parameter that counts something: "add 3 kettles", "a table for four"."""
    counting = [name for name in properties if name in _COUNTING and name not in known]
    bare = _unclocked(_undated(text, findings))
    numbers = [_number_word(word) for word in words(bare)]
    left = [number for number in numbers if number is not None]
    return {counting[0]: left[0]} if len(counting) == 1 and len(left) == 1 else {}


def _number_word(word: str) -> int | None:
    if word.isdecimal() and len(word) <= 4:
        return int(word)
    return _NUMBER_WORDS.get(word.lower())


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


def _unclocked(text: str) -> str:
    return _CLOCK.sub(" ", text)


def shape_of(operation: Operation) -> tuple[dict[str, Mapping[str, Any]], tuple[str, ...]]:
    """The parameters of an operation with their schemas, and which of them are required."""
    schema = schema_of(operation.params)
    target = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return dict(target.get("properties", {})), tuple(target.get("required", ()))


def _said(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding], names: Iterable[str]) -> Any:
    """What the words say of a parameter, by its type and its name."""
    if "enum" in schema:
        stems = _stems(text)
        return next((each for each in schema["enum"] if isinstance(each, str) and set(_stems(each)) <= stems), None)
    match schema.get("type"):
        case "integer" | "number":
            return _number(name, schema, text, findings)
        case "string":
            return _text(name, schema, text, findings)
        case "array":
            found = _LISTED.search(_unnamed(_undated(text, findings), names))
            parts = [part for part in _PARTS.split(found[1].strip(" .?!")) if part] if found else []
            return parts[: int(schema.get("maxItems", 10))] or None
        case _:
            return None


def _unnamed(text: str, names: Iterable[str]) -> str:
    """A text up to where another parameter is named: "music with pace 50" is about music."""
    named = "|".join(re.escape(name) for name in names)
    found = re.search(rf"\b(?:with|and)\s+(?:a\s+)?(?:{named})\b", text, re.IGNORECASE) if named else None
    return text[: found.start()] if found else text


def _undated(text: str, findings: Sequence[Finding]) -> str:
    for each in sorted(findings, key=lambda finding: -finding.start):
        text = f"{text[: each.start]} {text[each.end :]}" if isinstance(each, When) else text
    return text.strip()


def _number(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> float | int | None:
    stem = set(key_of(spoken(name)))
    whole = schema.get("type") == "integer"
    found = re.search(rf"\b{re.escape(name)}\b\s*(?:=|:|of|is)?\s*(\d{{1,9}}(?:\.\d{{1,9}})?)", text, re.IGNORECASE)
    if found:
        return int(float(found[1])) if whole else float(found[1])
    for each in findings:
        if isinstance(each, Quantity) and each.noun and set(key_of(each.noun)) & stem:
            return int(each.value) if whole else each.value
    for number, noun in _COUNTED.findall(text):
        if set(key_of(noun)) & stem:
            return int(float(number)) if whole else float(number)
    return None


def _text(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> str | None:
    if _is_dated(name, schema) and any(isinstance(each, When) and each.start_at for each in findings):
        return _moment(name, schema, text, findings)
    found = re.search(rf"\b{re.escape(name)}\b\s*(?:=|:|is)\s*[\"“]?([^\s\"”,]+)", text, re.IGNORECASE)
    return found[1] if found else None


def _described(name: str, schema: Mapping[str, Any]) -> str:
    return f"{spoken(name)} {schema.get('description', '')} {str(schema.get('format', '')).replace('-', ' ')}".lower()


def _is_dated(name: str, schema: Mapping[str, Any]) -> bool:
    return bool(re.search(r"\b(date|day|time|when)\b", _described(name, schema)))


def _moment(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> str | None:
    """The day that a text names, with the hour where the parameter has one."""
    when = next((each for each in findings if isinstance(each, When) and each.start_at), None)
    if when is None or when.start_at is None:
        return None
    if not re.search(r"\btime\b", _described(name, schema)):
        return f"{when.start_at:%Y-%m-%d}"
    clock = _clock(text[when.end :]) or _clock(text[: when.start])
    return f"{when.start_at:%Y-%m-%d}T{clock}" if clock else None


def _clock(text: str) -> str | None:
    found = _CLOCK.search(text)
    if not found:
        return None
    said, minutes, half = (next((each for each in found.groups()[place::3] if each), "") for place in range(3))
    if int(said) > 24 or int(minutes or 0) > 59:
        return None
    half = half.lower() if half.lower() in {"am", "pm"} else ""
    hour = int(said) % (12 if half else 24) + (12 if half == "pm" else 0)
    return f"{hour:02}:{minutes or '00'}"


_WRITTEN = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.{0,30})?\Z")


def _answered(name: str, schema: Mapping[str, Any], text: str, value: Any, today: date, language: str) -> Any:
    """An answer as the parameter takes it. A day or an hour is read as in a command, which may have said the other."""
    is_said = isinstance(value, str) and schema.get("type") == "string" and "enum" not in schema
    if not is_said or not _is_dated(name, schema) or _WRITTEN.match(value.strip()):
        return _fitted(value, schema)
    alone = read(value, today, language)
    together = f"{value}, {text}"
    found = _moment(name, schema, value, alone) or _moment(name, schema, together, read(together, today, language))
    is_half = _clock(value) or any(isinstance(each, When) for each in alone)
    return found or (None if is_half else value)


def _fitted(value: Any, schema: Mapping[str, Any]) -> Any:
    """An answer in the type that the parameter has: people write numbers as text, and one thing for several."""
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


def questions_for(deed: Deed, phrases: Phrases, *, confirm: bool) -> tuple[Question, ...]:
    """One typed question for each parameter that is missing, and whether it is meant at all."""
    properties, _ = shape_of(deed.operation)
    asked = tuple(_asked(name, properties.get(name, {}), deed.choices.get(name), phrases) for name in deed.missing)
    defaults = {name: schema["default"] for name, schema in properties.items() if schema.get("default")}
    known = {**defaults, **deed.shown}
    told = (f"{spoken(name)} {shown_param(known[name], phrases)}" for name in properties if name in known)
    given = ", ".join(told)[:300]
    what = f"{spoken(deed.operation.name)} ({given})" if given else spoken(deed.operation.name)
    return (*asked, Question(CONFIRM, phrases.confirm(what), "boolean")) if confirm else asked


def shown_param(value: Any, phrases: Phrases) -> str:
    """A parameter for people: a time as the language writes it."""
    return (moment_in(value, phrases) if isinstance(value, str) else "") or shown_value(value)


def _asked(name: str, schema: Mapping[str, Any], choice: Choice | None, phrases: Phrases) -> Question:
    question = _question(name, schema, phrases)
    if choice is None:
        return question
    if not choice.options:
        return replace(question, text=f"{choice.why} {question.text}".strip())
    text = str(schema.get("description") or "") or phrases.which(spoken(name))
    return Question(name, f"{choice.why} {text}".strip(), "single_select", choice.options)


def _question(name: str, schema: Mapping[str, Any], phrases: Phrases) -> Question:
    text = str(schema.get("description") or "") or phrases.missing(spoken(name))
    options = tuple(str(each) for each in schema.get("enum", ()))
    inner = cast("Mapping[str, Any]", schema.get("items", {}))
    several = tuple(str(each) for each in inner.get("enum", ()))
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
