"""Decides what a field is to an item: its title, its picture, its price. Reads names and statistics, never items."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from portico.catalog import NUMERIC, FieldType, Role, singular
from portico.sources.role_names import Match, NameMatch, excluded_roles, match_name, name_words

MAX_TITLE = 120  # characters that titles have on average, at most
MIN_DESCRIPTION = 60  # characters that texts have on average that describe
MIN_DISTINCT = 0.3  # of values per value, for a title that no name tells
REPEATED = 0.1  # of values per value: what so few values are told by is a kind, not a title
MIN_TITLE_SCORE = 30.0

_NO_TITLE: Final = frozenset(
    {"url", "email", "uuid", "hash", "phone", "isbn", "gtin", "postcode", "date", "datetime", "time", "year", "money",
     "quantity", "percent", "duration", "coordinates", "html", "json"}
)  # fmt: skip
_CODE: Final = "code"
_YEAR: Final = "year"
_DATES: Final = frozenset({"date", "datetime", "year"})
_LATITUDE, _LONGITUDE = 90.0, 180.0
_IMAGE = re.compile(r"\.(?:jpe?g|png|gif|webp|avif|svg|bmp|tiff?)(?:[?#].*)?\Z", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s/]+", re.IGNORECASE)
_API = re.compile(r"https?://(?:api\.|[^\s/]+/api/)", re.IGNORECASE)
# What a field called `state` says that is no state of a country.
_STATUSES: Final = frozenset(
    {"active", "archived", "approved", "cancelled", "canceled", "closed", "completed", "done", "draft", "inactive",
     "merged", "new", "open", "paid", "pending", "processing", "published", "rejected", "resolved", "shipped"}
)  # fmt: skip
_RELATIVE = re.compile(r"[^\s:/]*+/[^\s:]*+\Z")
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+\Z")
_HASH = re.compile(r"(?=.*\d)(?:[0-9a-f]{8,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|sha\w*:.+)\Z", re.IGNORECASE)
_NO_LETTERS = re.compile(r"[\W\d_]*\Z")
_TOKEN = re.compile(r"(?=\S*\d)\S+\Z")  # one word with a number, as codes are


@dataclass(frozen=True, slots=True)
class FieldProfile:
    """What the values of one field are like, over all items of a source."""

    name: str  # a path such as `offers.price` below an object
    type: FieldType
    format: str = ""  # as in `Field.format`: url, email, money, code, uuid, hash, year, ...
    coverage: float = 1.0  # the share of items that have a value, 0..1
    distinct: float = 1.0  # different values per value, 0..1; that of a sample for large data
    length: float = 0.0  # the mean number of characters of a text
    examples: tuple[Any, ...] = ()  # a few of the values, as they are stored


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A field with what its name says."""

    profile: FieldProfile
    matches: Mapping[Role, NameMatch]
    excluded: frozenset[Role]

    def has_name_of(self, *roles: Role) -> bool:
        return any(role in self.matches for role in roles)


def assign_roles(profiles: Sequence[FieldProfile], collection: str = "") -> dict[Role, str]:
    """Return the field for each role that a collection's data fills. Profiles are in the order of the source.

    A field has one role. Names count more than values, and no name makes a title of a hash, a code or a number.
    """
    candidates = [
        _Candidate(profile, {match.role: match for match in match_name(profile.name)}, excluded_roles(profile.name))
        for profile in profiles
        if profile.coverage > 0
    ]
    roles: dict[Role, str] = {}
    for role, score in _SCORES.items():
        free = [candidate for candidate in candidates if candidate.profile.name not in roles.values()]
        _assign(roles, role, free, score)
    _assign_position(roles, candidates)
    _assign_names_of_people(roles, candidates)
    free = [candidate for candidate in candidates if candidate.profile.name not in roles.values()]
    is_person = "given_name" in roles
    _assign(roles, "title", free, lambda candidate: _score_title(candidate, collection, is_person=is_person))
    if not is_person:
        _prefer_place(roles, candidates, collection)
    free = [candidate for candidate in candidates if candidate.profile.name not in roles.values()]
    _assign(roles, "description", free, _score_description)
    return roles


def _assign(
    roles: dict[Role, str],
    role: Role,
    candidates: Iterable[_Candidate],
    score: Callable[[_Candidate], float | None],
) -> None:
    """Give a role to the field with the highest score, the first of several."""
    scored = [(points, candidate) for candidate in candidates if (points := score(candidate)) is not None]
    if scored:
        roles[role] = max(scored, key=lambda pair: pair[0])[1].profile.name


def _points(match: NameMatch | None) -> float | None:
    """Return how much a name counts: whole names before parts, telling ones before others."""
    return None if match is None else 100.0 - 25.0 * match.match - min(match.rank, 40) * 0.5


def _score_image(candidate: _Candidate) -> float | None:
    profile = candidate.profile
    if not _is_text(profile) and profile.type not in {FieldType.ARRAY, FieldType.OBJECT}:
        return None
    is_image = _share(profile, lambda text: _IMAGE.search(text) is not None) >= 0.5
    is_url = profile.format == "url" or _share(profile, _is_address) >= 0.5
    points = _points(candidate.matches.get("image"))
    if points is not None:
        return points + 20 * is_image if is_image or is_url else None
    return 40.0 * profile.coverage if is_image and "image" not in candidate.excluded else None


def _score_link(candidate: _Candidate) -> float | None:
    profile = candidate.profile
    is_url = profile.format == "url" or _share(profile, lambda text: _URL.match(text) is not None) >= 0.5
    if not _is_text(profile) or _share(profile, lambda text: _IMAGE.search(text) is not None) >= 0.5:
        return None
    points = _points(candidate.matches.get("link"))
    if points is not None and (is_url or _share(profile, _is_address) >= 0.5):
        # `url` of an API leads programs, `html_url` beside it people.
        return points - 60 * (_share(profile, lambda text: _API.match(text) is not None) >= 0.5)
    is_other = "link" in candidate.excluded or candidate.has_name_of("image")
    return 40.0 * profile.distinct if is_url and not is_other and profile.distinct > MIN_DISTINCT else None


def _score_price(candidate: _Candidate) -> float | None:
    profile = candidate.profile
    if profile.type not in NUMERIC:
        return None
    points = _points(candidate.matches.get("price"))
    if points is None:
        return None
    # A sale price that few items have is not what the others cost.
    return points + 20 * (profile.format == "money") - 40 * (1 - profile.coverage)


def _score_date(candidate: _Candidate) -> float | None:
    profile = candidate.profile
    points = _points(candidate.matches.get("date"))
    if profile.type is FieldType.TIMESTAMP or (profile.format in _DATES and profile.type not in NUMERIC):
        return 30.0 if points is None and "date" not in candidate.excluded else points
    is_year = profile.type is FieldType.INTEGER and (profile.format == _YEAR or _share_of_years(profile) >= 0.8)
    return points - 5 if points is not None and is_year else None


def _score_place(candidate: _Candidate) -> float | None:
    profile = candidate.profile
    is_place = _is_text(profile) and profile.format in {"", _CODE} and profile.length <= MAX_TITLE
    is_place = is_place and _share(profile, lambda text: text.casefold() in _STATUSES) < 0.5
    return _points(candidate.matches.get("place")) if is_place else None


_SCORES: Final[Mapping[Role, Callable[[_Candidate], float | None]]] = {
    "image": _score_image,
    "link": _score_link,
    "price": _score_price,
    "date": _score_date,
    "place": _score_place,
}


def _assign_position(roles: dict[Role, str], candidates: Sequence[_Candidate]) -> None:
    """Give the roles of a position, if there are both."""
    latitude: dict[Role, str] = {}
    _assign(latitude, "latitude", candidates, lambda candidate: _score_degrees(candidate, "latitude", _LATITUDE))
    _assign(latitude, "longitude", candidates, lambda candidate: _score_degrees(candidate, "longitude", _LONGITUDE))
    if len(latitude) == 2:
        roles |= latitude


def _prefer_place(roles: dict[Role, str], candidates: Sequence[_Candidate], collection: str) -> None:
    """Let the field of the place be the title where it tells items apart better than a title that no name tells."""
    by_name = {candidate.profile.name: candidate for candidate in candidates}
    place, title = by_name.get(roles.get("place", "")), by_name.get(roles.get("title", ""))
    points = _score_title(place, collection, is_person=False) if place else None
    if points is None or (title and title.has_name_of("title")):
        return
    known = _score_title(title, collection, is_person=False) if title else None
    if known is None or known < points:
        roles["title"] = roles.pop("place")


def _score_degrees(candidate: _Candidate, role: Role, most: float) -> float | None:
    profile = candidate.profile
    numbers = [value for value in profile.examples if isinstance(value, int | float) and not isinstance(value, bool)]
    is_degrees = profile.type in NUMERIC and all(abs(number) <= most for number in numbers)
    return _points(candidate.matches.get(role)) if is_degrees else None


def _assign_names_of_people(roles: dict[Role, str], candidates: Sequence[_Candidate]) -> None:
    """Give the roles of given and family name, if there are both."""
    names: dict[Role, str] = {}
    _assign(names, "family_name", candidates, lambda candidate: _score_person(candidate, "family_name"))
    others = [candidate for candidate in candidates if candidate.profile.name != names.get("family_name")]
    _assign(names, "given_name", others, lambda candidate: _score_person(candidate, "given_name"))
    if len(names) == 2:
        roles |= names


def _score_person(candidate: _Candidate, role: Role) -> float | None:
    match = candidate.matches.get(role)
    # `Product Name` is no given name; `Author First Name` is one, of somebody else.
    is_own = match is not None and match.match in {Match.WHOLE, Match.ENDING}
    return _points(match) if is_own and _is_text(candidate.profile) and _has_words(candidate.profile) else None


def _score_title(candidate: _Candidate, collection: str, *, is_person: bool) -> float | None:
    """Return how well a field titles items: by its name, how different its values are, and how many items have one."""
    profile, match = candidate.profile, candidate.matches.get("title")
    if not _is_text(profile) or profile.format in _NO_TITLE or profile.length > MAX_TITLE or not _has_words(profile):
        return None
    differs = 30 * profile.distinct - (40 if profile.distinct < REPEATED else 0) - 40 * (1 - profile.coverage)
    if profile.format == _CODE:
        return MIN_TITLE_SCORE if match and match.match is Match.WHOLE else None
    if match:
        if is_person and name_words(profile.name)[-1] in {"title", "titel", "titre", "titolo", "titulo"}:
            return None  # of a person: a degree, a job
        own = match.match in {Match.LAST, Match.ENDING} and _names_one_of(match.rest, collection)
        points = 97.0 if own else (100.0, 70.0, 65.0, 65.0)[match.match]
        score = points - min(match.rank, 20) * 0.5 + differs
        return score if score >= MIN_TITLE_SCORE else None
    if is_person or candidate.has_name_of("given_name", "family_name"):
        return None
    if candidate.has_name_of("description") and profile.length >= MIN_DESCRIPTION:
        return None
    is_nested = "." in profile.name.rstrip(".")  # `Bez.` ends an abbreviation
    is_title = profile.distinct >= MIN_DISTINCT and not is_nested and _share(profile, _is_phrase) >= 0.5
    score = 30 * _share(profile, _is_phrase) + differs
    return score if is_title and score >= MIN_TITLE_SCORE else None


def _names_one_of(rest: str, collection: str) -> bool:
    """Whether the rest of a compound names what the collection holds: `recipe` in `recipes`."""
    own = "".join(name_words(collection))
    return len(rest) >= 3 and bool(own) and (own.startswith(rest) or rest.startswith(singular(own)))


def _score_description(candidate: _Candidate) -> float | None:
    profile = candidate.profile
    if not _is_text(profile) or profile.format in _NO_TITLE - {"html"} or not _has_words(profile):
        return None
    points = _points(candidate.matches.get("description"))
    if points is not None:
        return points - 40 * (1 - profile.coverage)
    is_long = profile.length >= MIN_DESCRIPTION and profile.distinct >= MIN_DISTINCT
    return 20.0 + min(profile.length, 1000.0) / 100 if is_long else None


def _is_text(profile: FieldProfile) -> bool:
    return profile.type is FieldType.STRING or (
        profile.type is FieldType.ANY and bool(profile.examples) and isinstance(profile.examples[0], str)
    )


def _share(profile: FieldProfile, test: Callable[[str], bool]) -> float:
    """Return the share of examples whose text passes a test; 0 without texts."""
    texts = [text for value in profile.examples if (text := _text_in(value))]
    return sum(map(test, texts)) / len(texts) if texts else 0.0


def _text_in(value: Any) -> str:
    """Return a text, the first one of a list, or the URL of an object."""
    match value:
        case str():
            return value.strip()[:2000]
        case [first, *_] if isinstance(first, str):
            return first.strip()[:2000]
        case Mapping():
            return _text_in(cast("Mapping[str, Any]", value).get("url"))
        case _:
            return ""


def _has_words(profile: FieldProfile) -> bool:
    """Whether most values are texts for people, not hashes, numbers or addresses."""
    return not profile.examples or _share(profile, _is_readable) > 0.5


def _is_readable(text: str) -> bool:
    return not any(pattern.match(text) for pattern in (_NO_LETTERS, _HASH, _URL, _EMAIL))


def _is_phrase(text: str) -> bool:
    return _is_readable(text) and not _TOKEN.match(text) and not _IMAGE.search(text)


def _is_address(text: str) -> bool:
    return bool(_URL.match(text) or _IMAGE.search(text) or _RELATIVE.match(text))


def _share_of_years(profile: FieldProfile) -> float:
    numbers = [value for value in profile.examples if isinstance(value, int)]
    return sum(1000 <= number <= 2100 for number in numbers) / len(numbers) if numbers else 0.0
