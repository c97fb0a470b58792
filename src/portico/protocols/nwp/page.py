"""The page of an NWP node, for people who come by: what it is, what it holds and does, and how to ask it.

All of it comes from the manifest and the schemas that programs read. Everything shown is escaped and bounded.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

from portico.ask.prose import shorten
from portico.web.item import trail
from portico.web.style import content_page
from portico.web.values import one_line

MAX_NAME: Final = 80  # characters of a name
MAX_TITLE: Final = 300
MAX_SAID: Final = 600  # of a description
MAX_ROWS: Final = 200  # fields, actions or nodes that are shown
MAX_OPEN: Final = 12  # actions that are not folded up

JsonObject: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


class NodeLink(NamedTuple):
    """A node of the site, as others lead to it."""

    name: str
    type: str
    title: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node, and all that its page says of it."""

    site: str
    base: str  # the address of the site
    prefix: str  # the path of all nodes
    name: str
    description: str
    manifest: JsonObject
    schemas: Mapping[str, JsonObject]  # by their anchors
    methods: Mapping[str, str]  # of what lies below the node's address
    nodes: Sequence[NodeLink]  # all there are

    @property
    def address(self) -> str:
        return f"{self.base}{self.path(self.name)}"

    @property
    def actions(self) -> Mapping[str, JsonObject]:
        return self.manifest.get("actions", {})

    def path(self, name: str) -> str:
        return f"{self.prefix}/{quote(name, safe='')}"

    def fields(self, anchor: str) -> Sequence[JsonObject]:
        return self.schemas.get(anchor, {}).get("fields", ())


def node_page(node: NodeView) -> str:
    """What a node is and offers. Runs nothing."""
    title = str(node.manifest["display_name"])
    kind, says = _KINDS[node.manifest["node_type"]]
    about, leads = node.description or says, node.manifest["node_type"] == "complex"
    body = [
        _trail(node),
        f'<p class="kind">{kind}</p><h1>{_text(title, MAX_TITLE)}</h1>',
        f'<p class="lead">{_text(about, MAX_SAID)}</p>',
        f"<h2>Try it</h2><pre>{escape(_example(node))}</pre>",
        # Its actions are many, and those who come here mostly look for another node.
        _others(node) if leads else "",
        *_schemas(node),
        *_actions(node),
        _addresses(node),
        _capabilities(node.manifest["capabilities"]),
        _facts(node),
        "" if leads else _others(node),
        _documents(node),
    ]
    return content_page(
        f"{shorten(one_line(title), MAX_TITLE)} · {shorten(one_line(node.site), MAX_TITLE)}",
        shorten(node.site, MAX_TITLE),
        f'<div class="node">{"".join(filter(None, body))}</div>',
    )


def _trail(node: NodeView) -> str:
    """The way here: over the node that leads to all others."""
    above = [(node.path(item.name), "Nodes") for item in node.nodes if item.type == "complex"]
    return trail(("/", shorten(node.site, MAX_NAME)), *(step for step in above if step[0] != node.path(node.name)))


_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "memory": ("Memory node", "Records to be queried, streamed and followed."),
    "action": ("Action node", "What can be done, one action at a time."),
    "gateway": ("Gateway node", "Every action of the site, run as tasks."),
    "complex": ("Complex node", "All that the site has and does, and the way to its other nodes."),
}


def _text(text: str, most: int) -> str:
    """Escaped, bounded, and isolated: no mark of direction reaches what stands around it."""
    return f"<bdi>{escape(shorten(' '.join(text.split()), most))}</bdi>"


def _code(text: str) -> str:
    return f"<code>{_text(text, MAX_NAME)}</code>"


# How to ask it


def _example(node: NodeView) -> str:
    """A command line that this very node answers."""
    sub, body = _question(node)
    lines = [f"curl {shlex.quote(f'{node.address}/{sub}')}", *_CREDENTIALS[node.manifest["auth"]["identity_type"]]]
    if body:
        lines.append(f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    return " \\\n  ".join(lines)


def _question(node: NodeView) -> tuple[str, JsonObject | None]:
    if node.manifest["capabilities"]["query"]:
        return "query", {"limit": 3}
    for id, spec in node.actions.items():
        params = _PARAMS.get(id.rpartition(".")[2])
        if params and _takes(node.fields(spec.get("params_anchor", "")), params):
            return "invoke", {"action_id": id, "params": params}
    return ("actions" if node.actions else ".schema"), None


def _takes(fields: Sequence[JsonObject], params: JsonObject) -> bool:
    """Whether an action needs no other parameters, and knows these."""
    needed = {field["name"] for field in fields if not field.get("nullable")}
    return needed <= params.keys() <= {field["name"] for field in fields}


_PARAMS: Final[Mapping[str, JsonObject]] = {"list": {"limit": 3}, "ask": {"text": "What is there?"}}
_CREDENTIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "none": (),
    "bearer": ('-H "authorization: Bearer $KEY"',),
    "nip-cert": ("-H \"x-nwp-ident: $(tr -d '\\n' <agent.json)\"",),
}


# What it holds and does


def _schemas(node: NodeView) -> Iterator[str]:
    anchors: Mapping[str, str] = node.manifest["schema_anchors"]
    if not anchors:
        return
    tables = {name: _fields(node.fields(anchor), anchor) for name, anchor in _first(anchors.items())}
    yield "<h2>Schema</h2>" if len(anchors) == 1 else "<h2>Schemas</h2>"
    for name, table in tables.items():
        folded = f"<details><summary>{_code(name)}</summary>{table}</details>"
        yield table if len(anchors) == 1 else folded
    yield _rest(len(anchors))


def _fields(fields: Sequence[JsonObject], anchor: str) -> str:
    rows = (
        (_code(field["name"]), escape(field["type"]), _text(str(field.get("semantic", "")), MAX_NAME))
        for field in _first(fields)
    )
    return (
        f"{_table(('Name', 'Type', 'Semantic'), rows)}{_rest(len(fields))}"
        f'<p class="faint">Anchor <code>{escape(anchor)}</code></p>'
    )


def _actions(node: NodeView) -> Iterator[str]:
    if not node.actions:
        return
    yield "<h2>Actions</h2>"
    groups = groupby(_first(node.actions), key=lambda id: id.rpartition(".")[0])
    for name, ids in ((name, list(members)) for name, members in groups):
        rows = "".join(_action(id, node.actions[id], node) for id in ids)
        actions = f'<ul class="list">{rows}</ul>'
        summary = f'<summary>{_code(name)} <span class="faint">{len(ids)}</span></summary>'
        yield actions if len(node.actions) <= MAX_OPEN else f"<details>{summary}{actions}</details>"
    yield _rest(len(node.actions))


def _action(id: str, spec: JsonObject, node: NodeView) -> str:
    marks = [word for name, word in _MARKS.items() if spec.get(name)]
    fields = node.fields(spec.get("params_anchor", ""))
    takes = ", ".join(map(_parameter, _first(fields)))
    terms = [f"Takes {takes}{' …' if len(fields) > MAX_ROWS else ''}"] if takes else []
    about = f"<p>{_text(spec['description'], MAX_SAID)}</p>" if spec.get("description") else ""
    terms = f"<p>{'. '.join([*terms, *marks])}.</p>" if terms or marks else ""
    return f"<li>{_code(id)}{about}{terms}</li>"


_MARKS: Final = {"async": "Can run as a task", "idempotent": "Safe to repeat"}


def _parameter(field: JsonObject) -> str:
    optional = "" if field.get("nullable") else ", required"
    return f"{_code(field['name'])} ({escape(field['type'])}{optional})"


# Where and how


def _addresses(node: NodeView) -> str:
    there = {"", ".nwm", ".schema", *node.manifest["endpoints"]}
    rows = [
        (f"<code>{method} {escape(node.path(node.name) + (f'/{sub}' if sub else ''))}</code>", _ADDRESSES[sub])
        for sub, method in node.methods.items()
        if sub.partition("/")[0] in there
    ]
    native = str(node.manifest["endpoints"]["schema"]).removesuffix("/.schema")
    return (
        f"<h2>Addresses</h2>{_table(('Address', 'What'), rows, 'rows wide')}"
        f"<p>Bodies are JSON, MessagePack or NCP frames. Without HTTP: <code>{escape(native)}</code></p>"
    )


_ADDRESSES: Final[Mapping[str, str]] = {
    "": "This page; the manifest for programs",
    ".nwm": "The manifest",
    ".schema": "Schemas; <code>?anchor=</code> names one",
    "query": "Records that fit a filter, a page at a time",
    "stream": "All of them, in parts",
    "subscribe": "Changes, as they happen",
    "actions": "The actions",
    "actions/status/{task}": "How a task is getting on",
    "invoke": "Run an action",
}


def _capabilities(flags: Mapping[str, bool]) -> str:
    rows = [(_code(name), _CAPABILITIES.get(name, "")) for name, is_there in flags.items() if is_there]
    missing = ", ".join(_code(name) for name, is_there in flags.items() if not is_there)
    without = f'<p class="faint">Not here: {missing}.</p>' if missing else ""
    return f"<h2>Capabilities</h2>{_table(('Name', 'What'), rows, 'rows wide') if rows else ''}{without}"


_CAPABILITIES: Final[Mapping[str, str]] = {
    "query": "Filters, order and pages",
    "stream_query": "Long answers in parts",
    "aggregate": "Counts, sums and groups",
    "subscribe": "Changes, as they happen",
    "subscribe_filter": "Only changes that fit a filter",
    "vector_search": "The nearest records to a vector",
    "token_budget_hint": "Answers that fit a budget of tokens",
    "inline_anchor": "A new schema comes with the answer",
    "ext_frame": "Frames above 65,535 bytes",
    "e2e_enc": "Encryption from end to end",
}


def _facts(node: NodeView) -> str:
    manifest, auth, rates = node.manifest, node.manifest["auth"], node.manifest["rate_limits"]
    needed = " and ".join(_code(item) for item in auth.get("required_capabilities", ()))
    issuers = ", ".join(_code(name) for name in auth.get("trusted_issuers", ()))
    limits = [f"{rates[name]:,} {words}" for name, words in _RATES.items() if name in rates]
    facts = {
        "Who may ask": f"{_AUTH[auth['identity_type']]} {needed}",
        "Issued by": issuers,
        "Limits": ", ".join(limits),
        "Node": _code(manifest["node_id"]),
        "Protocol": f"NWP {escape(manifest['nwp'])}",
        "Tokens counted as": ", ".join(map(_code, manifest["tokenizer_support"])),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{says}</dd>" for name, says in facts.items() if says)
    return f"<h2>Terms</h2><dl>{rows}</dl>"


_AUTH: Final[Mapping[str, str]] = {
    "none": "Anybody. What needs a key says so when it is asked for",
    "bearer": "Holders of a key or token, sent as <code>authorization: Bearer …</code>",
    "nip-cert": "Agents with a certificate, sent as <code>x-nwp-ident</code>, that has",
}
_RATES: Final[Mapping[str, str]] = {
    "requests_per_minute": "requests a minute",
    "max_concurrent_streams": "streams at once",
    "max_subscriptions": "subscriptions",
}


def _others(node: NodeView) -> str:
    others = [item for item in node.nodes if item.name != node.name]
    rows = "".join(
        f'<li><a href="{escape(node.path(item.name))}">{_text(item.title, MAX_NAME)}</a> '
        f'<span class="faint">{escape(item.type)}</span></li>'
        for item in _first(others)
    )
    return f"<h2>Other nodes</h2><ul>{rows}</ul>{_rest(len(others))}"


def _documents(node: NodeView) -> str:
    path = escape(node.path(node.name))
    links = f'<a href="{path}/.nwm">manifest</a> and <a href="{path}/.schema">schema</a>'
    return f'<p class="forms faint">For programs: {links}</p>'


# Building blocks


def _first(rows: Iterable[T]) -> Iterator[T]:
    return islice(rows, MAX_ROWS)


def _rest(count: int) -> str:
    return f'<p class="faint">… and {count - MAX_ROWS:,} more</p>' if count > MAX_ROWS else ""


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], style: str = "rows") -> str:
    """Cells are HTML that is safe already."""
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="{style}"><table><tr>{head}</tr>{body}</table></div>'
