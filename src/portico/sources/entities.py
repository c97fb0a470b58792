"""Finds out what a page is about from its linked data: merges nodes of one thing, sets its surroundings aside.

Reads no text and follows no links. What stands around the subject of a page, such as its site, its breadcrumbs and
its publisher, is no item of its own: the item holds what it refers to of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

MAX_NODES = 5_000  # of one page, nested ones included
MAX_REFERENCES = 500  # that are replaced by what they refer to, in one page

Node = dict[str, Any]

_PREFIXES = ("http://schema.org/", "https://schema.org/", "http://www.schema.org/", "schema:")
# fmt: off
_PAGES = frozenset((
    "WebPage", "AboutPage", "CheckoutPage", "CollectionPage", "ContactPage", "ItemPage", "MedicalWebPage",
    "ProfilePage", "QAPage", "SearchResultsPage", "MediaGallery", "ImageGallery", "VideoGallery",
))
_SURROUNDINGS = frozenset((
    "WebSite", "BreadcrumbList", "ItemList", "OfferCatalog", "ImageObject", "SiteNavigationElement", "WebPageElement",
    "WPHeader", "WPFooter", "WPSideBar", "WPAdBlock", "ListItem", "Offer", "AggregateOffer", "AggregateRating",
    "Rating", "PostalAddress", "ContactPoint", "GeoCoordinates", "EntryPoint", "PropertyValue",
    "SpeakableSpecification",
    "OpeningHoursSpecification", "MonetaryAmount", "QuantitativeValue", "NutritionInformation", "HowToStep",
    "HowToSection", "Answer", "Comment", "OfferShippingDetails", "MerchantReturnPolicy", "Brand", "Country",
    "Audience", "UnitPriceSpecification", "Language", "InteractionCounter", "DefinedTerm",
))
_PUBLISHERS = frozenset((
    "Organization", "Corporation", "NewsMediaOrganization", "OnlineBusiness", "OnlineStore", "Person", "Place",
))
_PARTS = frozenset(("VideoObject", "AudioObject", "MediaObject", "Review", "Question", "LocalBusiness"))
_BUSINESS_FIELDS = ("openingHours", "openingHoursSpecification", "priceRange", "servesCuisine")
_ARTICLES = frozenset((
    "", "Thing", "Article", "BlogPosting", "NewsArticle", "TechArticle", "ScholarlyArticle", "Report", "CreativeWork",
    "SocialMediaPosting", "DiscussionForumPosting", "LiveBlogPosting", "Blog", "AnalysisNewsArticle",
    "ReviewNewsArticle", "OpinionNewsArticle", "AdvertiserContentArticle", "APIReference", "WebContent",
))
_WRITTEN = (_ARTICLES - {"", "Thing"}) | {"Recipe", "HowTo", "FAQPage", "WebPage"}
# fmt: on
_OF_THE_PAGE = ("description", "image")
_OF_THE_TEXT = ("author", "datePublished", "dateModified", "keywords")
_NO_TYPE = frozenset(("",))
_VARIANTS = frozenset(("isVariantOf", "inProductGroupWithID"))
_THIN = frozenset(("@type", "@id", "@context", "url", "position"))
# Things of one type and name are two if they differ in one of these.
_DISTINCTIVE = (
    "url", "sku", "gtin", "gtin8", "gtin12", "gtin13", "gtin14", "mpn", "isbn", "productID", "identifier", "startDate",
    "endDate", "datePublished", "color", "size", "location", "address",
)  # fmt: skip


class Rank(IntEnum):
    """How likely a node is what its page is about, beside others."""

    SURROUNDINGS = 0
    PUBLISHER = 1
    PART = 2
    QUESTIONS = 3
    ARTICLE = 4
    THING = 5


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page is about: one thing, several of equal rank, or nothing but itself."""

    entities: list[Node] = field(default_factory=list[Node])
    page: Node = field(default_factory=dict[str, Any])  # what its data says of the page itself


def find_subject(linked: Sequence[Node], embedded: Sequence[Node], address: str) -> Subject:
    """Return the subject of a page from its JSON-LD and its microdata, which completes what JSON-LD says."""
    graph, other = _Graph(linked, address), _Graph(embedded, address)
    chosen, added = graph.choose(), other.choose()
    if chosen:
        chosen = _completed(chosen, added)
    else:
        graph, chosen = _Graph([*linked, *embedded], address), added
    page = graph.resolve(graph.page())
    entities = [graph.resolve(node) for node in _unique(chosen)]
    if len(entities) == 1:
        entities = [complete(entities[0], [*graph.articles(chosen), page])]
    return Subject(entities, page)


def complete(node: Node, sources: Iterable[Node]) -> Node:
    """Return a node with what others say of its page where it says nothing itself."""
    names = (*_OF_THE_PAGE, *_OF_THE_TEXT) if types_of(node) & _WRITTEN else _OF_THE_PAGE
    result = dict(node)
    for source in sources:
        for name in names:
            if result.get(name) in (None, "", [], {}) and source.get(name) not in (None, "", [], {}):
                result[name] = source[name]
    return result


def types_of(node: Node) -> frozenset[str]:
    """Return the types of a node without the address of schema.org; an empty text for none."""
    return frozenset(map(_short, _texts(node.get("@type")))) or _NO_TYPE


def is_article(node: Node) -> bool:
    return bool(types_of(node) & (_ARTICLES - {"", "Thing"}))


def rank_of(node: Node) -> Rank:
    types = types_of(node)
    return max(_rank_of_type(name, node) for name in types)


def _rank_of_type(name: str, node: Node) -> Rank:
    if name in _PAGES | _SURROUNDINGS or name.endswith("Action"):
        return Rank.SURROUNDINGS
    if name in _PUBLISHERS:
        return Rank.PUBLISHER
    if name == "FAQPage":
        return Rank.QUESTIONS
    if name in _PARTS or ("address" in node and any(member in node for member in _BUSINESS_FIELDS)):
        return Rank.PART
    return Rank.ARTICLE if name in _ARTICLES else Rank.THING


class _Graph:
    """The nodes of one page by their ids, which are compared as absolute URLs."""

    def __init__(self, nodes: Sequence[Node], address: str) -> None:
        self._address = address
        self._by_id: dict[str, Node] = {}
        self._left = MAX_REFERENCES
        self._nodes = self._merge(nodes)
        self._index_nested()

    def choose(self) -> list[Node]:
        """Return the nodes that the page is about: those that it names so, else those of the highest rank."""
        if named := [node for node in self._named() if rank_of(node) > Rank.SURROUNDINGS]:
            return self._top(named) if any(rank_of(node) > Rank.PUBLISHER for node in named) else named
        candidates = [node for node in self._candidates() if self._may_be_main(node)]
        top = self._top(candidates)
        own = [node for node in top if self._is_own(node)]
        if not own and len(top) > 1:
            own = self._top([node for node in candidates if self._names_page(node)])
        return own or top

    def page(self) -> Node:
        """Return what the nodes of the page itself say."""
        result: Node = {}
        for node in self._nodes:
            if types_of(node) & _PAGES and (self._is_own(node) or "@id" not in node):
                _add_missing(result, node)
        image = result.get("primaryImageOfPage")
        return {"image": image, **result} if image else result

    def articles(self, chosen: Sequence[Node]) -> list[Node]:
        """Return the articles beside what was chosen, which know its author and its dates."""
        keys = {id(node) for node in chosen}
        others = (node for node in self._nodes if id(node) not in keys)
        return [self.resolve(node) for node in others if rank_of(node) is Rank.ARTICLE and is_article(node)]

    def resolve(self, node: Node) -> Node:
        """Return a node whose references hold what they refer to, one level deep."""
        result = {name: self._resolved(name, value) for name, value in node.items()}
        types = [_short(name) for name in _texts(result.get("@type"))]
        if types:
            result["@type"] = types if isinstance(result["@type"], list) else types[0]
        return result

    def _resolved(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._resolved(name, one) for one in cast("list[Any]", value)]
        if not isinstance(value, dict) or name in ("mainEntityOfPage", "isPartOf"):
            return cast("Any", value)
        reference = cast("Node", value)
        target = self._by_id.get(self._key(reference)) if set(reference) <= {"@id", "@type"} else None
        if target is None or rank_of(target) >= Rank.ARTICLE or types_of(target) & _PAGES or self._left <= 0:
            return reference
        self._left -= 1
        return {name: one for name, one in target.items() if not _is_reference(one)}

    def _merge(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes in order, each id once."""
        merged: list[Node] = []
        for node in nodes:
            key = self._key(node)
            known = self._by_id.get(key)
            if known is not None:
                _add_missing(known, node)
            else:
                copy = dict(node)
                merged.append(copy)
                if key:
                    self._by_id[key] = copy
        return merged

    def _index_nested(self) -> None:
        stack: list[Any] = [value for node in reversed(self._nodes) for value in node.values()]
        visits = 0
        while stack and visits < MAX_NODES * 10:
            visits += 1
            value = stack.pop()
            if isinstance(value, dict):
                node = cast("Node", value)
                key = self._key(node)
                if key and not _is_reference(node):
                    self._by_id.setdefault(key, node)
                stack += node.values()
            elif isinstance(value, list):
                stack += cast("list[Any]", value)

    def _named(self) -> Iterator[Node]:
        """Yield what the nodes of the page name as its main entities."""
        for node in self._nodes:
            if types_of(node) & _PAGES and "FAQPage" not in types_of(node):
                yield from self._expand(self._nodes_in(node.get("mainEntity")))

    def _candidates(self) -> list[Node]:
        nodes = [node for node in self._expand(self._nodes) if "@id" in node or any(name[:1] != "@" for name in node)]
        if any("ProductGroup" in types_of(node) for node in nodes):
            return [node for node in nodes if not _VARIANTS & node.keys()]
        return nodes

    def _expand(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Yield nodes; in place of a list, the things that it describes."""
        for node in nodes:
            if types_of(node) & {"ItemList", "OfferCatalog"}:
                yield from self._elements(node)
            else:
                yield node

    def _elements(self, node: Node) -> Iterator[Node]:
        for element in self._nodes_in(node.get("itemListElement")):
            inner = self._nodes_in(element.get("item") or element.get("itemOffered"))
            for one in inner or [element]:
                if rank_of(one) > Rank.SURROUNDINGS and types_of(one) != _NO_TYPE and set(one) - _THIN:
                    yield one

    def _nodes_in(self, value: Any) -> list[Node]:
        """Return the nodes of a member, with references replaced."""
        nodes = [cast("Node", one) for one in _listed(value) if isinstance(one, dict)]
        known = [self._by_id.get(self._key(node)) if _is_reference(node) else node for node in nodes]
        return [node for node in known if node is not None]

    def _top(self, nodes: Sequence[Node]) -> list[Node]:
        best = max(map(rank_of, nodes), default=Rank.SURROUNDINGS)
        return [node for node in nodes if rank_of(node) is best] if best > Rank.SURROUNDINGS else []

    def _may_be_main(self, node: Node) -> bool:
        match rank_of(node):
            case Rank.SURROUNDINGS:
                return False
            case Rank.PUBLISHER:
                # A shop names itself on each of its pages. A person alone is what a page without a site is about.
                has_page = any(types_of(node) & (_PAGES | {"WebSite"}) for node in self._nodes)
                return "Person" in types_of(node) and not has_page
            case Rank.PART:
                return not self._is_elsewhere(node)
            case _:
                return True

    def _is_own(self, node: Node) -> bool:
        """Whether a node has the address of this page, or names it as its page."""
        return self._names_page(node) or any(
            self._is_this_page(node.get(name)) for name in ("@id", "url") if isinstance(node.get(name), str)
        )

    def _names_page(self, node: Node) -> bool:
        value = node.get("mainEntityOfPage")
        if value is True:
            return True
        nodes = [cast("Node", one) for one in _listed(value) if isinstance(one, dict)]
        addresses = [*_texts(value), *(node.get("@id") or node.get("url") for node in nodes)]
        if not self._address:
            return bool(value)
        return any(self._is_this_page(one) for one in addresses if isinstance(one, str))

    def _is_elsewhere(self, node: Node) -> bool:
        """Whether a node has an address, and it is that of another page."""
        if not self._address.startswith(("http://", "https://")):
            return False
        addresses = [one for name in ("@id", "url") if isinstance(one := node.get(name), str) and one]
        return bool(addresses) and not any(map(self._is_this_page, addresses))

    def _is_this_page(self, reference: Any) -> bool:
        return _page_of(_absolute(self._address, str(reference))) == _page_of(self._address)

    def _key(self, node: Node) -> str:
        value = node.get("@id")
        return _absolute(self._address, value) if isinstance(value, str) and value else ""


def _completed(nodes: Sequence[Node], others: Sequence[Node]) -> list[Node]:
    """Return nodes with what others of the same names say of the same things."""
    by_name = {_name(other): other for other in reversed(others)}
    result = [dict(node) for node in nodes]
    for node in result:
        other = by_name.get(_name(node))
        if other is not None and _is_same(node, other):
            _add_missing(node, other)
    return result


def _unique(nodes: Sequence[Node]) -> list[Node]:
    result: list[Node] = []
    for node in nodes:
        known = next(
            (one for one in result[-50:] if one is node or (_is_same(one, node) and not _has_ids(one, node))), None
        )
        if known is None:
            result.append(node)
        elif known is not node:
            _add_missing(known, node)
    return result


def _has_ids(first: Node, second: Node) -> bool:
    return "@id" in first and "@id" in second and first["@id"] != second["@id"]


def _is_same(first: Node, second: Node) -> bool:
    """Whether two nodes describe one thing: of one type and name, and nothing says otherwise."""
    name = _name(first)
    if not name or name != _name(second) or not types_of(first) & types_of(second):
        return False
    return all(first[key] == second[key] for key in _DISTINCTIVE if key in first and key in second)


def _name(node: Node) -> str:
    value = node.get("name") or node.get("headline")
    return " ".join(value.split()).casefold() if isinstance(value, str) else ""


def _add_missing(target: Node, other: Node) -> None:
    for name, value in other.items():
        if name == "@type" and "@type" in target:
            types = list(dict.fromkeys([*_texts(target["@type"]), *_texts(value)]))
            target["@type"] = types[0] if len(types) == 1 else types
        elif target.get(name) in (None, "", [], {}):
            target[name] = value


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and set(cast("Node", value)) <= {"@id", "@type"} and "@id" in value


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _texts(value: Any) -> list[str]:
    return [one for one in _listed(value) if isinstance(one, str)]


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _absolute(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference) if urlsplit(base).netloc else reference
    except ValueError:
        return reference


def _page_of(address: str) -> str:
    """Return an address without its fragment, its scheme and the slash at its end."""
    page = address.partition("#")[0].partition("://")
    return (page[2] or page[0]).rstrip("/").removeprefix("www.")
