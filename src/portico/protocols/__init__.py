"""The registry of protocols. All that the rest of Portico knows of a protocol is one `Protocol` value.

A built-in protocol is a folder here and a line in `BUILT_IN`; an installed package adds its own through an entry point
of the group `portico.protocols`. The server mounts them all, and discovery, OpenAPI, llms.txt, CORS, the configuration
and the banner of the start read their values.

Light to import: a command that only reads settings loads no code that serves.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from typing import Protocol as StructuralType

import msgspec

from portico import config as configuration
from portico.config import FILE, Config
from portico.errors import SiteError
from portico.plugins import PROTOCOLS, Registry, load_attribute

if TYPE_CHECKING:
    import asyncio
    import socket

    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Scope

    from portico.catalog import Kind
    from portico.operations.webhooks import WebhookClient
    from portico.protocols.edge import EdgePolicy
    from portico.protocols.http import LazyApp
    from portico.requests import Caller
    from portico.site import Site
    from portico.sources.refresh import SourceManager
    from portico.store import Store
    from portico.telemetry import Metrics, Recorder, TrafficHistory

# In this order they are mounted and described.
BUILT_IN: Final[Mapping[str, str]] = {
    "nlweb": "portico.protocols.nlweb:PROTOCOL",
    "chat": "portico.protocols.chat:PROTOCOL",
    "rest": "portico.protocols.rest:PROTOCOL",
    "mcp": "portico.protocols.mcp:PROTOCOL",
    "aql": "portico.protocols.aql:PROTOCOL",
    "a2a": "portico.protocols.a2a:PROTOCOL",
    "discovery": "portico.protocols.discovery:PROTOCOL",
    "nwp": "portico.protocols.nwp:PROTOCOL",
    "openai": "portico.protocols.openai:PROTOCOL",
}

Schema: TypeAlias = dict[str, Any]  # a part of an OpenAPI document
ActionForm: TypeAlias = Literal["HTTP", "MCP", "A2A"]  # in which the actions of items are offered


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section of a protocol without settings."""


# What a protocol is given


class StreamLimit(StructuralType):
    """Counts the open streams of a visitor's address, whatever the protocol."""

    def acquire(self, address: str) -> bool: ...

    def release(self, address: str) -> None: ...

    def refusal(self, what: str) -> "SiteError": ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a protocol may use of a running site. Nothing here belongs to one protocol."""

    site: "Site"
    config: Config
    record: "Recorder"
    metrics: "Metrics"
    traffic: "TrafficHistory"
    sources: "SourceManager"
    callbacks: "WebhookClient"  # sends to addresses that callers name
    streams: StreamLimit
    counts: Callable[[], Mapping[str, int]]  # how many items each collection has
    readiness: "Callable[[], Awaitable[Readiness]]"
    authority: Callable[[], Any]  # the site's certificate authority; the first call takes a while
    protocols: "tuple[Protocol, ...]"  # all that are mounted, for those that describe the site

    def path_of(self, name: str) -> str:
        """Return the first path of a protocol; empty if it is not mounted."""
        paths = (protocol.paths(self.config) for protocol in self.protocols if protocol.name == name)
        return next(iter(next(paths, ())), "")

    def sign(self, body: bytes) -> str:
        """Sign with the key of the site."""
        return self.authority().sign(body)


class Readiness(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether a site answers questions."""

    ready: bool
    current: bool
    behind: int | None = None
    collections: dict[str, Any] | None = None
    reason: str | None = None


# What a protocol gives


class NativeListener(StructuralType):
    """Takes the connections of a protocol's own port until it is closed."""

    def open(self, listener: "socket.socket") -> None: ...

    async def close(self) -> None: ...


RenderError: TypeAlias = "Callable[[Scope, Any], ASGIApp]"
Listen: TypeAlias = "Callable[[Callable[[], asyncio.Protocol]], NativeListener]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """What serves a protocol."""

    routes: "Sequence[BaseRoute]" = ()
    lazy_apps: "Sequence[LazyApp]" = ()  # applications that the server makes in the background once it runs
    # Makes the response for an error at a path of the protocol: a SiteError, an HTTPException of the routing, or any
    # other exception, which is a defect and has been recorded.
    render_error: "RenderError | None" = None
    policy: "EdgePolicy | None" = None  # how its requests are admitted, if not as usual
    policies: "Mapping[str, EdgePolicy]" = field(default_factory=dict[str, Any])  # of single paths for reading
    claims: "Callable[[Scope], bool] | None" = None  # takes requests by their headers, whatever their path
    listen: "Listen | None" = None  # serves its own port; is given what serves HTTP that arrives there
    begin: Callable[[], None] | None = None  # starts what goes on between requests
    close: Callable[[], Awaitable[None]] | None = None  # and ends it


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as MCP lists it."""

    name: str
    description: str
    input_schema: Schema
    kinds: "frozenset[Kind]"  # of the operations that it can run


@dataclass(frozen=True, slots=True)
class ToolOutput:
    json: bytes  # an object
    is_error: bool


class ToolSet(StructuralType):
    """Tools of a protocol that MCP serves beside its own."""

    @property
    def names(self) -> Collection[str]: ...

    @property
    def instructions(self) -> str:
        """Instructions for models where MCP offers only these tools; empty where it offers others too."""
        ...

    def list_tools(self, caller: "Caller") -> "Sequence[ToolDescription]": ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        caller: "Caller",
        session: str,
        report: Callable[[float, str], Awaitable[None]],
    ) -> ToolOutput:
        """Run a tool. `session` labels the client's session, if it has one; `report` tells progress in percent."""
        ...

    def answer_malformed(self, body: bytes) -> "Response | None":
        """Return the response to a call of one of these tools that is not JSON; None if it is no such call."""
        ...


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a protocol's own, beside that of HTTP."""

    scheme: str  # of its addresses
    option: str  # of `portico serve`, that chooses it
    title: str  # in the banner of the start
    number: Callable[[Config], int]  # 0: any that is free
    with_number: Callable[[Config, int], Config]
    check: Callable[[Config], object]  # raises ConfigError if the port cannot be served as configured


@dataclass(frozen=True, slots=True)
class Tag:
    """A group of paths in the OpenAPI document and on its page."""

    name: str
    description: str
    rank: int = 2  # groups of a low rank come first


@dataclass(frozen=True, slots=True)
class Example:
    """A place for people to try, in the banner of the start."""

    title: str
    path: str
    command: str  # a command line; {base} stands for the address of the server
    rank: int = 5  # examples of a low rank come first


@dataclass(frozen=True, slots=True)
class FooterLink:
    """A link in the footer of every page."""

    path: str
    word: str  # of the words of pages; with " for" after it, that of the tooltip
    name: str = ""  # if it is not translated
    rank: int = 2  # links of a low rank come first


@dataclass(frozen=True, slots=True)
class ActionCall:
    """A call that an action of an item offers."""

    base_url: str
    operation: str
    params: Any
    tool: str  # of MCP, that runs operations by name; empty if each is a tool of its own


@dataclass(frozen=True, slots=True)
class ActionBinding:
    """How the actions of items are offered over a protocol."""

    form: ActionForm
    describe: Callable[[ActionCall], Schema]  # to the members that say where and with what it is called


@dataclass(frozen=True, slots=True)
class LlmsLink:
    """A line of llms.txt."""

    section: str
    text: str  # Markdown; {base} stands for the address of the site
    rank: int = 2  # lines of a low rank come first


@dataclass(frozen=True, slots=True)
class WellKnownDocument:
    """A document at an address that clients know beforehand. Public, and the same for every reader."""

    path: str
    media_type: str
    summary: str
    make: Callable[[str], Any]  # from the base URL of the site
    seconds: int = 60  # that a reader may keep it


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface as the API catalog and the AI catalog list it."""

    path: str
    described_at: str  # the path of its description
    media_type: str = "application/json"
    card: str = ""  # the media type of the description as a card of an agent or a server; empty if it is none


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApi:
    """A protocol's part of the OpenAPI document."""

    tags: Sequence[Tag] = ()
    paths: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    components: Mapping[str, Mapping[str, Schema]] = field(default_factory=dict[str, Mapping[str, Schema]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a site tells of a protocol."""

    openapi: Callable[[str], OpenApi] | None = None  # given a question that the site can answer, for examples
    documents: Sequence[WellKnownDocument] = ()
    interfaces: Sequence[Interface] = ()
    links: Sequence[LlmsLink] = ()
    uncrawled: Sequence[str] = ()  # paths that robots.txt closes to crawlers


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `portico check`."""

    subject: str
    is_ok: bool
    message: str


def attempt(subject: str, success: str, use: Callable[[], object]) -> Finding:
    """Return whether a setting can be used: the error that using it raises, or the message of success."""
    try:
        use()
    except SiteError as error:
        return Finding(subject, False, str(error))
    return Finding(subject, True, success)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """All that the rest of Portico knows of a protocol. Functions may be given as "package.module:function"."""

    name: str  # its section of the settings, and its label in logs and metrics
    title: str
    mount: Callable[[Services], Mounted] | str
    describe: Callable[[Services], Description] | str = ""
    settings: type[msgspec.Struct] = NoSettings
    # Where its requests go: "/chat" that path, "/chat/" all below it. Errors there are rendered in its form.
    paths: Callable[[Config], tuple[str, ...]] = lambda _: ()
    documents: tuple[str, ...] = ()  # further paths, in the same form, at which it only shows something
    resource: str = ""  # the path that an access token may be for
    check: Callable[[Config, frozenset[str]], None] = lambda _, __: None  # with the first segments of all others' paths
    checks: "Callable[[Config, Store], Iterator[Finding]] | str" = ""  # of what its settings name, for `portico check`
    environment: Callable[[Mapping[str, str]], Mapping[str, Any]] | None = None  # settings that variables give
    action_tool: Callable[[Config], str | None] | None = None  # see the function of that name
    action_forms: Callable[[Config], tuple[ActionForm, ...]] | None = None  # in which the site offers actions of items
    action_binding: ActionBinding | None = None
    tools: "Callable[[Site, Config, Recorder], ToolSet] | str" = ""  # that MCP serves
    exposed_headers: tuple[str, ...] = ()  # of its responses, that pages elsewhere may read
    accepted_headers: tuple[str, ...] = ()  # of its requests, that pages elsewhere may send
    examples: Callable[[Config], tuple[Example, ...]] | None = None
    footer: tuple[FooterLink, ...] = ()
    port: Port | None = None
    carrier: str = ""  # "package.module:Class" of the client's carrier, over which `portico ask` asks
    capabilities: Callable[[Config], tuple[str, ...]] | None = None  # that certificates may grant on its nodes
    check_node: "Callable[[Site, Config, str], Awaitable[object]] | str" = ""  # raises UnknownNode without that node

    def mounted(self, services: Services) -> Mounted:
        return _resolve(self.mount)(services)

    def description(self, services: Services) -> Description:
        return _resolve(self.describe)(services) if self.describe else Description()

    def site_checks(self, config: Config, store: "Store") -> "Iterator[Finding]":
        return _resolve(self.checks)(config, store) if self.checks else iter(())

    def segments(self, config: Config) -> Iterator[str]:
        """Yield the first segments of its paths."""
        for path in (*self.paths(config), *self.documents):
            yield path.split("/")[1]


def _resolve(function: Any) -> Any:
    return load_attribute(function) if isinstance(function, str) else function


@cache
def protocols() -> tuple[Protocol, ...]:
    """Return every protocol, built-in and installed."""
    registry: Registry[Protocol] = Registry(PROTOCOLS, BUILT_IN, Protocol)
    return tuple(registry.get(name) for name in registry)


def resources() -> tuple[str, ...]:
    """Return the paths that an access token may be for; the empty one is the whole site."""
    return ("", *(protocol.resource for protocol in protocols() if protocol.resource))


def request_segments(config: Config) -> frozenset[str]:
    """Return the first segments of the paths at which callers tell the site to do something."""
    return frozenset(path.split("/")[1] for protocol in protocols() for path in protocol.paths(config))


def action_tool(config: Config) -> str | None:
    """Return the MCP tool that runs an item's actions: empty if operations are tools themselves, None without one."""
    tools = (protocol.action_tool(config) for protocol in protocols() if protocol.action_tool)
    return next((tool for tool in tools if tool is not None), None)


def action_forms(config: Config) -> tuple[ActionForm, ...]:
    """Return the forms in which the actions of items are offered."""
    settings = (protocol.action_forms(config) for protocol in protocols() if protocol.action_forms)
    return next(settings, ("HTTP",))


def action_bindings() -> Mapping[ActionForm, ActionBinding]:
    """Return how the actions of items are offered, by form."""
    bindings = (protocol.action_binding for protocol in protocols())
    return {binding.form: binding for binding in bindings if binding}


def footer_links() -> tuple[FooterLink, ...]:
    """Return the links in the footer of every page, in their order."""
    links = (link for protocol in protocols() for link in protocol.footer)
    return tuple(sorted(links, key=lambda link: link.rank))


def carriers() -> Mapping[str, str]:
    """Return the carriers of the client, by the name of their protocol."""
    return {protocol.name: protocol.carrier for protocol in protocols() if protocol.carrier}


def capabilities(config: Config) -> tuple[str, ...]:
    """Return the capabilities that certificates may grant."""
    names = (protocol.capabilities(config) for protocol in protocols() if protocol.capabilities)
    return tuple(name for several in names for name in several)


async def check_node(site: "Site", config: Config, name: str) -> None:
    """Raise if there is no node of this name."""
    for protocol in protocols():
        if protocol.check_node:
            await _resolve(protocol.check_node)(site, config, name)


def tool_sets(site: "Site", config: Config, record: "Recorder") -> "tuple[ToolSet, ...]":
    """Return the tools that protocols add to those of MCP."""
    return tuple(_resolve(protocol.tools)(site, config, record) for protocol in protocols() if protocol.tools)


# Settings with the sections of all protocols


def read_config(path: Path) -> Config:
    """Read a site file."""
    return configuration.read_config(path, protocols())


def parse_config(raw: Mapping[str, Any], where: str = FILE) -> Config:
    """Read settings that were parsed from TOML."""
    return configuration.parse_config(raw, where, protocols())


def settings() -> dict[str, Any]:
    """Return every setting with its default, by dotted name; documentation is checked against it."""
    return configuration.settings(protocols())
