"""Items and passages as data points: what an answer relies on, under the names that it is cited by.

A source is the address of an item, so that a front end can open it. It has no brackets and no blanks, whatever the
item says: in an answer it stands in square brackets, and in a data point before a colon and a blank.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from portico.ask.answers import passage
from portico.ask.events import Found
from portico.ask.languages.localization import phrases
from portico.ask.prose import shortened
from portico.items import Item
from portico.protocols.nlweb.dialects import V55
from portico.protocols.nlweb.item_rendering import Premises, description, plain, shown_item

MAX_TEXT = 1500  # characters of a data point
MAX_SNIPPET = 200
MAX_CITED = 3  # sources after one sentence
_UNQUOTED = "%:/?#@!$&'()*+,;=~"


@dataclass(slots=True)
class Points:
    """What was found for an answer, so far."""

    premises: Premises
    items: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # in full, for front ends that know them
    refs: list[str] = field(default_factory=list[str])  # beside the items
    text: list[str] = field(default_factory=list[str])
    images: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    citations: list[str] = field(default_factory=list[str])
    metadata: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sources: dict[str, str] = field(default_factory=dict[str, str])  # by the ref of an item

    def attach(self, passages: Iterable[Item]) -> None:
        for each in passages:
            name = plain(each.data.get("name"))
            self._add(
                each.ref, each.id, each.id, "" if each.id.startswith(name) else name, plain(each.data.get("text"))
            )

    def take(self, found: Found, question: str, language: str) -> None:
        """Note an item that was found for a question, with what an answer may say of it."""
        shown = shown_item(found, self.premises, V55)
        self.items.append(shown)
        self.refs.append(found.item.ref)
        self._show(found.item, shown, passage(question, found.item, phrases(language), MAX_TEXT))
        for twin in found.same:
            self.sources.setdefault(twin.ref, self.sources[found.item.ref])

    def cited(self, refs: Iterable[str]) -> str:
        """The sources of items in square brackets, as they stand after a sentence. What is said of all cites none."""
        known = dict.fromkeys(self.sources[ref] for ref in refs if ref in self.sources)
        return "".join(f"[{each}]" for each in known) if len(known) <= MAX_CITED else ""

    def shown(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "images": self.images,
            "citations": self.citations,
            "external_results_metadata": self.metadata,
        }

    def _show(self, item: Item, shown: Mapping[str, Any], text: str) -> None:
        url = _address(shown["url"])
        name = str(shown["name"])
        self._add(item.ref, source_of(url), url, "", text)
        self.metadata.append(
            {"id": item.id, "title": name, "url": url, "snippet": shortened(description(shown) or name, MAX_SNIPPET)}
        )
        if image := _image(shown.get("image")):
            self.images.append({"url": image, "detail": "auto"})

    def _add(self, ref: str, source: str, citation: str, name: str, text: str) -> None:
        said = " ".join(f"{name}. {text}".split()) if name and not text.startswith(name) else " ".join(text.split())
        self.sources[ref] = source
        self.text.append(f"{source}: {shortened(said, MAX_TEXT)}")
        if citation not in self.citations:
            self.citations.append(citation)


def _address(url: str) -> str:
    """A URL without brackets and blanks, but where its host is written in brackets."""
    parts = urlsplit(url)
    begin = f"{parts.scheme}://{parts.netloc}"
    return f"{begin}{quote(url[len(begin) :], safe=_UNQUOTED)}"


def source_of(url: str) -> str:
    """What a URL is cited by: itself, or its path where its host is written in brackets."""
    return url if "[" not in url else f"/{url.split('/', 3)[-1]}"


def _image(value: Any) -> str:
    match value:
        case str():
            return value
        case [first, *_]:
            return _image(first)
        case {"url": inner} | {"contentUrl": inner}:
            return _image(inner)
        case _:
            return ""
