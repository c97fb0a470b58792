"""Chooses the language of a visitor, and reads back what the site wrote in it. Knows no items."""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from portico.ask.languages.loader import LANGUAGES, load_language
from portico.ask.languages.phrasebook import LENGTHS, Phrases
from portico.search.index.text import fold

MAX_ACCEPT = 1000  # characters of an Accept-Language value that are read
MAX_RANGES = 32  # languages of it that are tried
MAX_RANGE = 80  # characters of an answer that may be a range option

_LANGUAGE = re.compile(
    r"\s*(?P<tag>[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8})*)\s*(?:;\s*[qQ]=(?P<q>0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*)?"
)
# What a limit is called, and whether it is the least there may be.
_BOUNDS = {
    "under": False, "up to": False, "over": True,
    "unter": False, "bis": False, "über": True,
    "menos de": False, "hasta": False, "más de": True,
    "moins de": False, "jusqu'à": False, "plus de": True,
    "أقل من": False, "حتى": False, "أكثر من": True,
    "以内": False, "以下": False, "以上": True,
}  # fmt: skip
_NUMBER = r"\d{1,3}(?:[.,\u202f]\d{3})+(?:[.,]\d{1,2})?|\d{1,15}(?:[.,]\d{1,2})?"
_SIGN = r"[a-z]{0,3}[$\u00a2-\u00a5\u20a0-\u20cf]|[a-z]{3}|円"
_CENTS = re.compile(r"[.,](\d{1,2})\Z")  # three digits after a mark are a group


def phrases(language: str) -> Phrases:
    """Return the phrases for an Accept-Language value; in English when none of its languages is known."""
    return load_language(best_language(language, LANGUAGES)).phrases


def best_language(accept: str, available: Sequence[str]) -> str:
    """Return the known language that an Accept-Language value likes best (RFC 4647, lookup); by default the first."""
    tags = {tag.lower(): tag for tag in reversed(available)}
    for preferred in _parse_accept(accept):
        for shorter in _truncations(preferred):
            if shorter in tags:
                return tags[shorter]
    return next(iter(available), "")


def _parse_accept(accept: str) -> list[str]:
    """Return the language ranges that are wanted at all, the most wanted first."""
    parts = accept[:MAX_ACCEPT].split(",")[:MAX_RANGES]
    matches = [match for part in parts if (match := _LANGUAGE.fullmatch(part))]
    ranked = [(float(match["q"] or 1), match["tag"].replace("_", "-").lower()) for match in matches]
    return [tag for quality, tag in sorted(ranked, key=lambda pair: -pair[0]) if quality > 0]


def _truncations(tag: str) -> list[str]:
    """Return a range and what is left of it, cut from the end.

    RFC 4647 3.4: no range ends in a single letter or digit.
    """
    subtags = tag.split("-")
    return ["-".join(subtags[:end]) for end in range(len(subtags), 0, -1) if end == 1 or len(subtags[end - 1]) > 1]


def english_for(text: str) -> tuple[str, ...]:
    """Return the English words that a word of any language may stand for; see `Phrases.word`."""
    return _english_words().get(fold(text.strip()), ())


@cache
def _english_words() -> Mapping[str, tuple[str, ...]]:
    words: dict[str, tuple[str, ...]] = {}
    for language in LANGUAGES:
        for english, word in load_language(language).phrases.limits.words.items():
            words[fold(word)] = tuple(dict.fromkeys((*words.get(fold(word), ()), english)))
    return words


def detect_script(text: str, otherwise: str = "") -> str:
    """Return the language whose letters most of a text is written in; empty if they are those of several.

    Chinese and Japanese share letters, of which Japanese has some of its own: where it has none, the other one counts.
    """
    letters = [letter for letter in text[:MAX_ACCEPT] if letter.isalpha()]
    shares = {language: sum(map(bool, map(own.match, letters))) for language, own in _LETTERS.items()}
    if 2 * (shares["zh"] + shares["ja"]) > len(letters):
        return "ja" if shares["ja"] or otherwise[:2] == "ja" else "zh"
    is_arabic = 2 * shares["ar"] > len(letters) and not _NOT_ARABIC.search(text)
    return "ar" if is_arabic else ""


_LETTERS = {
    "zh": re.compile(r"[\u3400-\u9fff]"),
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ar": re.compile(r"[\u0620-\u06ff]"),
}
_NOT_ARABIC = re.compile("[پچژگکیہےٹڈڑ]")  # but Persian or Urdu


def read_range(text: str) -> tuple[float | None, float | None] | None:
    """Return the limits that a range option names: seconds for lengths of time, plain numbers for prices."""
    match = _range_pattern().fullmatch(text.strip().lower()) if len(text) <= MAX_RANGE else None
    if match is None:
        return None
    low, high = _read(match["low"]), _read(match["high"])
    length = _unit_lengths().get(match["after"] or "", 1)
    bound = match["before"] or match["bound"] or ""
    if high is not None:
        return None if low is None or bound in _BOUNDS else (low * length, high * length)
    if low is None or bound not in _BOUNDS:
        return None
    return (low * length, None) if _BOUNDS[bound] else (None, low * length)


@cache
def _unit_lengths() -> Mapping[str, int]:
    return {
        word.lower(): length
        for language in LANGUAGES
        for length, forms in zip(LENGTHS, load_language(language).phrases.script.units, strict=True)
        for word in forms
    }


@cache
def _range_pattern() -> re.Pattern[str]:
    # The units come first, so that no unit is taken for the code of a currency.
    after = "|".join(sorted((re.escape(word) for word in _unit_lengths()), key=len, reverse=True))
    return re.compile(
        rf"(?:(?P<before>{'|'.join(word for word in _BOUNDS if not word.startswith('以'))}) ?)?"
        rf"(?:(?:{_SIGN}) ?)?(?P<low>{_NUMBER})"
        rf"(?: ?[-～] ?(?:(?:{_SIGN}) ?)?(?P<high>{_NUMBER}))?"
        rf"(?: ?(?P<after>{after}|{_SIGN}))?"
        r"(?P<bound>以内|以下|以上)?"
    )


def _read(number: str | None) -> float | None:
    if number is None:
        return None
    cents = _CENTS.search(number)
    whole = number[: cents.start()] if cents else number
    return float(f"{re.sub(r'[^0-9]', '', whole)}.{cents[1] if cents else 0}")
