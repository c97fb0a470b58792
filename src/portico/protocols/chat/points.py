"""Items and passages as data points: the sources of an answer, under the names by which it cites them.

A source is the URL of an item, so that a front end can open it. It has no brackets and no spaces, whatever the
item says: an answer cites it in square brackets, and a data point puts it before a colon and a space.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from portico.ask.answers import passage
from portico.ask.events import ItemEvent
from portico.ask.languages.localization import phrases
from portico.ask.prose import shorten
from portico.items import Item
from portico.protocols.rendering import RenderContext, description, plain, render_item

MAX_TEXT = 1500  # characters of a data point
MAX_SNIPPET = 200
MAX_CITED = 3  # sources after one sentence
_UNQUOTED = "%:/?#@!$&'()*+,;=~"


@dataclass(slots=True)
class DataPoints:
    """The items found for an answer so far."""

    context: RenderContext
    items: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # in full, for front ends that know them
    refs: list[str] = field(default_factory=list[str])  # beside the items
    text: list[str] = field(default_factory=list[str])
    images: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    citations: list[str] = field(default_factory=list[str])
    metadata: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sources: dict[str, str] = field(default_factory=dict[str, str])  # by the ref of an item

    def attach(self, passages: Iterable[Item]) -> None:
        for passage_item in passages:
            name = plain(passage_item.data.get("name"))
            self._add(
                passage_item.ref,
                passage_item.id,
                passage_item.id,
                "" if passage_item.id.startswith(name) else name,
                plain(passage_item.data.get("text")),
            )

    def take(self, result: ItemEvent, question: str, language: str) -> None:
        """Add an item that was found for a question, with the passage that an answer may quote."""
        rendered = render_item(result, self.context)
        self.items.append(rendered)
        self.refs.append(result.item.ref)
        self._show(result.item, rendered, passage(question, result.item, phrases(language), MAX_TEXT))
        for twin in result.same:
            self.sources.setdefault(twin.ref, self.sources[result.item.ref])

    def cite(self, refs: Iterable[str]) -> str:
        """Return the sources of items in square brackets, to follow a sentence; none if there are too many."""
        sources = dict.fromkeys(self.sources[ref] for ref in refs if ref in self.sources)
        return "".join(f"[{source}]" for source in sources) if len(sources) <= MAX_CITED else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "images": self.images,
            "citations": self.citations,
            "external_results_metadata": self.metadata,
        }

    def _show(self, item: Item, rendered: Mapping[str, Any], text: str) -> None:
        url = _address(rendered["url"])
        name = str(rendered["name"])
        self._add(item.ref, source_of(url), url, "", text)
        self.metadata.append(
            {"id": item.id, "title": name, "url": url, "snippet": shorten(description(rendered) or name, MAX_SNIPPET)}
        )
        if image := _image(rendered.get("image")):
            self.images.append({"url": image, "detail": "auto"})

    def _add(self, ref: str, source: str, citation: str, name: str, text: str) -> None:
        words = " ".join(f"{name}. {text}".split()) if name and not text.startswith(name) else " ".join(text.split())
        self.sources[ref] = source
        self.text.append(f"{source}: {shorten(words, MAX_TEXT)}")
        if citation not in self.citations:
            self.citations.append(citation)


def _address(url: str) -> str:
    """Return a URL without brackets and spaces, except the brackets of an IPv6 host."""
    parts = urlsplit(url)
    begin = f"{parts.scheme}://{parts.netloc}"
    return f"{begin}{quote(url[len(begin) :], safe=_UNQUOTED)}"


def source_of(url: str) -> str:
    """Return the citation of a URL: itself, or its path if its host is written in brackets."""
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
