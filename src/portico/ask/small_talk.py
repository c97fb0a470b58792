"""Small talk: greetings, thanks, farewells, and questions such as "what can you do". It searches for nothing.

A question that follows a greeting is answered as if it stood alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from portico.ask.languages.loader import LANGUAGES, load_language
from portico.ask.languages.localization import best_language

MAX_NAMED = 5  # collections


def _start_pattern(phrases: Sequence[str]) -> re.Pattern[str]:
    alternatives = _any_of(phrases)
    # Without a mark or a line's end after it, it may be part of a name: Hello Kitty, hi-fi, hello.txt.
    ends = r"[ \t]*(?:[,!;。！，、…\r\n]|[.:](?!\w)|[?？]*\s*\Z)"
    return re.compile(rf"[\s¿¡]*(?:{alternatives}){ends}[\s,.!:;。！，、…]*", re.IGNORECASE)


def _any_of(phrases: Iterable[str]) -> str:
    whole = (re.escape(phrase).replace(r"\ ", r"[\s-]+") for phrase in sorted(phrases, key=len, reverse=True))
    return "|".join(whole)


@dataclass(frozen=True, slots=True)
class SmallTalkPatterns:
    """What begins a message in any language, and what tells the languages apart."""

    greeting: re.Pattern[str]
    thanks: re.Pattern[str]
    farewell: re.Pattern[str]
    by_language: Mapping[str, re.Pattern[str]]


@cache
def _patterns() -> SmallTalkPatterns:
    tables = {language: load_language(language).small_talk for language in LANGUAGES}
    return SmallTalkPatterns(
        greeting=_start_pattern([phrase for table in tables.values() for phrase in table.greetings.split("|")]),
        thanks=_start_pattern([phrase for table in tables.values() for phrase in table.thanks.split("|")]),
        farewell=_start_pattern([phrase for table in tables.values() for phrase in table.farewells.split("|")]),
        by_language={
            language: re.compile(
                rf"(?<!\w)(?:{_any_of(f'{table.greetings}|{table.thanks}|{table.farewells}'.split('|'))})(?!\w)",
                re.IGNORECASE,
            )
            for language, table in tables.items()
        },
    )


@dataclass(frozen=True, slots=True)
class SmallTalk:
    question: str  # what is left to answer; empty if it was a courtesy alone
    language: str = ""  # of the courtesy, if it was one alone
    is_thanks: bool = False
    is_farewell: bool = False


def parse_small_talk(text: str) -> SmallTalk:
    """Split a message into the small talk that it begins with and the question that is left."""
    rest, matched, patterns = text, set[re.Pattern[str]](), _patterns()
    for pattern in (patterns.greeting, patterns.thanks, patterns.greeting, patterns.farewell):
        match = pattern.match(rest)
        if match and match.end():
            rest = rest[match.end() :]
            matched.add(pattern)
    if rest.strip(" .!?,;:"):
        return SmallTalk(rest if rest != text else text)
    language = next((language for language, pattern in patterns.by_language.items() if pattern.search(text)), "en")
    return SmallTalk("", language, patterns.thanks in matched, patterns.farewell in matched)


def reply_to(small_talk: SmallTalk, names: Sequence[str], language: str) -> str:
    """Return the reply to small talk; `names` are the topics that can be asked about."""
    phrases = load_language(best_language(language, LANGUAGES) if language else small_talk.language).small_talk
    topics = list(names[:MAX_NAMED])
    if small_talk.is_thanks:
        return phrases.welcome
    if small_talk.is_farewell:
        return phrases.goodbye
    return phrases.reply.format(", ".join(topics)) if topics else phrases.reply.partition(".")[0] + "."
