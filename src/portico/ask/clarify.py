"""What to ask back, and when: typed questions whose options come from the data."""

from collections.abc import Sequence

from portico.ask.events import Clarify, Question
from portico.ask.fields import Fields, called
from portico.ask.phrases import Phrases
from portico.ask.understand import Meaning, Target

ENOUGH = 2  # things that a question says, for it to be answered where the site file asks for details
MAX_ROUNDS = 2  # times that one question is asked back
MAX_QUESTIONS = 4
MAX_OPTIONS = 8
NICE_MINUTES = (5, 10, 15, 20, 30, 40, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
_CURRENCIES = ("priceCurrency", "offers.priceCurrency", "currency")
# What to ask for when the site file does not say, the most telling first; and which phrase asks for it.
ASKED = ("diet", "category", "duration", "price", "place", "rating")
_CALLED = {"category": "kind", "duration": "time"}  # roles that the phrases call otherwise


def clarify(meaning: Meaning, rounds: int, phrases: Phrases, *, is_answered: bool) -> Clarify | None:
    """Questions that would help; None if the question says enough, or was asked back often enough.

    Once it was answered, only answers that mean nothing are asked for again.
    """
    if rounds >= MAX_ROUNDS or not meaning.targets:
        return None
    if is_answered:
        fields = meaning.targets[0].fields
        paths = [path for name in meaning.unclear if (path := fields.field(name))]
        again = [question for path in paths if (question := question_for(fields, path, phrases))]
        return Clarify(phrases.tell_more, tuple(again)) if again else None
    if meaning.content or meaning.constraints or meaning.kind:
        target = meaning.targets[0] if len(meaning.targets) == 1 else None
        if target is None or not _is_vague(meaning, target):
            return None
        questions = _details(meaning, target, phrases)
    else:
        questions = [_which_collection(meaning.targets, phrases)]
    return Clarify(phrases.tell_more, tuple(questions)) if questions else None


def _is_vague(meaning: Meaning, target: Target) -> bool:
    if target.fields.collection.details:
        return meaning.specifics < ENOUGH
    return meaning.is_open and not meaning.content and meaning.specifics < ENOUGH


def _details(meaning: Meaning, target: Target, phrases: Phrases) -> list[Question]:
    """For each detail that is not known yet: the ones of the site file, or the most telling there are."""
    fields = target.fields
    known = {each.field for each in meaning.constraints}
    wanted = fields.collection.details or tuple(path for role in ASKED for path in fields.paths(role)[:1])
    paths = [path for path in (fields.field(name) for name in wanted) if path and path not in known]
    asked = [question for path in paths if (question := question_for(fields, path, phrases))]
    return asked[:MAX_QUESTIONS]


def question_for(fields: Fields, path: str, phrases: Phrases) -> Question | None:
    """A question about a field, of the type that its values suggest; None if there is nothing to choose."""
    role = next((role for role in ASKED if path in fields.paths(role)), "")
    text = phrases.question(_CALLED.get(role, role), called(path))
    held = fields.held(path)
    if held and all(isinstance(value, bool) for value in held):
        return Question(path, text, "boolean")
    if fields.is_worded(path):
        return _choice(fields, path, role, text, phrases)
    numbers = fields.numbers(path)
    if len(set(numbers)) < 2:
        return Question(path, text, "free_text") if held and not numbers else None
    if role in {"duration", "price"}:
        return Question(path, text, "single_select", (*_ranges(fields, numbers, role, phrases), phrases.no_preference))
    return Question(path, text, "number")


def _choice(fields: Fields, path: str, role: str, text: str, phrases: Phrases) -> Question | None:
    options = fields.common(path, MAX_OPTIONS)
    if len(options) < 2:
        return None
    if len(fields.values[path]) > 10 * MAX_OPTIONS and role not in {"diet", "category"}:
        return Question(path, text, "free_text")
    several = role == "diet"
    return Question(path, text, "multi_select" if several else "single_select", (*options, phrases.no_preference))


def _ranges(fields: Fields, numbers: Sequence[float], role: str, phrases: Phrases) -> list[str]:
    """Three ranges that each hold about a third of the items, with ends that people would choose."""
    numbers = [number for number in numbers if number > 0]
    if not numbers:
        return []
    thirds = [numbers[len(numbers) // 3], numbers[2 * len(numbers) // 3]]
    if role == "duration":
        low, high = (min(NICE_MINUTES, key=lambda nice: abs(nice - each / 60)) * 60 for each in thirds)
        ends = [(None, high), (high, None)] if low >= high else [(None, low), (low, high), (high, None)]
        return [phrases.time_range(least, most) for least, most in ends]
    low, high = (_nice(each) for each in thirds)
    ends = [(None, high), (high, None)] if low >= high else [(None, low), (low, high), (high, None)]
    currency = next((name for path in _CURRENCIES for name in fields.common(path, 1)), "")
    return [phrases.price_range(least, most, currency) for least, most in ends]


def _nice(value: float) -> float:
    """A round number near a value: 1, 2, 5, 10, 20, 50, …"""
    size = 10.0 ** len(str(int(abs(value)))) / 10 if value >= 1 else 0.1
    return min((size * step for step in (1, 2, 3, 5, 8, 10)), key=lambda nice: abs(nice - value))


def _which_collection(targets: Sequence[Target], phrases: Phrases) -> Question:
    titles = tuple(target.fields.collection.title or target.name for target in targets)[:MAX_OPTIONS]
    return Question("collection", phrases.which_collection, "single_select", titles)
