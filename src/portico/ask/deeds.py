"""Operations that a question asks for: "plan a day in town on Saturday". Reads words into parameters; runs nothing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

from portico.ask.events import Question
from portico.ask.fields import key_of, spoken
from portico.ask.phrases import Phrases
from portico.ask.reading import Finding, Quantity, When, read
from portico.catalog import Danger, Kind, Operation
from portico.index.text import STOPWORDS, words
from portico.operations import schema_of

# A question that begins like this tells the site to do something.
COMMANDS = frozenset(
    """add analyse analyze arrange book build buy calculate cancel change check compare compile compute convert count
    create delete deliver design do download draft email execute export fetch fill fix generate give import index
    initiate launch list make measure merge move open optimise optimize order organise organize pay place plan post
    prepare print process produce publish put rebuild recalculate recount refresh register remove rename render reorder
    report rerun reserve reset restart run save scan schedule send set share sort start stop submit subscribe summarise
    summarize switch sync synchronise synchronize take test train transfer translate trigger update upgrade upload
    validate verify view write plane erstelle buche bestelle storniere starte planea crea reserva pide inicia
    planifie crée réserve commande lance""".split()  # noqa: SIM905 - a list of words is read as words
)
POLITE = frozenset(
    """please can could would will you kindly i we want to need like d ll let s me us just now hey hi hello lets
    bitte kannst du könntest ich möchte por favor puedes quiero quisiera veuillez peux tu je voudrais and then
    """.split()  # noqa: SIM905
)
SMALL = frozenset({"to", "from", "a", "an", "the", "of", "for", "my", "in", "on", "and", "with"})
SUMMARY_SHARE = 0.75  # of the words of an operation's summary, where its name is not said
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


def wanted_operation(text: str, operations: Iterable[Operation], may: Any) -> Operation | None:
    """The operation a command names; none for what is not a command. What cannot be undone is never run from words."""
    said = [word for word in words(text.lower()) if word not in POLITE]
    if not said:
        return None
    stems = _stems(text)
    fitting = [
        (len(name), operation.name, operation)
        for operation in operations
        if _is_for_words(operation) and (name := _named(operation, stems, said[0])) and may(operation)
    ]
    return max(fitting, key=lambda each: each[:2])[2] if fitting else None


def _is_for_words(operation: Operation) -> bool:
    return (
        operation.kind != Kind.DELETE
        and not operation.open
        and not operation.collection
        and (operation.danger <= Danger.REVERSIBLE)
    )


def _named(operation: Operation, stems: frozenset[str], first: str) -> tuple[str, ...]:
    """The words of its name, or of its summary, if the command says them."""
    name = tuple(_stem(word) for word in operation.name.split("_") if word not in SMALL)
    begins = first in COMMANDS or _stem(first) == name[0]
    if not begins:
        return ()
    if set(name) <= stems:
        return name
    summary = [_stem(word) for word in words(operation.summary.lower()) if word not in STOPWORDS["en"]]
    said = tuple(word for word in summary if word in stems)
    return said if len(said) >= 3 and len(said) >= SUMMARY_SHARE * len(summary) else ()


def _stem(word: str) -> str:
    found = key_of(word)
    return found[0].replace("yz", "ys").replace("iz", "is") if found else ""


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words(text.lower()))


# Parameters


def read_deed(operation: Operation, text: str, given: Mapping[str, Any], today: date, language: str) -> Deed:
    """The parameters that answers give or the words say."""
    properties, required = shape_of(operation)
    findings = read(text, today, language)
    params: dict[str, Any] = {}
    for name, schema in properties.items():
        value = _fitted(given[name], schema) if name in given else _said(name, schema, text, findings)
        if value is not None:
            params[name] = value
    return Deed(operation, params, tuple(name for name in required if name not in params))


def shape_of(operation: Operation) -> tuple[dict[str, Mapping[str, Any]], tuple[str, ...]]:
    """The parameters of an operation with their schemas, and which of them are required."""
    schema = schema_of(operation.params)
    target = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return dict(target.get("properties", {})), tuple(target.get("required", ()))


def _said(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> Any:
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
            found = _LISTED.search(_undated(text, findings))
            parts = [part for part in _PARTS.split(found[1].strip(" .?!")) if part] if found else []
            return parts[: int(schema.get("maxItems", 10))] or None
        case _:
            return None


def _undated(text: str, findings: Sequence[Finding]) -> str:
    for each in sorted(findings, key=lambda finding: -finding.start):
        text = f"{text[: each.start]} {text[each.end :]}" if isinstance(each, When) else text
    return text.strip()


def _number(name: str, schema: Mapping[str, Any], text: str, findings: Sequence[Finding]) -> float | int | None:
    stem = set(key_of(spoken(name)))
    whole = schema.get("type") == "integer"
    found = re.search(rf"\b{re.escape(name)}\b\s*(?:=|:|of|is)?\s*(\d+(?:\.\d+)?)", text, re.IGNORECASE)
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
    described = f"{spoken(name)} {schema.get('description', '')}".lower()
    when = next((each for each in findings if isinstance(each, When) and each.start_at), None)
    if when and when.start_at and re.search(r"\b(date|day|time|when)\b", described):
        if not re.search(r"\btime\b", described):
            return f"{when.start_at:%Y-%m-%d}"
        clock = _clock(text[when.end :]) or _clock(text[: when.start])
        return f"{when.start_at:%Y-%m-%d}T{clock}" if clock else None
    found = re.search(rf"\b{re.escape(name)}\b\s*(?:=|:|is)\s*[\"“]?([^\s\"”,]+)", text, re.IGNORECASE)
    return found[1] if found else None


def _clock(text: str) -> str | None:
    found = re.search(r"\bat\s+(\d{1,2})(?::(\d{2}))?\s*(am|pm)?\b", text, re.IGNORECASE)
    if not found:
        return None
    half = (found[3] or "").lower()
    hour = int(found[1]) % (12 if half else 24) + (12 if half == "pm" else 0)
    return f"{hour:02}:{found[2] or '00'}"


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
            return value.strip().lower() in {"true", "yes", "y", "1", "ja", "sí", "si", "oui", "是", "はい"}
        case (("string" | None), list()) if value and schema.get("type") != "array":
            return cast("list[Any]", value)[0]
        case _:
            return value


def questions_for(deed: Deed, phrases: Phrases) -> tuple[Question, ...]:
    """One typed question for each parameter that is missing."""
    properties, _ = shape_of(deed.operation)
    return tuple(_question(name, properties.get(name, {}), phrases) for name in deed.missing)


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
