"""Items in the shapes that clients of 0.54 check: they drop an item for one member of another shape."""

from collections.abc import Callable, Mapping
from typing import Any

from portico.protocols.nlweb.item_rendering import Shown, members, plain, several

KNOWN = frozenset({"Recipe", "Movie", "Article", "NewsArticle", "BlogPosting", "Summary"})  # to 0.54 search pages


def is_known_kind(item: Shown) -> bool:
    return not KNOWN.isdisjoint(several(item.get("@type")))


def narrowed(item: Shown) -> Shown:
    """An item with every member in the shape that 0.54 clients check; what cannot be made to fit is left out."""
    fitting = {name: _NARROW[name](value) if name in _NARROW else value for name, value in item.items()}
    return {name: value for name, value in fitting.items() if value is not None}


def _one_text(value: Any) -> str | None:
    return plain(value) or None


def _texts(value: Any) -> list[str] | None:
    return [text for each in several(value) if (text := plain(each))] or None


def _text_or_texts(value: Any) -> str | list[str] | None:
    return value if isinstance(value, str) else _texts(value)


def _image(value: Any) -> str | None:
    """The address of one picture."""
    for each in several(value):
        if isinstance(each, str):
            return each
        picture = members(each)
        address = plain(picture.get("contentUrl")) or plain(picture.get("url")) or plain(picture.get("@id"))
        if address:
            return address
    return None


def _named(value: Any) -> list[Shown] | None:
    """People and organisations, by name."""
    found: list[Shown] = []
    for each in several(value):
        given = {"name": each} if isinstance(each, str) else members(each)
        named = {key: text for key in ("name", "url") if (text := plain(given.get(key)))}
        if "name" in named:
            found.append(named)
    return found or None


def _measures(*names: str) -> Callable[[Any], Shown | None]:
    def rating(value: Any) -> Shown | None:
        given = members(value)
        kept = {name: each for name in names if _is_measure(each := given.get(name))}
        return kept if "ratingValue" in kept else None

    return rating


def _is_measure(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


_rating = _measures("ratingValue", "bestRating", "worstRating")


def _reviews(value: Any) -> list[Shown] | None:
    reviews = [_review(members(each)) for each in several(value)]
    return [each for each in reviews if each] or None


def _review(review: Mapping[str, Any]) -> Shown:
    author = _named(review.get("author"))
    shown = {
        "datePublished": _one_text(review.get("datePublished")),
        "reviewBody": _one_text(review.get("reviewBody")),
        "reviewRating": _rating(review.get("reviewRating")),
        "author": author[0] if author else None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _video(value: Any) -> Shown | None:
    video = members(next(iter(several(value)), None))
    return {name: text for name in _OF_VIDEO if (text := plain(video.get(name)))} or None


_OF_VIDEO = ("name", "description", "thumbnailUrl", "uploadDate", "contentUrl", "embedUrl", "duration")
_NARROW: Mapping[str, Callable[[Any], Any]] = {
    "image": _image,
    "genre": _texts,
    "sameAs": _texts,
    "recipeIngredient": _text_or_texts,
    "aggregateRating": _measures("ratingValue", "bestRating", "worstRating", "ratingCount", "reviewCount"),
    "review": _reviews,
    "trailer": _video,
    **dict.fromkeys(("director", "actor", "musicBy", "producer", "productionCompany"), _named),
    **dict.fromkeys(("cookTime", "prepTime", "totalTime", "duration", "datePublished", "dateModified"), _one_text),
    **dict.fromkeys(("headline", "contentRating", "thumbnailUrl"), _one_text),
}
