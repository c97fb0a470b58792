"""The languages that are read and said, one module each. Another one begins as another module here."""

from dataclasses import replace

from portico.ask.languages import arabic, chinese, english, french, german, japanese, spanish
from portico.ask.languages.phrasebook import Phrases
from portico.ask.languages.vocabulary import VOCABULARY


def _with_vocabulary(phrases: Phrases) -> Phrases:
    words = {**VOCABULARY.get(phrases.language, {}), **phrases.limits.words}
    return replace(phrases, limits=replace(phrases.limits, words=words))


LEXICONS = {"en": english.LEXICON, "de": german.LEXICON, "es": spanish.LEXICON, "fr": french.LEXICON}
DATES = {"en": english.DATES, "de": german.DATES, "es": spanish.DATES, "fr": french.DATES}
SPEECHES = {"en": english.SPEECH, "de": german.SPEECH, "es": spanish.SPEECH, "fr": french.SPEECH}
_SAID = (english, german, spanish, french, chinese, japanese, arabic)
PHRASES = {each.PHRASES.language: _with_vocabulary(each.PHRASES) for each in _SAID}
CONTRASTS = {each.PHRASES.language: each.CONTRAST for each in _SAID}


def known(language: str) -> str:
    """The language whose words are read: English for all that has no tables here."""
    short = language[:2].lower()
    return short if short in LEXICONS else "en"
