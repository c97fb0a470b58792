"""Items in the shapes that clients of 0.54 check: they drop an item if one member has another shape."""

from collections.abc import Callable, Mapping
from typing import Any

from portico.protocols.rendering import Json, as_list, members, plain

KNOWN = frozenset({"Recipe", "Movie", "Article", "NewsArticle", "BlogPosting", "Summary"})  # to 0.54 search pages


def fit_to_054(item: Json) -> Json:
    """Return an item in the shapes that 0.54 clients check, without members that cannot be converted."""
    values = {name: _NARROW[name](value) if name in _NARROW else value for name, value in item.items()}
    return {name: value for name, value in values.items() if value is not None}


def _one_text(value: Any) -> str | None:
    return plain(value) or None


def _texts(value: Any) -> list[str] | None:
    return [text for part in as_list(value) if (text := plain(part))] or None


def _image(value: Any) -> str | None:
    """Return the URL of one image."""
    for image in as_list(value):
        if isinstance(image, str):
            return image
        picture = members(image)
        address = plain(picture.get("contentUrl")) or plain(picture.get("url")) or plain(picture.get("@id"))
        if address:
            return address
    return None


def _people(value: Any) -> list[Json] | None:
    """Return people and organisations as objects with a name."""
    people: list[Json] = []
    for person in as_list(value):
        source = {"name": person} if isinstance(person, str) else members(person)
        texts = {key: text for key in ("name", "url") if (text := plain(source.get(key)))}
        if "name" in texts:
            people.append(texts)
    return people or None


def _measures(*names: str) -> Callable[[Any], Json | None]:
    def convert(value: Any) -> Json | None:
        source = members(value)
        measures = {name: measure for name in names if _is_measure(measure := source.get(name))}
        return measures if "ratingValue" in measures else None

    return convert


def _is_measure(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


_rating = _measures("ratingValue", "bestRating", "worstRating")


def _reviews(value: Any) -> list[Json] | None:
    reviews = [_review(members(review)) for review in as_list(value)]
    return [review for review in reviews if review] or None


def _review(review: Mapping[str, Any]) -> Json:
    author = _people(review.get("author"))
    fields = {
        "datePublished": _one_text(review.get("datePublished")),
        "reviewBody": _one_text(review.get("reviewBody")),
        "reviewRating": _rating(review.get("reviewRating")),
        "author": author[0] if author else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _video(value: Any) -> Json | None:
    video = members(next(iter(as_list(value)), None))
    return {name: text for name in _OF_VIDEO if (text := plain(video.get(name)))} or None


_OF_VIDEO = ("name", "description", "thumbnailUrl", "uploadDate", "contentUrl", "embedUrl", "duration")
_NARROW: Mapping[str, Callable[[Any], Any]] = {
    "image": _image,
    "genre": _texts,
    "sameAs": _texts,
    "recipeIngredient": lambda value: value if isinstance(value, str) else _texts(value),
    "aggregateRating": _measures("ratingValue", "bestRating", "worstRating", "ratingCount", "reviewCount"),
    "review": _reviews,
    "trailer": _video,
    **dict.fromkeys(("director", "actor", "musicBy", "producer", "productionCompany"), _people),
    **dict.fromkeys(("cookTime", "prepTime", "totalTime", "duration", "datePublished", "dateModified"), _one_text),
    **dict.fromkeys(("headline", "contentRating", "thumbnailUrl"), _one_text),
}
