"""The little XML that feeds and sitemaps need, on expat. Refuses entities, so nothing expands."""

from collections.abc import Callable
from xml.parsers import expat

from portico.errors import SourceError

_ENTITY_MARKS = tuple("<!ENTITY".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))


class _Enough(Exception):
    """The root element has been seen."""


def root_name(text: bytes) -> str | None:
    """The local name of the root element, or None when this is not XML. Entities are a SourceError."""
    names: list[str] = []

    def started(name: str, _: dict[str, str]) -> None:
        names.append(local(name))
        raise _Enough

    parser = safe_parser("The document")
    parser.StartElementHandler = started
    try:
        parser.Parse(text, True)
    except _Enough:
        return names[0]
    except expat.ExpatError:
        return None
    return None


def refuse_entities(text: bytes, name: str) -> None:
    """For documents that another parser will read: entities stand before the root element or nowhere."""
    if root_name(text) is None and any(mark in text for mark in _ENTITY_MARKS):
        raise _refusal(name)


def safe_parser(name: str) -> expat.XMLParserType:
    def refuse(*_: object) -> None:
        raise _refusal(name)

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = _refuse_external(refuse)
    return parser


def local(name: str) -> str:
    """The name without its namespace prefix."""
    return name.rpartition(":")[2]


def _refuse_external(refuse: Callable[..., None]) -> Callable[..., int]:
    def handler(*_: object) -> int:
        refuse()
        return 0

    return handler


def _refusal(name: str) -> SourceError:
    return SourceError(f"{name} declares XML entities, which are not read.", hint="Remove the <!ENTITY> declarations.")
