"""The languages that are read and said, one module each. Another one begins as another module here."""

from portico.ask.languages import chinese, english, french, german, japanese, spanish

LEXICONS = {"en": english.LEXICON, "de": german.LEXICON, "es": spanish.LEXICON, "fr": french.LEXICON}
DATES = {"en": english.DATES, "de": german.DATES, "es": spanish.DATES, "fr": french.DATES}
SPEECHES = {"en": english.SPEECH, "de": german.SPEECH, "es": spanish.SPEECH, "fr": french.SPEECH}
PHRASES = {each.PHRASES.language: each.PHRASES for each in (english, german, spanish, french, chinese, japanese)}


def known(language: str) -> str:
    """The language whose words are read: English for all that has no tables here."""
    short = language[:2].lower()
    return short if short in LEXICONS else "en"
