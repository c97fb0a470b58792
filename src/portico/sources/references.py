"""Files that a document refers to with `$ref`, beside it on disk or on its server. Leaves neither folder nor server."""

import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote

import yaml

from portico.errors import SourceError
from portico.network import join_url
from portico.sources import jsonld
from portico.sources.fetch import Fetcher, origin_of
from portico.sources.plain import load_yaml, plain
from portico.sources.records import MAX_RECORD_BYTES, Document

_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_INDEX = re.compile("[0-9]{1,9}")
MAX_FILES = 200
MAX_BYTES = 4 * MAX_RECORD_BYTES  # of all files together


class InvalidReference(ValueError):
    """A reference cannot be followed; the message says why."""


class Library:
    """The files that one document consists of, read when they are first referred to.

    In these files references are made absolute, so that they mean the same wherever they are copied to.
    """

    def __init__(self, document: Document, value: Any, web: Fetcher) -> None:
        self._web = web
        self._base = document.url or ""
        self._folder = document.folder.resolve() if document.folder and not document.url else None
        self._main = self._key_of_main(document)
        self._files: dict[str, Any] = {self._main: value}
        self._left = MAX_BYTES

    def _key_of_main(self, document: Document) -> str:
        return self._base or (quote(str(self._folder / Path(document.name).name)) if self._folder else "")

    def look_up(self, reference: str) -> Any:
        """Return what a reference in the main document, or an absolute one, points to."""
        place, _, fragment = self._absolute(reference, self._main).partition("#")
        node = self._load(place, reference)
        if fragment and not fragment.startswith("/"):
            raise InvalidReference(f"refers to {reference!r}, which is no path into a document")
        for part in fragment.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and _INDEX.fullmatch(name) and int(name) < len(cast("list[Any]", node)):
                node = cast("list[Any]", node)[int(name)]
            elif isinstance(node, dict) and name in node:
                node = cast("dict[str, Any]", node)[name]
            else:
                raise InvalidReference(f"refers to {reference!r}, which does not exist")
        return node

    def _absolute(self, reference: str, place: str) -> str:
        """Return a reference as it is meant in the file at a place."""
        name, separator, fragment = reference.partition("#")
        if not name:
            return f"{place}{separator}{fragment}"
        if self._base:
            return join_url(place, reference)
        if _HAS_SCHEME.match(name) or name.startswith("//") or not self._folder:
            return reference
        return f"{quote(str(Path(unquote(place)).parent / unquote(name)))}{separator}{fragment}"

    def _load(self, place: str, reference: str) -> Any:
        place = self._check(place, reference)
        if place not in self._files:
            if len(self._files) > MAX_FILES:
                raise InvalidReference(f"refers to {reference!r}, and a document may have {MAX_FILES} files")
            text = self._fetch(place, reference) if self._base else self._read(Path(unquote(place)), reference)
            self._left -= len(text)
            try:
                value = parse_document(text, reference)
            except SourceError as error:
                raise InvalidReference(f"refers to {reference!r}: {error.message}") from error
            self._files[place] = self._with_absolute_references(value, place)
        return self._files[place]

    def _check(self, place: str, reference: str) -> str:
        """Return the place that a reference leads to, links resolved; refuse one outside of folder and server."""
        outside = InvalidReference(f"refers to {reference!r}, which is outside the document's folder or server")
        if place == self._main:
            return place
        if self._base:
            if origin_of(place) != origin_of(self._base):
                raise outside
            return place
        if not self._folder or "://" in reference:
            raise outside
        try:
            resolved = Path(unquote(place)).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise outside from error
        if not resolved.is_relative_to(self._folder):
            raise outside
        return quote(str(resolved))

    def _read(self, path: Path, reference: str) -> bytes:
        try:
            if not path.is_file():
                raise InvalidReference(f"refers to {reference!r}, which does not exist")
            with path.open("rb") as file:
                text = file.read(self._bound() + 1)
        except OSError as error:
            raise InvalidReference(f"refers to {reference!r}, which cannot be read: {error.strerror}") from error
        if len(text) > self._bound():
            raise InvalidReference(f"refers to {reference!r}, which is too large")
        return text

    def _fetch(self, url: str, reference: str) -> bytes:
        try:
            # A redirect could lead elsewhere.
            with self._web.open(url, follow=False, max_bytes=self._bound()) as response:
                response.raise_for_status()
                return response.read()
        except SourceError as error:
            raise InvalidReference(f"refers to {reference!r}: {error.message}") from error

    def _bound(self) -> int:
        return max(min(MAX_RECORD_BYTES, self._left), 0)

    def _with_absolute_references(self, value: Any, place: str) -> Any:
        if isinstance(value, list):
            return [self._with_absolute_references(part, place) for part in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        node = cast("dict[str, Any]", value)
        return {
            name: self._absolute(part, place)
            if name == "$ref" and isinstance(part, str)
            else self._with_absolute_references(part, place)
            for name, part in node.items()
        }


def parse_document(text: bytes, name: str) -> Any:
    """Parse JSON or YAML; raise SourceError for anything else."""
    try:
        return jsonld.decode(text) if text.lstrip()[:1] == b"{" else plain(load_yaml(text.decode("utf-8-sig")))
    except (jsonld.InvalidJson, UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as problem:
        raise SourceError(f"{name} is neither JSON nor YAML: {problem}") from problem
