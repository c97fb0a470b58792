"""One TOML file to one frozen Config. The only reader of settings, and of the environment for settings.

Knows no protocol: each declares its section beside its code, and whoever reads a file says which sections there are.
"""

import os
import re
import ssl
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from portico.access.identity import ASK, check_scope
from portico.access.limits import Limits
from portico.catalog import Collection, Danger, Field, FieldType, Role, check_collection_name, nearest_hint
from portico.errors import ConfigError
from portico.network import parse_network
from portico.redaction import redact_url
from portico.telemetry import LogLevel

S = TypeVar("S", bound=msgspec.Struct)

FILE = "portico.toml"
SITE_VARIABLE = "PORTICO_SITE"
ANY_IMAGE_HOST = "https:"  # pictures may come from every host
NO_MODEL = "none:"  # the language model of a site without one

DangerName = Literal["safe", "reversible", "destructive", "dangerous", "forbidden"]
KindName = Literal["create", "read", "update", "delete", "execute"]
TypeName = Literal[
    "string", "integer", "number", "boolean", "timestamp", "duration", "vector", "object", "array", "any"
]


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[site]"""

    name: str = "Portico"
    description: str = ""
    language: str = "en"
    images: str = ""  # a folder, served at /images


class Web(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[web]: the pages for people."""

    images: str | tuple[str, ...] = ""  # hosts whose pictures pages load, beside this site; "https:" for all

    @property
    def image_hosts(self) -> tuple[str, ...]:
        """The hosts in small letters, as URLs have them; or `https:` alone."""
        names = (self.images,) if isinstance(self.images, str) else self.images
        hosts = tuple(dict.fromkeys(name.lower() for name in names if name))
        return (ANY_IMAGE_HOST,) if ANY_IMAGE_HOST in hosts else hosts


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[server]"""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    nwp_port: Annotated[int, Meta(ge=0, le=65535)] = 17433  # of the native protocol
    workers: Annotated[int, Meta(ge=1)] = 1  # processes that serve
    url: str = ""  # the address the world knows the site by, as in https://shop.example
    hosts: tuple[str, ...] = ()  # further names the site is reached by; those of `url` and of this machine are known
    log_level: LogLevel = "info"  # debug: failures are logged with their traceback
    origins: tuple[str, ...] = ()  # pages elsewhere that may ask from a browser; "*" and ports as in http://localhost:*
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded-* and Forwarded are believed


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[search]"""

    embedder: str = "local:"


class AskSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[ask]: how questions are answered."""

    items: Annotated[int, Meta(ge=1, le=100)] = 10  # of an answer, when the caller does not say
    most: Annotated[int, Meta(ge=1, le=1000)] = 50  # of an answer, whatever the caller says
    clarify: bool = True  # whether to ask back when a question is too vague
    patience: Annotated[float, Meta(gt=0, le=300)] = 20.0  # seconds until an answer becomes a promise
    near: Annotated[float, Meta(gt=0)] = 500.0  # metres that count as near
    model: str = NO_MODEL  # a language model, by URL
    prompt: Annotated[int, Meta(ge=500)] = 6000  # tokens of a prompt, at most
    candidates: Annotated[int, Meta(ge=1, le=100)] = 30  # items that a model ranks

    @property
    def has_model(self) -> bool:
        return self.model != NO_MODEL


SafetyMode = Literal["enforcing", "monitoring", "logging", "disabled"]
Tolerance = Literal["conservative", "moderate", "aggressive"]
DENIED = (
    "rm -rf*",
    "rm -fr*",
    "rm -r -f*",
    "rm --recursive --force*",
    "drop_*",
    "delete_all*",
    "truncate_*",
    "mkfs*",
    "dd if=*",
)
APPROVED = ("delete_*", "*force*", "deploy_*", "git push*", "purge_*", "publish_*", "transfer_*", "pay_*")
HARMLESS = ("read_*", "list_*", "get_*", "search_*", "count_*")


class PolicySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[[safety.policy]]: what is decided of calls of some operations. The strictest of all that fit holds."""

    operation: str  # a name, or a pattern such as delete_*
    decision: Literal["allow", "confirm", "deny"]
    when: dict[str, Any] = {}  # a filter on the parameters, as in {"people": {"$gt": 8}}
    reason: str = ""


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[safety.agent.NAME]: what holds for agents of this name instead."""

    steps: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    tolerance: Tolerance | None = None
    deny: tuple[str, ...] | None = None
    approve: tuple[str, ...] | None = None
    auto: tuple[str, ...] | None = None


class Safety(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[safety]"""

    mode: SafetyMode = "enforcing"  # of the loop that agents report their steps to
    start: Literal["confirm", "allow"] = "confirm"  # whether somebody else has to agree that an agent starts
    steps: Annotated[int, Meta(ge=1, le=10_000)] = 50  # that an agent may take before somebody looks
    window: Annotated[float, Meta(ge=60, le=86_400)] = 3600.0  # seconds over which they are counted
    tolerance: Tolerance = "moderate"
    tolerance_relaxes_confirm: bool = False  # let steps of the confirm tier pass that are below the tolerance
    deny: tuple[str, ...] = DENIED  # hints that block an agent
    approve: tuple[str, ...] = APPROVED  # hints that a person has to look at
    auto: tuple[str, ...] = HARMLESS  # names of actions that need no look
    policy: list[PolicySettings] = []
    agent: dict[str, AgentSettings] = {}
    confirm_seconds: Annotated[float, Meta(ge=10, le=900)] = 300.0  # that a confirmation can be given and used
    code_seconds: Annotated[float, Meta(ge=10, le=3600)] = 300.0  # that a code is good for
    idle: Annotated[float, Meta(ge=60)] = 1800.0  # seconds after which a silent execution is over
    relay: bool = False  # let the agent pass on a code that a person has typed in the chat
    acknowledge: bool = False  # outside of executions, let callers confirm their own calls; the trail says so
    desk: Literal["local", "anywhere"] = "local"  # from where the operator's desk can be reached
    channels: tuple[Literal["dialog", "command", "webhook"], ...] = ()  # that codes are sent to, besides the desk
    command: tuple[str, ...] = ()  # run for each code, which it reads from its input
    webhook: str = ""  # told of each code


class Oauth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[oauth]: access tokens of an authorization server. Without an issuer there are none."""

    issuer: str = ""  # as in https://login.example
    keys: str = ""  # where its public keys (JWKS) are: a URL or a file; by default the issuer's metadata says
    audience: tuple[str, ...] = ()  # whom tokens must be for; by default the addresses of this site
    scopes: tuple[str, ...] = (ASK, "read:*")  # that every holder of a token has, besides those that it names
    danger: DangerName = "safe"  # the most its holder may risk


class AgentTrust(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a protocol whose callers show certificates: whose are trusted, and how far."""

    issuers: tuple[str, ...] = ()  # addresses of authorities whose certificates are trusted besides the site's own
    scopes: tuple[str, ...] = (ASK, "read:*")  # that every holder of a certificate of such an authority has
    danger: DangerName = "safe"  # the most such a holder may risk
    trust_names: bool = False  # believe an agent's name if an authority knows it; for closed networks


class Anonymous(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[anonymous]: what callers without credentials may do."""

    scopes: tuple[str, ...] = (ASK, "read:*")
    danger: DangerName = "safe"


class FieldSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[collections.NAME.fields.FIELD]"""

    type: TypeName
    path: str = ""
    description: str = ""
    format: str = ""
    unit: str = ""


class CollectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[collections.NAME]"""

    title: str = ""
    description: str = ""
    type: str = ""
    singular: str = ""
    language: str = ""
    weights: dict[str, float] = {}
    private: bool = False
    details: tuple[str, ...] = ()  # fields to ask for when a question about these items says little
    roles: dict[Role, str] = {}  # role -> field; the others are found by the names and the values of fields
    unknown: Literal["refuse", "keep"] = "refuse"  # fields in writes of callers that the collection does not have
    fields: dict[str, FieldSettings] = {}


class SourceAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[source.auth]: how the operations of an OpenAPI document are called. Secrets are named by their variables."""

    type: Literal["header", "bearer", "basic", "query", "oauth"]
    name: str = ""  # of the header or the query parameter
    env: str = ""  # the variable with the key or the token
    user_env: str = ""
    password_env: str = ""
    token_url: str = ""  # of OAuth client credentials, with the next three
    client_id_env: str = ""
    client_secret_env: str = ""
    scope: str = ""

    @property
    def parameter(self) -> tuple[str, str]:
        """The place and the name of what the credentials fill in a request."""
        return (self.type, self.name) if self.type in {"header", "query"} else ("header", "authorization")


class SourceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[[source]]"""

    url: str
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{0,100}$")] = ""  # in addresses and metrics; else its collection
    collection: str = ""
    format: str | None = None
    encoding: str = ""  # of text files; detected if it is empty
    id_field: str | None = None
    table: str | None = None  # of a database, whose tables are private until they are named
    tables: tuple[str, ...] = ()  # several tables, each a collection of its own
    all_tables: bool = False
    type: str | None = None
    base_url: str = ""  # where the files of a folder, or the items of a table, are on the web
    group_by: str = ""  # the field that rows of one item share
    max_pages: Annotated[int, Meta(ge=1)] = 1000
    delay: Annotated[float, Meta(ge=0)] = 1.0
    auth: SourceAuth | None = None  # of calls of the operations that an OpenAPI document describes
    every: str = ""  # when a server loads it again: an interval such as 30m, or a cron line
    webhook_secret_env: str = ""  # the environment variable with the secret that its webhooks are signed with


class ParamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[[operation]] params: one parameter of an HTTP endpoint."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] = "string"
    description: str = ""
    required: bool = True
    location: Literal["path", "query", "header", "body"] = "query"


class OperationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[[operation]]: an HTTP endpoint elsewhere."""

    name: str
    url: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    kind: KindName = "read"
    danger: DangerName | None = None
    description: str = ""
    params: dict[str, ParamSettings] = {}
    headers: dict[str, str] = {}
    timeout: Annotated[float, Meta(gt=0, le=300)] = 30.0
    long: bool = False


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[store]"""

    url: str = "sqlite:///site.db"
    keep_changes: Annotated[int, Meta(ge=1000)] = 100_000
    pool: Annotated[int, Meta(ge=2, le=1000)] = 10  # connections of one process to a database server
    seconds: Annotated[float, Meta(gt=0, le=3600)] = 10.0  # that a query may take

    def open_options(self) -> dict[str, Any]:
        """Return the arguments for opening the store, besides its URL."""
        return {"keep_changes": self.keep_changes, "pool": self.pool, "seconds": self.seconds}


class Section(Protocol):
    """A section that a protocol adds to the settings."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> type[msgspec.Struct]: ...

    @property
    def environment(self) -> Callable[[Mapping[str, str]], Mapping[str, Any]] | None:
        """Read the settings that the environment gives, in place of those of the file."""
        ...

    @property
    def check(self) -> "Callable[[Config, frozenset[str]], None]":
        """Raise ConfigError for what no type can refuse; given what `segments` of all other sections yield."""
        ...

    def segments(self, config: "Config") -> Iterable[str]: ...


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A site file. Every setting has a working default."""

    site: About = About()
    web: Web = Web()
    store: StoreSettings = StoreSettings()
    server: Server = Server()
    search: Search = Search()
    ask: AskSettings = AskSettings()
    safety: Safety = Safety()
    oauth: Oauth = Oauth()
    anonymous: Anonymous = Anonymous()
    limits: Limits = Limits()
    collections: dict[str, CollectionSettings] = {}
    source: list[SourceSettings] = []
    operation: list[OperationSettings] = []
    operations: list[str] = []  # Python modules or files with @operation functions
    allow_hosts: list[str] = []  # hosts that may resolve to private addresses
    ca_file: str = ""  # a file in PEM: authorities to trust besides the public ones, for callbacks and nodes elsewhere
    folder: str = "."  # set by Portico: where the site file lies; other paths are relative to it
    sections: dict[
        type[msgspec.Struct], msgspec.Struct
    ] = {}  # set by Portico: settings of protocols that say something

    def section(self, kind: type[S]) -> S:
        """Return the settings of a protocol, by their type or one that they inherit from."""
        exact = self.sections.get(kind)
        if exact is not None:
            return cast("S", exact)
        return next((section for section in self.sections.values() if isinstance(section, kind)), None) or kind()

    def with_section(self, section: msgspec.Struct) -> "Config":
        """Return the settings with those of one protocol replaced."""
        return msgspec.structs.replace(self, sections={**self.sections, type(section): section})

    def collection(self, name: str) -> Collection:
        """What the site file says of a collection."""
        settings = self.collections.get(name, CollectionSettings())
        fields = {
            field: Field(field, FieldType(spec.type), spec.path, True, spec.description, spec.format, spec.unit)
            for field, spec in settings.fields.items()
        }
        return Collection(
            name,
            fields,
            settings.title,
            settings.description,
            settings.type,
            settings.singular,
            settings.language or self.site.language,
            settings.weights,
            settings.private or name.startswith("_"),
            settings.details,
            settings.roles,
            settings.unknown,
        )

    @property
    def store_url(self) -> str:
        return resolve_location(self.store.url, self.folder)

    @property
    def anonymous_scopes(self) -> frozenset[str]:
        return frozenset(check_scope(scope) for scope in self.anonymous.scopes)

    @property
    def anonymous_danger(self) -> Danger:
        return Danger[self.anonymous.danger.upper()]


def resolve_location(url: str, folder: str) -> str:
    """Return a URL or path whose relative file is taken from the folder of the site file."""
    scheme, separator, path = url.partition(":///")
    if separator and scheme == "sqlite":
        return url if path == ":memory:" or path.startswith("/") else f"sqlite:///{Path(folder, path)}"
    if "://" in url or url.startswith("/"):
        return url
    return str(Path(folder, url))


def database_file(store_url: str) -> Path | None:
    """Return the file of a store on SQLite; None for any other."""
    kind, _, path = store_url.partition(":///")
    return Path(path) if kind == "sqlite" and path not in {"", ":memory:"} else None


def check_sources(urls: Sequence[str], where: str = "The command line") -> None:
    """Refuse sources that differ in nothing but their secrets: the store would take them for one source."""
    names: dict[str, str] = {}
    for url in urls:
        name = redact_url(url)
        if names.setdefault(name, url) != url:
            raise ConfigError(
                f"{where}: two sources differ only in their password or token: {name}",
                hint="Append a fragment such as #second to one of the URLs.",
            )


def find_site_file(name: str | None) -> Path | None:
    """Return the site file of a command: the one it names, else that of the environment, else that of this folder."""
    if name:
        path = Path(name)
        path = path / FILE if path.is_dir() else path
        if not path.is_file():
            raise ConfigError(f"There is no site file at {path}", hint=f"Name a {FILE} or a folder with one.")
        return path
    if os.environ.get(SITE_VARIABLE):
        return find_site_file(os.environ[SITE_VARIABLE])
    return Path(FILE) if Path(FILE).is_file() else None


def read_config(path: Path, sections: Sequence[Section] = ()) -> Config:
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if "folder" in raw:
        raise ConfigError(f"{path}: folder is not a setting; paths are relative to the file")
    return parse_config({**raw, "folder": str(path.parent)}, str(path), sections)


def parse_config(raw: Mapping[str, Any], where: str = FILE, sections: Sequence[Section] = ()) -> Config:
    """Read settings that were parsed from TOML. Each section beside Portico's own is that of a protocol."""
    file_type = _file_type(tuple(_settings_of(sections).items()))
    try:
        file = msgspec.convert(_with_environment(raw, sections), file_type)
    except msgspec.ValidationError as error:
        raise _to_config_error(error, where, file_type) from error
    values = msgspec.structs.asdict(file)
    popped = {kind: values.pop(name) for name, kind in _settings_of(sections).items()}
    changed = {kind: value for kind, value in popped.items() if value != kind()}
    config = Config(**values, sections=changed)
    for scope in (*config.anonymous.scopes, *config.oauth.scopes, *config.section(AgentTrust).scopes):
        check_scope(scope)
    for name in config.server.trusted_proxies:
        _check_network(name, f"{where}: server.trusted_proxies")
    _check_image_hosts(config.web, where)
    _check_sections(config, where, sections)
    check_sources([source.url for source in config.source], where)
    _check_names([source.name for source in config.source if source.name], where)
    for name in (*config.collections, *(source.collection for source in config.source if source.collection)):
        check_collection_name(name)
    return config


def _check_names(names: Sequence[str], where: str) -> None:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise ConfigError(f"{where}: two sources are called {repeated!r}", hint="Give one of them another name.")


# What stands here goes into a header of every page, so nothing but a name is allowed.
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9-]{1,63}(?:\.(?!-)[a-z0-9-]{1,63})+\Z")


def _check_image_hosts(web: Web, where: str) -> None:
    for name in web.image_hosts:
        if name != ANY_IMAGE_HOST and not _HOST_NAME.match(name):
            raise ConfigError(
                f"{where}: web.images: {name!r} is not a host name",
                setting="web.images",
                hint='Use "https:", or names such as "cdn.shop.example" without scheme, port and path.',
            )


def _check_network(text: str, where: str) -> None:
    try:
        parse_network(text)
    except ValueError as error:
        raise ConfigError(
            f"{where}: {text!r} is neither an address nor a network",
            hint="Use an address such as 10.0.0.5, or a network such as 10.0.0.0/8 without bits after its prefix.",
        ) from error


def _settings_of(sections: Sequence[Section]) -> dict[str, type[msgspec.Struct]]:
    """Return the settings of each section that has any."""
    return {section.name: section.settings for section in sections if msgspec.structs.fields(section.settings)}


@lru_cache
def _file_type(sections: tuple[tuple[str, type[msgspec.Struct]], ...]) -> type[msgspec.Struct]:
    """Return the type of a site file with these sections."""
    own = [field for field in msgspec.structs.fields(Config) if field.name != "sections"]
    fields = [
        *((field.name, field.type, msgspec.field(default_factory=partial(_default, field))) for field in own),
        *((name, kind, msgspec.field(default_factory=kind)) for name, kind in sections),
    ]
    return msgspec.defstruct("SiteFile", fields, frozen=True, forbid_unknown_fields=True, kw_only=True)


def _check_sections(config: Config, where: str, sections: Sequence[Section]) -> None:
    for section in sections:
        others = frozenset(name for other in sections if other is not section for name in other.segments(config))
        try:
            section.check(config, others)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error.message}", hint=error.hint) from error


def _with_environment(raw: Mapping[str, Any], sections: Sequence[Section]) -> Mapping[str, Any]:
    """Return the settings with those in their place that the environment gives."""
    merged = dict(raw)
    for section in sections:
        values = section.environment(os.environ) if section.environment else None
        table: Any = raw.get(section.name, {})
        if values and isinstance(table, dict):
            merged[section.name] = {**table, **values}
    return merged


def secret(name: str) -> str:
    """Return the value of an environment variable that the site file names for a secret."""
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"The environment variable {name} is not set", hint="The site file names it for a secret.")
    return value


def screen() -> str:
    """Return the screen for dialogs that the environment names, or an empty text."""
    return os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY", "")


def ca_file_of(config: Config) -> str:
    """Return the path of `ca_file` once it was seen to hold certificates; empty if it is not set."""
    if not config.ca_file:
        return ""
    path = Path(config.folder, config.ca_file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:  # of which those of TLS are
        reason = error.strerror if error.strerror and not isinstance(error, ssl.SSLError) else "it has no certificate"
        raise ConfigError(
            f"ca_file: {path} cannot be used: {reason}", hint="Name a file with certificates of authorities in PEM."
        ) from error
    return str(path)


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]+)`")
_NO_VALUE = re.compile(r"Invalid enum value (.+)", re.DOTALL)


def _to_config_error(error: msgspec.ValidationError, where: str, file_type: type[msgspec.Struct]) -> ConfigError:
    problem, _, at = str(error).partition(" - at `$")
    place = at.rstrip("`").lstrip(".").replace("[...]", ".*") or "the top level"
    steps = re.sub(r"\[\d+\]", ".*", place)
    unknown = _UNKNOWN.match(problem)
    if unknown:
        names = _keys_at(file_type, steps)
        hint = nearest_hint(unknown[1], names) or f"Known settings: {', '.join(names)}."
        return ConfigError(f"{where}: {place} has no setting {unknown[1]!r}", setting=unknown[1], hint=hint)
    wrong = _NO_VALUE.match(problem)
    values = ", ".join(map(str, _values_of(_kind_at(file_type, steps))))
    message = f"{place} cannot be {wrong[1]}" if wrong else f"{place}: {problem}"
    return ConfigError(f"{where}: {message}", setting=place, hint=f"It can be: {values}." if values else "")


def _kind_at(file_type: type[msgspec.Struct], place: str) -> Any:
    """Return the type of the settings at a place such as `collections.*`."""
    kind: Any = file_type
    for step in [] if place == "the top level" else place.split("."):
        kind = _inner(kind, step)
    return kind


def _values_of(kind: Any) -> list[Any]:
    """Return the values that a setting can have, if it has a fixed set of them."""
    inner = get_args(kind)
    return list(inner) if get_origin(kind) is Literal else [value for part in inner for value in _values_of(part)]


def _keys_at(file_type: type[msgspec.Struct], place: str) -> list[str]:
    kind = _kind_at(file_type, place)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [field.name for field in msgspec.structs.fields(kind) if field.name != "folder"]
    return []


def _inner(kind: Any, step: str) -> Any:
    arguments = [argument for argument in getattr(kind, "__args__", ()) if argument is not ...]
    if step == "*" and arguments:
        return arguments[-1]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return next((field.type for field in msgspec.structs.fields(kind) if field.encode_name == step), None)
    return cast("Any", kind)


def settings(sections: Sequence[Section] = ()) -> dict[str, Any]:
    """Return every setting with its default, by dotted name; documentation is checked against it."""
    return dict(_defaults(_file_type(tuple(_settings_of(sections).items())), ""))


def _defaults(kind: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(kind):
        if field.name == "folder":
            continue
        inner = _section_of(field.type)
        if inner:
            yield from _defaults(inner, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", None if field.required else _default(field)


def _section_of(kind: Any) -> type[msgspec.Struct] | None:
    for candidate in (kind, *getattr(kind, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


def _default(field: Any) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
