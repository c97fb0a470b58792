"""Renders opening hours of schema.org, such as "Mo-Fr 09:30-18:00", for people. Other forms stay as they are."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CODES = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
_CODE = "|".join(_CODES)
_HOURS = re.compile(
    rf"(?P<days>(?:{_CODE})(?:\s?[-,]\s?(?:{_CODE}))*)(?:\s+(?P<opens>\d\d:\d\d)\s?-\s?(?P<closes>\d\d:\d\d))?"
)
_ALL_DAY = frozenset({("00:00", "23:59"), ("00:00", "24:00"), ("00:00", "00:00")})
MAX_HOURS = 100  # characters


@dataclass(frozen=True, slots=True)
class WeekWords:
    """The days of a language, shortly, from Monday on."""

    days: tuple[str, ...]
    daily: str
    always: str  # at any hour


WEEK_WORDS: Mapping[str, WeekWords] = {
    "en": WeekWords(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), "every day", "day and night"),
    "de": WeekWords(("Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"), "täglich", "rund um die Uhr"),
    "es": WeekWords(("lun", "mar", "mié", "jue", "vie", "sáb", "dom"), "todos los días", "las 24 horas"),
    "fr": WeekWords(("lun", "mar", "mer", "jeu", "ven", "sam", "dim"), "tous les jours", "24 heures sur 24"),
    "ar": WeekWords(
        ("الاثنين", "الثلاثاء", "الأربعاء", "الخميس", "الجمعة", "السبت", "الأحد"), "يوميًا", "على مدار الساعة"
    ),
    "ja": WeekWords(("月", "火", "水", "木", "金", "土", "日"), "毎日", "24時間"),
    "zh": WeekWords(("周一", "周二", "周三", "周四", "周五", "周六", "周日"), "每天", "全天"),
}


def render_hours(text: str, language: str) -> str:
    """Return opening days and hours in a language, or the text itself if schema.org does not know its form."""
    match = _HOURS.fullmatch(text.strip()) if len(text) <= MAX_HOURS else None
    if match is None:
        return text
    week, span = WEEK_WORDS[language], (match["opens"], match["closes"])
    day_names: dict[str, str] = dict(zip(_CODES, week.days, strict=True))
    spaced = re.sub(r"\s?-\s?", "–", re.sub(r"\s?,\s?", ", ", match["days"]))
    days = week.daily if spaced == "Mo–Su" else re.sub(_CODE, lambda code: day_names[code[0]], spaced)
    if span in _ALL_DAY:
        return week.always if days == week.daily else f"{days} {week.always}"
    return f"{days} {span[0]}–{span[1]}" if match["opens"] else days
