"""The paths of NWP nodes and of the site's authority, as OpenAPI describes them: bodies from the types of frames,
statuses from the table of errors.

A body may be JSON, MessagePack or a frame with its header. JSON is told; of the others only that they are read.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from portico.protocols.discovery.authority import (
    AUTHORITY_PATH,
    KEY_PATH,
    MAX_NID,
    OCSP_PATH,
    REVOKED_PATH,
    VERIFY_PATH,
)
from portico.protocols.discovery.paths import (
    HEADERS,
    TEXT,
    Described,
    answer,
    content,
    found,
    parameter,
    problems,
    reference,
    step,
)
from portico.protocols.discovery.wellknown import JSON, MANIFEST_PATH
from portico.protocols.nlweb.schema import whole_schema
from portico.protocols.nwp.errors import CODES
from portico.protocols.nwp.frames import (
    AcceptedFrame,
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    ErrorFrame,
    Frame,
    QueryFrame,
    StreamFrame,
    SubscribeFrame,
)
from portico.protocols.nwp.http import CAPSULE, ERROR, EVENTS, HTML, LINES, PATHS, STATUS
from portico.protocols.nwp.nodes import MANIFEST, PREFIX, SITE

Answers: TypeAlias = Mapping[int, Described]

NODES: Final = "Nodes"
AUTHORITY: Final = "Certificates"
TAGS: Final[Mapping[str, str]] = {
    NODES: "The same site over NWP: a node for each collection, for its operations, and one for all. "
    "Errors say `status` and `error` in the words of the protocol.",
    AUTHORITY: "Whom the site has certified (NIP). Certificates are made on the command line.",
}

_STATUSES: Final = sorted({code.http.value for code in CODES.values()} | {HTTPStatus.METHOD_NOT_ALLOWED.value})
_OPEN: Final = (400, 401, 403, 404, 405, 429, 500, 503)  # of what is read without being let in


def node_paths() -> dict[str, Described]:
    """Every path below a node, the manifest that leads there, and what the authority is asked."""
    return {**{_path(below): _described(below, method.lower()) for below, method in PATHS.items()}, **_known()}


def node_components() -> dict[str, Described]:
    """What they refer to."""
    refused = content(reference("schemas", "NodeError"), ERROR)
    return {
        "schemas": {
            **{f"Node{kind.__name__}": whole_schema(kind) for kind in (CapsFrame, AcceptedFrame, StreamFrame)},
            "NodeAnchorFrame": whole_schema(AnchorFrame),
            "NodeError": _bare(ErrorFrame),
            **{f"Node{kind.__name__}": _bare(kind) for kind in (QueryFrame, ActionFrame, SubscribeFrame)},
        },
        "responses": {
            f"NodeRefusal{status}": answer(HTTPStatus(status).phrase, refused, **HEADERS.get(status, {}))
            for status in _STATUSES
        },
    }


def _bare(kind: type[Frame]) -> Described:
    """A frame that need not say which it is: its address does."""
    schema = whole_schema(kind)
    members = {name: each for name, each in schema["properties"].items() if name != "frame"}
    return {**schema, "properties": members, "required": [name for name in schema["required"] if name != "frame"]}


def _path(below: str) -> str:
    return f"{PREFIX}/{{node}}/{below}" if below else f"{PREFIX}/{{node}}"


def _described(below: str, method: str) -> Described:
    parameters = [_NODE, _TASK] if below == STATUS else [_NODE]
    return {"parameters": parameters, method: _STEPS[below]}


def _refused(*statuses: int) -> dict[int, Described]:
    return {status: reference("responses", f"NodeRefusal{status}") for status in statuses or _STATUSES}


def _asked(id: str, summary: str, kind: type[Frame], example: Described, answers: Answers) -> Described:
    body = {JSON: {"schema": reference("schemas", f"Node{kind.__name__}"), "example": example}}
    shown = {"required": True, "content": body}
    return step(id, NODES, summary, {**answers, **_refused()}, requestBody=shown)


def _read(id: str, summary: str, answers: Answers, **more: Any) -> Described:
    return step(id, NODES, summary, {**answers, **_refused(*_OPEN)}, **more)


_NAME: Final = parameter("node", "path", {**TEXT, "minLength": 1, "description": "Its name"}, required=True)
_NODE: Final = {**_NAME, "example": SITE}
_TASK: Final = parameter("task", "path", {**TEXT, "minLength": 1, "description": "Its id"}, required=True)
_ANCHOR: Final = parameter("anchor", "query", {**TEXT, "description": "Which of several, by its name or its hash"})
_PAGE: Final = content(TEXT, HTML)
_OBJECT: Final[Described] = {"type": "object"}
_CAPS: Final = content(reference("schemas", "NodeCapsFrame"), CAPSULE)
_STREAM: Final = content(reference("schemas", "NodeStreamFrame"), LINES)
_CHANGES: Final = content(reference("schemas", "Event"), EVENTS)
_SUBSCRIBE: Final[Described] = {
    "action": "subscribe",
    "stream_id": "8f6b1c9e-4f0a-4a8e-9c55-0d6f6a1f2b3c",
    "anchor_ref": "sha256:…",
}

_STEPS: Final[Mapping[str, Described]] = {
    "": _read("get_node", "What a node is", found({**_PAGE, **content(_OBJECT, MANIFEST)})),
    ".nwm": _read("get_node_manifest", "The manifest of a node", found(content(_OBJECT, MANIFEST))),
    ".schema": _read(
        "get_node_schema",
        "A schema of a node",
        {200: answer("The schema", content(reference("schemas", "NodeAnchorFrame"), JSON, CAPSULE))},
        parameters=[_ANCHOR],
    ),
    "query": _asked(
        "query_node",
        "Records that fit a filter",
        QueryFrame,
        {"limit": 3},
        {200: answer("A page of records; with `stream` all of them, in lines", {**_CAPS, **_STREAM})},
    ),
    "stream": _asked(
        "stream_node", "All records that fit, in parts", QueryFrame, {"limit": 100}, {200: answer("Lines", _STREAM)}
    ),
    "subscribe": _asked(
        "subscribe_to_node",
        "Changes, as they happen",
        SubscribeFrame,
        _SUBSCRIBE,
        {200: answer("An acknowledgement, and events that are frames in base64", {**_CHANGES, **_CAPS})},
    ),
    "actions": _read("get_node_actions", "What can be done", {200: answer("All actions", content(_OBJECT, JSON))}),
    STATUS: _read("get_node_task", "How a task is getting on", {200: answer("Its status", content(_OBJECT, JSON))}),
    "invoke": _asked(
        "invoke_on_node",
        "Do something",
        ActionFrame,
        {"action_id": "site.ask", "params": {"text": "What is there?"}},
        {
            200: answer("The result", _CAPS),
            202: answer("A task", content(reference("schemas", "NodeAcceptedFrame"), CAPSULE)),
        },
    ),
}


def _known() -> dict[str, Described]:
    """What is not told by a node itself. Errors are problem details."""
    refused = problems(429, 503)
    read = {**found(content(_OBJECT, JSON)), **refused}
    nid = parameter("nid", "path", {**TEXT, "minLength": 1, "description": f"At most {MAX_NID}"}, required=True)
    manifest = {**found(content(_OBJECT, MANIFEST)), **problems(401), **refused}
    return {
        MANIFEST_PATH: {
            "get": step("get_well_known_nwp", "Discovery", "The manifest of the node that leads to all", manifest)
        },
        AUTHORITY_PATH: {"get": step("get_authority", AUTHORITY, "Who certifies, and with which key", read)},
        KEY_PATH: {"get": step("get_authority_key", AUTHORITY, "The key", read)},
        REVOKED_PATH: {"get": step("get_revoked", AUTHORITY, "Certificates that are revoked, signed", read)},
        VERIFY_PATH: {
            "parameters": [nid],
            "get": step("verify_agent", AUTHORITY, "Whether an agent has a good certificate", read),
        },
        OCSP_PATH: {
            "parameters": [nid],
            "get": step("get_agent", AUTHORITY, "The same, below the ocsp_url of manifests", read),
        },
    }
