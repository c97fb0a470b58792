"""What discovery tells of NWP and of the site's authority: bodies from the types of frames, statuses from the table of
errors.

A body may be JSON, MessagePack or a frame with its header. JSON is described; of the others only that they are read.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from portico.protocols import Description, Interface, LlmsLink, OpenApi, Schema, Services, Tag
from portico.protocols.nwp.authority import (
    AUTHORITY_PATH,
    KEY_PATH,
    MAX_NID,
    OCSP_PATH,
    REVOKED_PATH,
    VERIFY_PATH,
)
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
from portico.protocols.openapi import (
    DISCOVERY,
    JSON,
    TEXT,
    cacheable,
    content,
    operation,
    parameter,
    problems,
    reference,
    refusal_components,
    response,
)
from portico.protocols.schemas import whole_schema

Responses: TypeAlias = Mapping[int, Schema]

NODES: Final = "Nodes"
AUTHORITY: Final = "Certificates"
MANIFEST_PATH: Final = "/.well-known/nwp"
NODE_PATH: Final = f"{PREFIX}/{SITE}"  # of the node that leads to all others
_LINK: Final = (
    f"- [NWP]({{base}}{NODE_PATH}): records by filter, in parts and as they change, and what can be done with them: "
    f"""`curl {{base}}{NODE_PATH}/query -d '{{{{"limit": 3}}}}'`. Its [manifest]({{base}}{MANIFEST_PATH}) says how."""
)
# The frames, by the names under which they are published.
_NAMES: Final[Mapping[type[Frame], str]] = {
    CapsFrame: "NodeCapsFrame",
    AcceptedFrame: "NodeAcceptedFrame",
    StreamFrame: "NodeStreamFrame",
    QueryFrame: "NodeQueryFrame",
    ActionFrame: "NodeActionFrame",
    SubscribeFrame: "NodeSubscribeFrame",
}
_STATUSES: Final = sorted({code.http.value for code in CODES.values()} | {HTTPStatus.METHOD_NOT_ALLOWED.value})
_OPEN: Final = (400, 401, 403, 404, 405, 429, 500, 503)  # of what is read without being let in


def describe(_: Services) -> Description:
    return Description(
        openapi=_openapi,
        interfaces=(Interface(NODE_PATH, MANIFEST_PATH, MANIFEST, MANIFEST),),
        links=(LlmsLink("Read", _LINK, 2),),
    )


def _openapi(_: str) -> OpenApi:
    refusal = content(reference("schemas", "NodeError"), ERROR)
    return OpenApi(
        tags=(
            Tag(
                NODES,
                "The same site over NWP: a node for each collection, for its operations, and one for all. "
                "Errors say `status` and `error` in the words of the protocol.",
                7,
            ),
            Tag(AUTHORITY, "Whom the site has certified (NIP). Certificates are made on the command line.", 7),
        ),
        paths={
            **{_path(below): _path_item(below, method.lower()) for below, method in PATHS.items()},
            **_well_known(),
        },
        components={
            "schemas": {
                **{_NAMES[kind]: whole_schema(kind) for kind in (CapsFrame, AcceptedFrame, StreamFrame)},
                "NodeAnchorFrame": whole_schema(AnchorFrame),
                "NodeError": _without_kind(ErrorFrame),
                **{_NAMES[kind]: _without_kind(kind) for kind in (QueryFrame, ActionFrame, SubscribeFrame)},
            },
            "responses": refusal_components("NodeRefusal", _STATUSES, refusal),
        },
    )


def _without_kind(kind: type[Frame]) -> Schema:
    """Return the schema of a frame that need not say which it is: its path does."""
    schema = whole_schema(kind)
    members = {name: member for name, member in schema["properties"].items() if name != "frame"}
    return {**schema, "properties": members, "required": [name for name in schema["required"] if name != "frame"]}


def _path(below: str) -> str:
    return f"{PREFIX}/{{node}}/{below}" if below else f"{PREFIX}/{{node}}"


def _path_item(below: str, method: str) -> Schema:
    parameters = [_NODE, _TASK] if below == STATUS else [_NODE]
    return {"parameters": parameters, method: _OPERATIONS[below]}


def _refusals(*statuses: int) -> dict[int, Schema]:
    return {status: reference("responses", f"NodeRefusal{status}") for status in statuses or _STATUSES}


def _frame_operation(id: str, summary: str, kind: type[Frame], example: Schema, responses: Responses) -> Schema:
    media = {JSON: {"schema": reference("schemas", _NAMES[kind]), "example": example}}
    return operation(id, NODES, summary, {**responses, **_refusals()}, requestBody={"required": True, "content": media})


def _read_operation(id: str, summary: str, responses: Responses, **more: Any) -> Schema:
    return operation(id, NODES, summary, {**responses, **_refusals(*_OPEN)}, **more)


_NAME: Final = parameter("node", "path", {**TEXT, "minLength": 1, "description": "Its name"}, required=True)
_NODE: Final = {**_NAME, "example": SITE}
_TASK: Final = parameter("task", "path", {**TEXT, "minLength": 1, "description": "Its id"}, required=True)
_ANCHOR: Final = parameter("anchor", "query", {**TEXT, "description": "Which of several, by its name or its hash"})
_PAGE: Final = content(TEXT, HTML)
_OBJECT: Final[Schema] = {"type": "object"}
_CAPS: Final = content(reference("schemas", "NodeCapsFrame"), CAPSULE)
_STREAM: Final = content(reference("schemas", "NodeStreamFrame"), LINES)
_CHANGES: Final = content(reference("schemas", "Event"), EVENTS)
_SUBSCRIBE: Final[Schema] = {
    "action": "subscribe",
    "stream_id": "8f6b1c9e-4f0a-4a8e-9c55-0d6f6a1f2b3c",
    "anchor_ref": "sha256:…",
}

_OPERATIONS: Final[Mapping[str, Schema]] = {
    "": _read_operation("get_node", "What a node is", cacheable({**_PAGE, **content(_OBJECT, MANIFEST)})),
    ".nwm": _read_operation("get_node_manifest", "The manifest of a node", cacheable(content(_OBJECT, MANIFEST))),
    ".schema": _read_operation(
        "get_node_schema",
        "A schema of a node",
        {200: response("The schema", content(reference("schemas", "NodeAnchorFrame"), JSON, CAPSULE))},
        parameters=[_ANCHOR],
    ),
    "query": _frame_operation(
        "query_node",
        "Records that fit a filter",
        QueryFrame,
        {"limit": 3},
        {200: response("A page of records; with `stream` all of them, in lines", {**_CAPS, **_STREAM})},
    ),
    "stream": _frame_operation(
        "stream_node", "All records that fit, in parts", QueryFrame, {"limit": 100}, {200: response("Lines", _STREAM)}
    ),
    "subscribe": _frame_operation(
        "subscribe_to_node",
        "Changes, as they happen",
        SubscribeFrame,
        _SUBSCRIBE,
        {200: response("An acknowledgement, and events that are frames in base64", {**_CHANGES, **_CAPS})},
    ),
    "actions": _read_operation(
        "get_node_actions", "What can be done", {200: response("All actions", content(_OBJECT, JSON))}
    ),
    STATUS: _read_operation(
        "get_node_task", "How a task is getting on", {200: response("Its status", content(_OBJECT, JSON))}
    ),
    "invoke": _frame_operation(
        "invoke_on_node",
        "Do something",
        ActionFrame,
        {"action_id": "site.ask", "params": {"text": "What is there?"}},
        {
            200: response("The result", _CAPS),
            202: response("A task", content(reference("schemas", "NodeAcceptedFrame"), CAPSULE)),
        },
    ),
}


def _well_known() -> dict[str, Schema]:
    """Describe the paths outside the nodes. Errors are problem details."""
    overload = problems(429, 503)
    read = {**cacheable(content(_OBJECT, JSON)), **overload}
    nid = parameter("nid", "path", {**TEXT, "minLength": 1, "description": f"At most {MAX_NID}"}, required=True)
    manifest = {**cacheable(content(_OBJECT, MANIFEST)), **problems(401), **overload}
    return {
        MANIFEST_PATH: {
            "get": operation("get_well_known_nwp", DISCOVERY, "The manifest of the node that leads to all", manifest)
        },
        AUTHORITY_PATH: {"get": operation("get_authority", AUTHORITY, "Who certifies, and with which key", read)},
        KEY_PATH: {"get": operation("get_authority_key", AUTHORITY, "The key", read)},
        REVOKED_PATH: {"get": operation("get_revoked", AUTHORITY, "Certificates that are revoked, signed", read)},
        VERIFY_PATH: {
            "parameters": [nid],
            "get": operation("verify_agent", AUTHORITY, "Whether an agent has a good certificate", read),
        },
        OCSP_PATH: {
            "parameters": [nid],
            "get": operation("get_agent", AUTHORITY, "The same, below the ocsp_url of manifests", read),
        },
    }
