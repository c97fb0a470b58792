"""Greetings and thanks, which are no questions: they find nothing, and must not spoil what does."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portico.ask.phrases import best_language

MAX_NAMED = 5  # collections


@dataclass(frozen=True, slots=True)
class Courtesy:
    """What is said in a language before it comes to the point, and what to say to somebody who says no more."""

    greetings: str  # with bars between them
    thanks: str
    welcome: str
    reply: str  # {} stands for what can be asked about


COURTESIES: Mapping[str, Courtesy] = {
    "en": Courtesy(
        "good morning|good afternoon|good evening|hello there|hi there|hey there|hello|hi|hey|greetings",
        "thank you very much|thank you|thanks a lot|many thanks|thanks|cheers",
        "You are welcome.",
        "Hello. You can ask me about {}.",
    ),
    "de": Courtesy(
        "guten morgen|guten tag|guten abend|hallo zusammen|hallo|servus|moin|grüß gott|grüezi",
        "vielen dank|danke schön|dankeschön|danke",
        "Gern geschehen.",
        "Hallo. Fragen Sie mich nach: {}.",
    ),
    "es": Courtesy(
        "buenos días|buenas tardes|buenas noches|buenas|hola a todos|hola",
        "muchas gracias|gracias",
        "De nada.",
        "Hola. Puede preguntarme por: {}.",
    ),
    "fr": Courtesy(
        "bonjour à tous|bonjour|bonsoir|salut|coucou",
        "merci beaucoup|merci bien|merci",
        "Je vous en prie.",
        "Bonjour. Vous pouvez me demander : {}.",
    ),
    "ar": Courtesy(
        "السلام عليكم|صباح الخير|مساء الخير|مرحبا|مرحبًا|أهلا|أهلًا",
        "شكرًا جزيلًا|شكرا جزيلا|شكرًا|شكرا",
        "على الرحب والسعة.",
        "مرحبًا. يمكنك أن تسألني عن: {}.",
    ),
    "ja": Courtesy(
        "こんにちは|こんばんは|おはようございます|おはよう|はじめまして",
        "ありがとうございます|ありがとう",
        "どういたしまして。",
        "こんにちは。{}について質問できます。",
    ),
    "zh": Courtesy(
        "早上好|下午好|晚上好|你好|您好|大家好",
        "非常感谢|谢谢你|谢谢",
        "不客气。",
        "你好。你可以问我关于{}的问题。",
    ),
}


def _opening(phrases: Sequence[str]) -> re.Pattern[str]:
    said = "|".join(re.escape(each) for each in sorted(phrases, key=len, reverse=True))
    # Without a mark or a line's end after it, it may be part of a name: Hello Kitty, hi-fi, hello.txt.
    ends = r"[ \t]*(?:[,!;。！，、…\r\n]|[.:](?!\w)|[?？]*\s*\Z)"
    return re.compile(rf"\s*(?:{said}){ends}[\s,.!:;。！，、…]*", re.IGNORECASE)


_GREETING = _opening([each for courtesy in COURTESIES.values() for each in courtesy.greetings.split("|")])
_THANKS = _opening([each for courtesy in COURTESIES.values() for each in courtesy.thanks.split("|")])


@dataclass(frozen=True, slots=True)
class Heard:
    question: str  # what is left to answer; empty if it was a courtesy alone
    language: str = ""  # of the courtesy, if it was one alone
    is_thanks: bool = False


def heard(text: str) -> Heard:
    """A message without the greeting or the thanks that it begins with."""
    rest, is_thanks = text, False
    for pattern in (_GREETING, _THANKS, _GREETING):
        found = pattern.match(rest)
        if found and found.end():
            rest, is_thanks = rest[found.end() :], is_thanks or pattern is _THANKS
    if rest.strip(" .!?,;:"):
        return Heard(rest if rest != text else text)
    return Heard("", _language_of(text), is_thanks)


def _language_of(text: str) -> str:
    said = text.lower()
    for language, courtesy in COURTESIES.items():
        if any(each in said for each in f"{courtesy.greetings}|{courtesy.thanks}".split("|")):
            return language
    return "en"


def reply(told: Heard, names: Sequence[str], language: str) -> str:
    """What to say to a courtesy; names are those of what there is."""
    courtesy = COURTESIES[best_language(language, tuple(COURTESIES)) if language else told.language]
    named = list(names[:MAX_NAMED])
    if told.is_thanks:
        return courtesy.welcome
    return courtesy.reply.format(", ".join(named)) if named else courtesy.reply.partition(".")[0] + "."
