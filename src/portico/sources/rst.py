"""Reads reStructuredText. Includes no other files and passes no markup on."""

from collections.abc import Iterator
from typing import Any, cast

from docutils import core, nodes
from docutils.utils import SystemMessage

from portico.errors import SourceError
from portico.sources.documents import file_title, page_entries
from portico.sources.records import Document, Entry, SourceOptions
from portico.sources.text import read_text

_core: Any = core
_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "report_level": 1,  # messages stay in the tree: they hold the text of unknown directives
    "halt_level": 6,
    "warning_stream": "",
    "embed_stylesheet": False,
    "syntax_highlight": "none",
    "math_output": "LaTeX",
    "input_encoding": "unicode",
    "output_encoding": "unicode",
}
_FIELDS = {"author": "author", "date": "datePublished", "version": "version", "status": "creativeWorkStatus"}


def read(document: Document, options: SourceOptions) -> Iterator[Entry]:
    text, notes = read_text(document, options.encoding)
    if text or not notes:
        try:
            body, fields = _convert(text)
        except (SystemMessage, RecursionError, ValueError, LookupError, AttributeError, TypeError) as problem:
            raise SourceError(f"{document.name} is not readable reStructuredText: {problem}") from problem
        yield from page_entries(body, document, {**fields, "name": fields.get("name") or file_title(document)})
    yield from notes


def _convert(text: str) -> tuple[str, dict[str, Any]]:
    """Return the HTML of a text, and what it says of itself."""
    tree: nodes.document = _core.publish_doctree(text, settings_overrides=_SETTINGS)
    for message in list(tree.findall(nodes.system_message)):
        _keep_content(message)
    elements = tree.findall(nodes.Element)
    fields = {_FIELDS[node.tagname]: node.astext() for node in elements if node.tagname in _FIELDS}
    title = next(iter(tree.findall(nodes.title)), None)
    for info in list(tree.findall(nodes.docinfo)):
        info.replace_self([])
    page = cast("str", _core.publish_from_doctree(tree, writer="html5", settings_overrides=_SETTINGS))
    body = page.partition("<body")[2].partition(">")[2].rpartition("</body>")[0]
    return body, {**fields, "name": title.astext() if title is not None else ""}


def _keep_content(message: nodes.system_message) -> None:
    """Put the text of a directive that docutils does not know where the message about it stands."""
    literal = next(iter(message.findall(nodes.literal_block)), None)
    lines = literal.astext().splitlines()[1:] if literal is not None else []
    content = "\n".join(line.strip() for line in lines if not line.strip().startswith(":"))
    parts = [nodes.paragraph("", part) for part in content.split("\n\n") if part.strip()]
    if parts:
        message.replace_self(parts)
    elif message.parent is not None:  # replaced by nothing, a message that the text refers to would be an error
        message.parent.remove(message)
