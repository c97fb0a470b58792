"""Questions about one thing: "tell me more about the lighthouse". Reads words; searches nothing."""

import re

MAX_SUBJECT = 120  # characters of a name

# What stands before the thing, and in some languages behind it.
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:(?:please|can you|could you|would you|i(?:'d| would) like to|i want to)\s+)*"
        r"(?:(?:tell|show|give)\s+me|know|hear|learn|read)\s+"
        r"(?:(?:a (?:bit|little)|some|something|more|all|everything|info|information|details|please)\s+)*"
        r"(?:about|on|of)\s+(?P<what>.+)",
        r"(?:(?:some\s+)?more|(?:more\s+)?(?:info|information|details))\s+(?:about|on|of|for)\s+(?P<what>.+)",
        r"(?:bitte\s+)?(?:erzähle?|sage?|erzählen\s+sie|sagen\s+sie)\s+(?:mir|uns)\s+(?:bitte\s+)?"
        r"(?:(?:etwas|mehr|alles|noch)\s+)*(?:über|von|zu[mr]?)\s+(?P<what>.+)",
        r"mehr\s+(?:infos\s+|informationen\s+)?(?:über|zu[mr]?)\s+(?P<what>.+)",
        r"(?:cuéntame|cuénteme|cuentame|dime|dígame|háblame|hábleme)\s+(?:(?:algo|más|mas|todo)\s+)*"
        r"(?:del?|sobre|acerca\s+del?)\s+(?P<what>.+)",
        r"más\s+(?:información\s+|detalles\s+)?(?:del?|sobre|acerca\s+del?)\s+(?P<what>.+)",
        r"(?:dites|dis)[-\s]m['’]en\s+(?:un\s+peu\s+)?plus\s+(?:sur|de|du)\s+(?P<what>.+)",
        r"(?:parle|parlez)[-\s](?:moi|nous)\s+(?:de|du|des|d['’])\s*(?P<what>.+)",
        r"plus\s+(?:d['’]info(?:rmation)?s?\s+|de\s+détails\s+)?sur\s+(?P<what>.+)",
        r"(?:أخبرني|حدثني)\s+(?:(?:المزيد|بالمزيد|أكثر)\s+)?عن\s+(?P<what>.+)",
        r"(?P<what>.+?)について(?:もっと)?(?:詳しく)?教えて(?:ください)?",
        r"(?:请)?(?:详细)?(?:介绍|说说|讲讲)(?:一下)?(?P<what>.+)",
    )
)


def subject_of(question: str) -> str:
    """Return what a question wants to be told of; empty if it wants something else."""
    trimmed = " ".join(question.split()).strip(" .!?¿¡؟？。！…")
    full_match = next((match for way in _PATTERNS if (match := way.fullmatch(trimmed))), None)
    what = full_match["what"].strip(" \"'“”„«»") if full_match else ""
    return what if len(what) <= MAX_SUBJECT else ""
