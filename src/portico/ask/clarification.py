"""Clarifications: when to ask back, and typed questions whose options come from the data."""

from collections.abc import Iterable, Sequence

from portico.ask.events import ClarificationEvent, Question
from portico.ask.languages.localization import Phrases
from portico.ask.languages.phrasebook import capitalize
from portico.ask.languages.wordlists import fold_words
from portico.ask.understanding.fields import Fields, key_of, label_of, words_of
from portico.ask.understanding.kinds import QUESTION_WORDS
from portico.ask.understanding.planner import CollectionQuery, QueryPlan
from portico.items import Item, title_of
from portico.search.index.text import fold, words

ENOUGH_SPECIFICS = 2  # constraints in a question that make up for missing details of the site file
MAX_ROUNDS = 2  # clarifications per question
MAX_QUESTIONS = 4
MAX_OPTIONS = 8
NICE_MINUTES = (5, 10, 15, 20, 30, 40, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
_CURRENCIES = ("priceCurrency", "offers.priceCurrency", "currency")
# What to ask for when the site file does not say, the most telling first; and which phrase asks for it.
DEFAULT_ROLES = ("diet", "category", "duration", "price", "place", "rating")
_FACET_OF_ROLE = {"category": "kind", "duration": "time"}  # roles that the phrases call otherwise


def build_clarification(
    plan: QueryPlan, rounds: int, phrases: Phrases, *, is_answered: bool
) -> ClarificationEvent | None:
    """Return questions that would help, or None if the question says enough or was asked back often enough.

    Once it was answered, only answers that mean nothing are asked for again.
    """
    if rounds >= MAX_ROUNDS or not plan.targets:
        return None
    if is_answered:
        fields = plan.targets[0].fields
        paths = [path for name in plan.unclear if (path := fields.field(name))]
        again = [question for path in paths if (question := question_for(fields, path, phrases))]
        return ClarificationEvent(phrases.tell_more, tuple(again)) if again else None
    if plan.content or plan.constraints or plan.kind:
        target = plan.targets[0] if len(plan.targets) == 1 else None
        if target is None or not _is_vague(plan, target):
            return None
        questions = _details(plan, target, phrases)
    else:
        titles = [target.fields.collection.title or target.name for target in plan.targets][:MAX_OPTIONS]
        options = tuple(translate_options(titles, phrases))
        questions = [Question("collection", phrases.which_collection, "single_select", options)]
    return ClarificationEvent(phrases.tell_more, tuple(questions)) if questions else None


def _is_vague(plan: QueryPlan, target: CollectionQuery) -> bool:
    if target.fields.collection.details:
        return plan.specifics < ENOUGH_SPECIFICS
    return plan.is_open and not plan.content and plan.specifics < ENOUGH_SPECIFICS


def _details(plan: QueryPlan, target: CollectionQuery, phrases: Phrases) -> list[Question]:
    """Return a question for each unknown detail: those of the site file, or the most telling ones."""
    fields = target.fields
    constrained = {constraint.field for constraint in plan.constraints}
    details = fields.collection.details or tuple(path for role in DEFAULT_ROLES for path in fields.paths(role)[:1])
    paths = [path for path in (fields.field(name) for name in details) if path and path not in constrained]
    questions = [question for path in paths if (question := question_for(fields, path, phrases))]
    return questions[:MAX_QUESTIONS]


def question_for(fields: Fields, path: str, phrases: Phrases) -> Question | None:
    """Return a question about a field, of the type that its values suggest; None if there is nothing to choose."""
    role = next((role for role in DEFAULT_ROLES if path in fields.paths(role)), "")
    text = phrases.question(_FACET_OF_ROLE.get(role, role), label_of(path))
    held = fields.held_values(path)
    if held and all(isinstance(value, bool) for value in held):
        return Question(path, text, "boolean")
    if fields.has_text_values(path):
        return _choice(fields, path, role, text, phrases)
    numbers = fields.numbers(path)
    if len(set(numbers)) < 2:
        return Question(path, text, "free_text") if held and not numbers else None
    if role in {"duration", "price"}:
        return Question(path, text, "single_select", (*_ranges(fields, numbers, role, phrases), phrases.no_preference))
    return Question(path, text, "number")


def _choice(fields: Fields, path: str, role: str, text: str, phrases: Phrases) -> Question | None:
    options = fields.most_common(path, MAX_OPTIONS)
    if len(options) < 2:
        return None
    if len(fields.values[path]) > 10 * MAX_OPTIONS and role not in {"diet", "category"}:
        return Question(path, text, "free_text")
    several = role == "diet"
    choices = (*translate_options(options, phrases), phrases.no_preference)
    return Question(path, text, "multi_select" if several else "single_select", choices)


def translate_options(options: Sequence[str], phrases: Phrases) -> list[str]:
    """Return options in the language of the answer where it has words for them; `english_for` reads them back.

    Where two options have one word, both stay as they are.
    """
    words = [_in_language(option, phrases) for option in options]
    return [word if words.count(word) == 1 else option for option, word in zip(options, words, strict=True)]


def _in_language(option: str, phrases: Phrases) -> str:
    english = words_of(option)
    word = phrases.word(english)
    if word == english:
        return option
    return capitalize(word) if option[:1].isupper() else word


def _ranges(fields: Fields, numbers: Sequence[float], role: str, phrases: Phrases) -> list[str]:
    """Return three ranges that each hold about a third of the items, with ends that people would choose."""
    numbers = [number for number in numbers if number > 0]
    if not numbers:
        return []
    thirds = [numbers[len(numbers) // 3], numbers[2 * len(numbers) // 3]]
    if role == "duration":
        low, high = (min(NICE_MINUTES, key=lambda nice: abs(nice - third / 60)) * 60 for third in thirds)
        ends = [(None, high), (high, None)] if low >= high else [(None, low), (low, high), (high, None)]
        return [phrases.time_range(least, most) for least, most in ends]
    low, high = (_nice(third) for third in thirds)
    ends = [(None, high), (high, None)] if low >= high else [(None, low), (low, high), (high, None)]
    currency = next((name for path in _CURRENCIES for name in fields.most_common(path, 1)), "")
    return [phrases.price_range(least, most, currency) for least, most in ends]


def _nice(value: float) -> float:
    """Return a round number near a value: 1, 2, 5, 10, 20, 50, …"""
    size = 10.0 ** len(str(int(abs(value)))) / 10 if value >= 1 else 0.1
    return min((size * step for step in (1, 2, 3, 5, 8, 10)), key=lambda nice: abs(nice - value))


# Items by name


def match_answer(answer: str, items: Sequence[Item]) -> list[Item]:
    """Return the items that an answer may mean: the one it was offered as, or those whose names have what was said."""
    folded_answer, stems = fold(answer.strip()), _stems(answer)
    return (
        [item for item, label in zip(items, labels(items), strict=True) if fold(label) == folded_answer]
        or [item for item in items if fold(title_of(item.data)) == folded_answer]
        or match_names(answer, items)
        or [item for item in items if stems and stems <= _stems(title_of(item.data))]
    )


def match_names(text: str, items: Sequence[Item]) -> list[Item]:
    """Return the items whose whole name stands in a text; the longest name counts."""
    text_stems = frozenset(key_of(text))
    matches = [(stems, item) for item in items if (stems := _stems(title_of(item.data))) and stems <= text_stems]
    longest = max((len(stems) for stems, _ in matches), default=0)
    return [item for stems, item in matches if len(stems) == longest]


def match_hint(hint: str, items: Sequence[Item]) -> list[Item]:
    """Return the items whose names share words with a hint, the ones that share most first."""
    stems = _stems(hint)
    shared = {item.id: len(stems & _stems(title_of(item.data))) for item in items}
    return sorted((item for item in items if shared[item.id]), key=lambda item: -shared[item.id])


def labels(items: Sequence[Item]) -> tuple[str, ...]:
    """Return what items are called where they are to choose from; the id tells those apart that have one name."""
    titles = [title_of(item.data) or item.id for item in items]
    return tuple(
        f"{title} ({item.id})" if titles.count(title) > 1 else title for item, title in zip(items, titles, strict=True)
    )


def _stems(name: str) -> frozenset[str]:
    stems = frozenset(key_of(name))
    return stems - _ARTICLES or stems


_ARTICLES = fold_words("the a an der die das ein eine el la los las un una le les une")


# Replies to a clarification


def is_dismissal(text: str) -> bool:
    """Return whether somebody wants nothing more of what is asked back."""
    normalized = fold(" ".join(words(text)))
    return normalized.removesuffix(" please").removesuffix(" thanks") in _DISMISSALS


def is_an_answer(text: str, collections: Iterable[str]) -> bool:
    """Return whether words may answer a question about a command: few, and neither a question nor a search."""
    lowered = [word.lower() for word in words(text)]
    if not lowered or len(lowered) > MAX_ANSWER_WORDS or "?" in text or "؟" in text or "？" in text:
        return False
    return (
        lowered[0] not in QUESTION_WORDS
        and lowered[0] not in _SEARCH_VERBS
        and not set(collections).intersection(lowered)
    )


MAX_ANSWER_WORDS = 8
_SEARCH_VERBS = frozenset(
    """show find list search tell give recommend suggest best zeig zeige finde suche empfiehl muestra busca recomienda
    montre cherche trouve recommande""".split()  # noqa: SIM905 - a list of words is read as words
)
_DISMISSALS = frozenset(
    fold(" ".join(words(phrase)))
    for language in (
        "never mind|nevermind|cancel|cancel that|cancel it|cancel this|forget it|forget that|forget about it|stop|quit",
        "no thanks|no thank you|leave it|drop it|not now",
        "vergiss es|vergessen Sie es|abbrechen|egal|schon gut|lass es|lassen Sie es|nein danke|stopp|doch nicht",
        "olvídalo|olvídelo|olvida|cancela|cancelar|cancélalo|déjalo|déjelo|no importa|da igual|no gracias",
        "laisse tomber|laissez tomber|annule|annuler|annulez|oublie|oubliez|oublie ça|peu importe|tant pis|non merci",
        "لا يهم|انس الأمر|إلغاء|ألغ ذلك|توقف|لا شكرا",
        "算了|取消|不用了|不要了|没关系|やめる|やめて|やめます|キャンセル|もういい|結構です|取り消し",
    )
    for phrase in language.split("|")
)
