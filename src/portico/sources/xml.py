"""Parses the XML of feeds and sitemaps with expat. Refuses entities, so that nothing expands."""

from xml.parsers import expat

from portico.errors import SourceError

_ENTITY_MARKS = tuple("<!ENTITY".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))


class _Enough(Exception):
    """Stops the parser after the root element."""


def root_name(text: bytes) -> str | None:
    """Return the local name of the root element, or None if this is not XML. Raise SourceError for entities."""
    names: list[str] = []

    def handle_start(name: str, _: dict[str, str]) -> None:
        names.append(local(name))
        raise _Enough

    parser = safe_parser("The document")
    parser.StartElementHandler = handle_start
    try:
        parser.Parse(text, True)
    except _Enough:
        return names[0]
    except expat.ExpatError:
        return None
    return None


def refuse_entities(text: bytes, name: str) -> None:
    """Check a document for another parser. Entities can only stand before the root element."""
    if root_name(text) is None and any(mark in text for mark in _ENTITY_MARKS):
        raise _refusal(name)


def safe_parser(name: str) -> expat.XMLParserType:
    def refuse(*_: object) -> int:
        raise _refusal(name)

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    return parser


def local(name: str) -> str:
    """Return the name without its namespace prefix."""
    return name.rpartition(":")[2]


def _refusal(name: str) -> SourceError:
    return SourceError(f"{name} declares XML entities, which are not read.", hint="Remove the <!ENTITY> declarations.")
