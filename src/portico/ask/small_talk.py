"""Greetings, thanks and farewells, and what people say who look around: no questions, they find nothing.

They must not spoil what does.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from portico.ask.languages.localization import best_language

MAX_NAMED = 5  # collections


@dataclass(frozen=True, slots=True)
class Courtesy:
    """What is said in a language before it comes to the point, and what to say to somebody who says no more."""

    greetings: str  # with bars between them; also the questions of who looks around
    thanks: str
    welcome: str
    reply: str  # {} stands for what can be asked about
    farewells: str
    goodbye: str


COURTESIES: Mapping[str, Courtesy] = {
    "en": Courtesy(
        "good morning|good afternoon|good evening|hello there|hi there|hey there|hello|hi|hey|greetings"
        "|what can you do|what can you help me with|what can i ask you|what can i ask here|what can i ask"
        "|what do you have|what do you sell|what is there|how does this work|who are you|help",
        "thank you very much|thank you|thanks a lot|many thanks|thanks|cheers",
        "You are welcome.",
        "Hello. You can ask me about {}.",
        "goodbye|good bye|bye bye|bye|see you later|see you|good night",
        "Goodbye.",
    ),
    "de": Courtesy(
        "guten morgen|guten tag|guten abend|hallo zusammen|hallo|servus|moin|grüß gott|grüezi"
        "|was kannst du|was können sie|was kann ich fragen|was gibt es hier|was gibt es|was verkauft ihr"
        "|was verkaufen sie|wer bist du|hilfe",
        "vielen dank|danke schön|dankeschön|danke",
        "Gern geschehen.",
        "Hallo. Fragen Sie mich nach: {}.",
        "auf wiedersehen|tschüss|tschüß|tschau|bis bald|gute nacht",
        "Auf Wiedersehen.",
    ),
    "es": Courtesy(
        "buenos días|buenas tardes|buenas noches|buenas|hola a todos|hola"
        "|qué puedes hacer|qué puedo preguntar|qué hay aquí|qué hay|qué venden|qué vendéis|quién eres|ayuda",
        "muchas gracias|gracias",
        "De nada.",
        "Hola. Puede preguntarme por: {}.",
        "adiós|adios|hasta luego|hasta pronto|chao",
        "Hasta luego.",
    ),
    "fr": Courtesy(
        "bonjour à tous|bonjour|bonsoir|salut|coucou"
        "|que peux tu faire|que pouvez vous faire|que puis je demander|que vendez vous|qui es tu|aide",
        "merci beaucoup|merci bien|merci",
        "Je vous en prie.",
        "Bonjour. Vous pouvez me demander : {}.",
        "au revoir|à bientôt|bonne nuit|bonne journée",
        "Au revoir.",
    ),
    "ar": Courtesy(
        "السلام عليكم|صباح الخير|مساء الخير|مرحبا|مرحبًا|أهلا|أهلًا|ماذا يمكنك أن تفعل|ماذا تبيعون|ماذا لديكم|مساعدة",
        "شكرًا جزيلًا|شكرا جزيلا|شكرًا|شكرا",
        "على الرحب والسعة.",
        "مرحبًا. يمكنك أن تسألني عن: {}.",
        "مع السلامة|إلى اللقاء|وداعا",
        "مع السلامة.",
    ),
    "ja": Courtesy(
        "こんにちは|こんばんは|おはようございます|おはよう|はじめまして"
        "|何ができますか|何がありますか|何を売っていますか|ヘルプ",
        "ありがとうございます|ありがとう",
        "どういたしまして。",
        "こんにちは。{}について質問できます。",
        "さようなら|またね",
        "さようなら。",
    ),
    "zh": Courtesy(
        "早上好|下午好|晚上好|你好|您好|大家好|你能做什么|我可以问什么|你们卖什么|这里有什么|帮助",
        "非常感谢|谢谢你|谢谢",
        "不客气。",
        "你好。你可以问我关于{}的问题。",
        "再见|拜拜",
        "再见。",
    ),
}


def _opening(phrases: Sequence[str]) -> re.Pattern[str]:
    said = _any_of(phrases)
    # Without a mark or a line's end after it, it may be part of a name: Hello Kitty, hi-fi, hello.txt.
    ends = r"[ \t]*(?:[,!;。！，、…\r\n]|[.:](?!\w)|[?？]*\s*\Z)"
    return re.compile(rf"[\s¿¡]*(?:{said}){ends}[\s,.!:;。！，、…]*", re.IGNORECASE)


def _any_of(phrases: Iterable[str]) -> str:
    whole = (re.escape(each).replace(r"\ ", r"[\s-]+") for each in sorted(phrases, key=len, reverse=True))
    return "|".join(whole)


_GREETING = _opening([each for courtesy in COURTESIES.values() for each in courtesy.greetings.split("|")])
_THANKS = _opening([each for courtesy in COURTESIES.values() for each in courtesy.thanks.split("|")])
_FAREWELL = _opening([each for courtesy in COURTESIES.values() for each in courtesy.farewells.split("|")])


@dataclass(frozen=True, slots=True)
class Heard:
    question: str  # what is left to answer; empty if it was a courtesy alone
    language: str = ""  # of the courtesy, if it was one alone
    is_thanks: bool = False
    is_farewell: bool = False


def heard(text: str) -> Heard:
    """A message without the greeting or the thanks that it begins with."""
    rest, said = text, set[re.Pattern[str]]()
    for pattern in (_GREETING, _THANKS, _GREETING, _FAREWELL):
        found = pattern.match(rest)
        if found and found.end():
            rest = rest[found.end() :]
            said.add(pattern)
    if rest.strip(" .!?,;:"):
        return Heard(rest if rest != text else text)
    return Heard("", _language_of(text), _THANKS in said, _FAREWELL in said)


def _language_of(text: str) -> str:
    return next((language for language, said in _SAID.items() if said.search(text)), "en")


_SAID = {
    language: re.compile(
        rf"(?<!\w)(?:{_any_of(f'{each.greetings}|{each.thanks}|{each.farewells}'.split('|'))})(?!\w)", re.IGNORECASE
    )
    for language, each in COURTESIES.items()
}


def reply(told: Heard, names: Sequence[str], language: str) -> str:
    """What to say to a courtesy; names are those of what there is."""
    courtesy = COURTESIES[best_language(language, tuple(COURTESIES)) if language else told.language]
    named = list(names[:MAX_NAMED])
    if told.is_thanks:
        return courtesy.welcome
    if told.is_farewell:
        return courtesy.goodbye
    return courtesy.reply.format(", ".join(named)) if named else courtesy.reply.partition(".")[0] + "."
