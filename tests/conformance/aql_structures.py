"""Every structure of an MCP-AQL answer as a closed JSON Schema, and which of them an answer to a request must have.

Written from the specification and its companions: nothing here is read from Portico, so that the two cannot be wrong
together. `problems_with` judges one answer; the clients of the tests call it for every answer that they receive.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import jsonschema

Schema: TypeAlias = dict[str, Any]

# What the public suite takes for a leak, and what else no message may tell.
LEAK = r"(?i:typeerror|referenceerror|syntaxerror|at\s+\S|/src/|/node_modules/|\.[tj]s:\d|traceback|\.py\b)"


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def array(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def closed(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def by_code(schemas: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object that is closed in another way for each value of its `code`."""
    cases = [{"if": {"properties": {"code": {"const": code}}}, "then": schema} for code, schema in schemas.items()]
    return {"type": "object", "properties": {"code": {"enum": list(schemas)}}, "required": ["code"], "allOf": cases}


ANY: Schema = {}
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
SNAKE: Schema = {"type": "string", "pattern": r"^[a-z][a-z0-9_]*$"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
NULL: Schema = {"type": "null"}
OPEN: Schema = {"type": "object"}
TEXTS = array(TEXT)
TRUE: Schema = {"const": True}
FALSE: Schema = {"const": False}
MESSAGE: Schema = {"type": "string", "minLength": 1, "not": {"pattern": LEAK}}
TIMESTAMP: Schema = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
TOKEN: Schema = {
    "type": "string",
    "pattern": r"^(conf|quota_continue)_[A-Za-z0-9_-]{1,64}$",
    "minLength": 8,
    "maxLength": 80,
}
TRUST: Schema = {"enum": ["untested", "generated", "validated", "community_reviewed", "certified"]}
DANGER: Schema = {"enum": ["safe", "reversible", "destructive", "dangerous", "forbidden"]}
CATEGORY: Schema = {"enum": ["CREATE", "READ", "UPDATE", "DELETE", "EXECUTE"]}
STATES = ["pending", "running", "completed", "failed", "cancelled"]
STATUS: Schema = {"enum": [*STATES, "paused"]}  # 8.4.4: an extension, to be read as running
TIER: Schema = {"enum": ["advisory", "confirm", "verify", "danger_zone"]}

# Introspection

_BOUNDS: dict[str, Schema] = {
    "description": TEXT,
    "default": ANY,
    "enum": {"type": "array", "minItems": 1},
    "minimum": NUMBER,
    "maximum": NUMBER,
    "minLength": COUNT,
    "maxLength": COUNT,
    "pattern": NAME,
    "format": NAME,
    "items": closed({"type": NAME}, {"enum": {"type": "array", "minItems": 1}}),
    "sensitive": FLAG,
}
_INFO = {"name": SNAKE, "semantic_category": CATEGORY, "endpoint": NAME, "description": NAME}
_KIND = {"name": NAME, "kind": {"enum": ["enum", "object", "scalar", "union"]}}
_DETAILED = {"description": TEXT}
_TEXTS_BY_NAME: Schema = {"type": "object", "additionalProperties": NAME}

INTROSPECTION: dict[str, Schema] = {
    "EndpointPermissions": closed({"readOnly": FLAG, "destructive": FLAG}),
    "ParameterInfo": closed({"name": SNAKE, "type": NAME, "required": FLAG}, _BOUNDS),
    "FieldInfo": closed({"name": NAME, "type": NAME, "required": FLAG}, _BOUNDS),
    "TypeInfo": closed(_KIND, _DETAILED),
    "TypeDetails": {
        "oneOf": [
            closed({**_KIND, "kind": {"const": "enum"}, "values": array(TEXT, minItems=1)}, _DETAILED),
            closed({**_KIND, "kind": {"const": "object"}, "fields": array(ref("FieldInfo"))}, _DETAILED),
            closed({**_KIND, "kind": {"const": "scalar"}}, _DETAILED),
            closed({**_KIND, "kind": {"const": "union"}, "members": array(NAME, minItems=2)}, _DETAILED),
        ]
    },
    "ComputedFieldInfo": closed(
        {"name": SNAKE, "type": NAME}, {"description": TEXT, "filterable": FLAG, "sortable": FLAG}
    ),
    "AggregationSupport": closed(
        {"supported": FLAG},
        {
            "default_mode": {"enum": ["summary_only", "include_items"]},
            "functions": array({"enum": ["count", "group_by", "sum", "avg", "min", "max"]}),
            "groupable_fields": array(NAME),
            "numeric_fields": array(NAME),
        },
    ),
    "RelationshipCapabilities": closed(
        {"supported": FLAG},
        {
            "directions": array({"enum": ["incoming", "outgoing", "both"]}),
            "relationship_types": array(NAME),
            "max_depth": POSITIVE,
        },
    ),
    "LifecycleInfo": closed(
        {"states": array({"enum": STATES}, minItems=1)},
        {"supports_cancel": FLAG, "supports_retry": FLAG, "progress_reporting": FLAG},
    ),
    "OperationInfo": closed(_INFO),
    "OperationDetails": closed(
        {
            **_INFO,
            "mcpTool": SNAKE,
            "permissions": ref("EndpointPermissions"),
            "parameters": array(ref("ParameterInfo")),
            "returns": ref("TypeInfo"),
        },
        {
            "examples": array(closed({"request": ref("OperationInput")}, {"description": NAME})),
            "computed_fields": array(ref("ComputedFieldInfo")),
            "aggregation_support": ref("AggregationSupport"),
            "relationship_capabilities": ref("RelationshipCapabilities"),
            "lifecycle": ref("LifecycleInfo"),
        },
    ),
    "OperationInput": closed({"operation": SNAKE}, {"params": OPEN}),
    "ProtocolCapabilities": closed(
        {
            **dict.fromkeys(
                (
                    *("batch", "field_selection", "aggregations", "computed_fields", "pagination"),
                    *("relationship_queries", "warnings", "confirmation", "dangerous_operations"),
                ),
                FLAG,
            ),
            "execution_safety_loop": {"enum": ["enforcing", "monitoring", "logging", "disabled"]},
        }
    ),
    "Limits": closed(
        dict.fromkeys(
            ("max_request_size", "max_response_size", "max_string_length", "max_array_elements", "max_nesting_depth"),
            POSITIVE,
        ),
        dict.fromkeys(("max_batch_size", "default_page_size", "max_page_size"), POSITIVE),
    ),
    "ProtocolMetadata": closed(
        {
            "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+(-[A-Za-z0-9.-]+)?$"},
            "conformance": {"enum": ["level-1", "level-2"]},
            "mode": {"enum": ["semantic", "single", "all"]},
            "capabilities": ref("ProtocolCapabilities"),
            "limits": ref("Limits"),
            "concurrency": {"enum": ["serialized", "read-concurrent", "fully-concurrent", "resource-locked"]},
            "supports_etag": FLAG,
            "max_concurrent_requests": POSITIVE,
        },
        {
            "profile": NAME,
            "endpoint_modes": array(NAME, minItems=1),
            "extensions": array(SNAKE),
            "session_id": NAME,
            "safety": closed(
                {
                    "max_autonomous_steps": POSITIVE,
                    "window_seconds": NUMBER,
                    "risk_tolerance": {"enum": ["conservative", "moderate", "aggressive"]},
                    "tiers": array(TIER),
                    "patterns": closed(dict.fromkeys(("deny", "requires_approval", "auto_approve"), COUNT)),
                }
            ),
        },
    ),
    "OperationsListData": closed(
        {"_protocol": ref("ProtocolMetadata"), "operations": array(ref("OperationInfo"), minItems=1)}
    ),
    "OperationDetailData": closed({"operation": {"oneOf": [ref("OperationDetails"), NULL]}}),
    "TypesListData": closed({"types": array(ref("TypeInfo"), minItems=1)}),
    "TypeDetailData": closed({"type": {"oneOf": [ref("TypeDetails"), NULL]}}),
    # Queries of Portico's own
    "AdapterData": closed(
        {
            "adapter": closed(
                {
                    **dict.fromkeys(("name", "language", "spec_version"), NAME),
                    "description": TEXT,
                    **dict.fromkeys(("extensions", "conventions", "classification", "lifecycle"), _TEXTS_BY_NAME),
                }
            )
        }
    ),
    "QuotaData": closed(
        {
            "quota_status": closed(
                {
                    "metric": {"const": "requests_per_minute"},
                    "status": {"enum": ["ok", "warn", "paused", "exhausted"]},
                    **dict.fromkeys(("limit", "current", "remaining"), COUNT),
                    "resets_in_seconds": NUMBER,
                }
            )
        }
    ),
    "PoliciesData": closed({"policies": array(ref("OperationPolicy"))}),
    "OperationPolicy": closed(
        {
            "operation": SNAKE,
            "danger": DANGER,
            "permitted": FLAG,
            "decision": {"enum": ["allow", "confirm", "deny"]},
            "rules": array(
                closed({"decision": {"enum": ["allow", "confirm", "deny"]}, "reason": TEXT, "conditional": FLAG})
            ),
        }
    ),
}

# Failures: the details of each code. Labels of the session and the request may stand beside them, and the words of the
# site where the message could be mistaken for a stack trace.

_LABELS: dict[str, Schema] = {"session_id": NAME, "request_id": NAME}
_EXPLANATION: dict[str, Schema] = {"explanation": NAME}


def _details(required: Mapping[str, Schema] | None = None, optional: Mapping[str, Schema] | None = None) -> Schema:
    return closed(required or {}, {**(optional or {}), **_LABELS, **_EXPLANATION})


DETAILS: dict[str, Schema] = {
    "VALIDATION_MISSING_PARAM": _details({"param_name": NAME, "operation": TEXT}),
    "VALIDATION_INVALID_TYPE": _details(
        {"param_name": NAME, "expected_type": NAME, "actual_type": NAME}, {"value": ANY}
    ),
    "VALIDATION_UNKNOWN_PARAM": _details(
        {"operation": NAME, "unknown_params": array(TEXT, minItems=1), "valid_params": array(SNAKE)}
    ),
    "VALIDATION_UNKNOWN_FIELD": _details({"fields": array(TEXT, minItems=1), "valid": array(NAME)}),
    "VALIDATION_INVALID_ENCODING": _details(optional={"location": NAME, "byte_offset": COUNT}),
    "VALIDATION_PAYLOAD_TOO_LARGE": _details(
        {
            "limit_type": {
                "enum": ["request_size", "response_size", "string_length", "array_elements", "nesting_depth"]
            },
            "limit_value": COUNT,
            "actual_value": COUNT,
            "unit": {"enum": ["bytes", "characters", "elements", "levels", "tokens"]},
        },
        {"completed": TRUE},  # an extension: the operation was done, and only its answer is too large
    ),
    "VALIDATION_ENDPOINT_MISMATCH": _details({"operation": SNAKE, "expected_endpoint": NAME, "actual_endpoint": NAME}),
    "NOT_FOUND_OPERATION": _details({"operation": TEXT}, {"available": array(SNAKE)}),
    "NOT_FOUND_RESOURCE": _details(optional={"resource_type": NAME, "resource_id": TEXT}),
    "PERMISSION_DENIED": _details(optional={"reason": NAME, "required_scope": NAME, "verification_id": NAME}),
    "PERMISSION_TRUST_LEVEL_INSUFFICIENT": _details(
        {
            "operation": SNAKE,
            "required_trust": TRUST,
            "actual_trust": TRUST,
            "danger_level": {"type": "integer", "minimum": 0, "maximum": 4},
        }
    ),
    "PERMISSION_DANGER_LEVEL_DENIED": _details(
        {
            "operation": SNAKE,
            "danger_level": DANGER,
            "adapter_trust": TRUST,
            "minimum_trust_required": TRUST,
            "reasons": array(NAME, minItems=1),
        }
    ),
    "CONFIRMATION_REQUIRED": _details(
        {"operation": SNAKE, "danger_level": DANGER, "confirmation_token": TOKEN, "expires_at": TIMESTAMP},
        {"reasons": array(NAME), "confirmation_message": NAME},
    ),
    "RATE_LIMIT_EXCEEDED": _details(
        {
            "limit": COUNT,
            "remaining": COUNT,
            "window": {"enum": ["second", "minute", "hour", "day"]},
            "resets_at": TIMESTAMP,
            "retry_after_seconds": POSITIVE,
        }
    ),
    "TOKEN_INVALID": _details({"token": {"type": "string", "maxLength": 10}}),
    "TOKEN_EXPIRED": _details(
        {"token": {"type": "string", "maxLength": 10}, "expired_at": TIMESTAMP, "current_time": TIMESTAMP}
    ),
    "TOKEN_ALREADY_USED": _details({"token": {"type": "string", "maxLength": 10}}, {"consumed_at": TIMESTAMP}),
    "TOKEN_SCOPE_MISMATCH": _details(
        {"token": {"type": "string", "maxLength": 10}, "token_operation": NAME, "requested_operation": NAME}
    ),
    "CONFLICT_VERSION_MISMATCH": _details(),
    "CONFLICT_ALREADY_EXISTS": _details(),
    # An extension of the category: the state of something does not allow what is wanted of it.
    "CONFLICT_INVALID_STATE": _details(optional={"resource_type": NAME, "resource_id": NAME, "status": NAME}),
    "INTERNAL_ERROR": _details(),
}
WITHOUT_DETAILS = ("BATCH_VALIDATION_ERROR",)  # by its schema
CODES = (*DETAILS, *WITHOUT_DETAILS)
# Failures of introspection have a code and a message, and no room for details.
_BRIEF = closed({"code": {"enum": list(CODES)}, "message": MESSAGE})
_OPTIONAL_DETAILS = tuple(code for code, schema in DETAILS.items() if not schema["required"])


def _error(code: str) -> Schema:
    told = {"code": {"const": code}, "message": MESSAGE}
    if code in WITHOUT_DETAILS:
        return closed(told)
    details = {"details": {**DETAILS[code], "minProperties": 1}}
    return closed(told, details) if code in _OPTIONAL_DETAILS else closed({**told, **details})


FAILURES: dict[str, Schema] = {
    "ErrorDetail": by_code({code: _error(code) for code in CODES}),
    "Confirmation": closed({"token": TOKEN, "expires_at": TIMESTAMP}, {"message": MESSAGE, "reasons": array(NAME)}),
    "OperationFailure": {
        **closed(
            {"success": FALSE, "error": ref("ErrorDetail")},
            {
                "confirmation": ref("Confirmation"),
                "deprecated": FLAG,
                **dict.fromkeys(("deprecationMessage", "deprecatedSince", "removalVersion"), TEXT),
            },
        ),
        "if": {"properties": {"error": {"properties": {"code": {"const": "CONFIRMATION_REQUIRED"}}}}},
        "then": {"required": ["confirmation"]},
        "else": {"properties": {"confirmation": False}},
    },
    "IntrospectionFailure": closed({"success": FALSE, "error": _BRIEF}),
}

# Successes

_WARNING_DETAILS: dict[str, Schema] = {
    "RATE_LIMIT_QUOTA_WARNING": closed(
        {"metric": NAME, "current": COUNT, "warn_threshold": COUNT}, {"pause_threshold": COUNT}
    ),
    "DEPRECATION_WARNING": closed(
        {"type": NAME, "deprecated_item": NAME}, dict.fromkeys(("replacement", "removal_date", "migration_guide"), TEXT)
    ),
    "VALIDATION_TRUNCATED_WARNING": closed(
        {"field": NAME, "original_count": COUNT, "truncated_count": COUNT, "limit": COUNT}
    ),
    "PERFORMANCE_SLOW_QUERY_WARNING": closed({"operation": SNAKE, "duration_ms": COUNT, "threshold_ms": COUNT}),
    # Extensions
    "VALIDATION_UNKNOWN_PARAM_WARNING": closed({"param_name": TEXT, "operation": SNAKE}),
    "SEARCH_DEGRADED_WARNING": closed({}),
}


def _warning(code: str) -> Schema:
    details = _WARNING_DETAILS[code]
    counted = {**details, "properties": {**details["properties"], "occurrence_count": POSITIVE}}
    required = {"code": {"const": code}, "message": MESSAGE}
    return closed(required, {"details": counted, "severity": {"enum": ["low", "medium", "high"]}})


_META = closed({}, {**_LABELS, "untrusted_content": TRUE})

SUCCESSES: dict[str, Schema] = {
    "OperationWarning": by_code({code: _warning(code) for code in _WARNING_DETAILS}),
    "OperationSuccess": closed(
        {"success": TRUE, "data": ANY},
        {
            "warnings": array(ref("OperationWarning"), minItems=1, maxItems=10),
            "_meta": {**_META, "minProperties": 1},
        },
    ),
    "ItemSuccess": closed({"success": TRUE, "data": ANY}, {"_meta": closed({"untrusted_content": TRUE})}),
    "BatchItem": closed(
        {
            "index": COUNT,
            "operation": TEXT,
            "result": {"oneOf": [ref("ItemSuccess"), ref("OperationFailure"), ref("IntrospectionFailure")]},
        },
        {"status": {"const": "pending_confirmation"}},
    ),
    "BatchSummary": closed(
        dict.fromkeys(("total", "succeeded", "failed"), COUNT), {"halted": {"const": 1}, "pending": COUNT}
    ),
    "BatchResult": {
        **closed(
            {"success": TRUE, "data": NULL, "results": array(ref("BatchItem")), "summary": ref("BatchSummary")},
            {
                "halted_at": ref("BatchItem"),
                "pending_operations": array(closed({"index": COUNT, "operation": TEXT, "params": OPEN})),
            },
        ),
        "dependentRequired": {"halted_at": ["pending_operations"], "pending_operations": ["halted_at"]},
    },
}

# Data of operations that are the same on every site

DATA: dict[str, Schema] = {
    "PageInfo": closed(
        {"hasNextPage": FLAG, "hasPreviousPage": FLAG},
        {"startCursor": NAME, "endCursor": NAME, "totalCount": COUNT, "pageSize": POSITIVE},
    ),
    "Item": {"type": "object", "properties": {"id": NAME, "_etag": NAME, "_version": NAME}, "required": ["id"]},
    "Page": {
        "oneOf": [
            closed({"items": array(ref("Item")), "pageInfo": ref("PageInfo")}, {"aggregations": OPEN}),
            closed({"aggregations": OPEN}),
        ]
    },
    "Counted": closed({"count": COUNT}),
    "Deleted": closed({"id": NAME, "deleted": TRUE}),
    "ElementRef": closed({"element_type": NAME, "element_name": NAME}),
    "Relationships": closed(
        {"pageInfo": ref("PageInfo")},
        {
            "root": ref("ElementRef"),
            "relationships": array(
                closed(
                    {
                        "type": NAME,
                        "direction": {"enum": ["incoming", "outgoing"]},
                        "target": ref("ElementRef"),
                        "depth": POSITIVE,
                    }
                )
            ),
            "graph": closed(
                {},
                {
                    "nodes": array(closed({"id": NAME, "element_type": NAME, "element_name": NAME})),
                    "edges": array(closed({"source": NAME, "target": NAME, "type": NAME})),
                },
            ),
        },
    ),
    "ExecutionProgress": {
        **closed({}, {"current": NUMBER, "total": NUMBER, "percentage": NUMBER, "message": TEXT}),
        "minProperties": 1,
        "dependentRequired": {"current": ["total"], "total": ["current"]},
    },
    "ExecutionInfo": {
        **closed(
            {"execution_id": NAME, "status": STATUS},
            {
                "element_name": NAME,
                "started_at": TIMESTAMP,
                "finished_at": TIMESTAMP,
                "progress": ref("ExecutionProgress"),
                "error": ref("ErrorDetail"),
                "summary": TEXT,
                "result": ANY,
            },
        ),
        "if": {"properties": {"status": {"enum": ["completed", "failed", "cancelled"]}}},
        "then": {"required": ["finished_at"]},
        "else": {"properties": {"finished_at": False}},
    },
    "ExecutionStarted": closed(
        {
            "execution_id": NAME,
            "status": STATUS,
            "started_at": TIMESTAMP,
            "limits": closed(
                {
                    "max_autonomous_steps": POSITIVE,
                    "steps_remaining": COUNT,
                    "risk_tolerance": {"enum": ["conservative", "moderate", "aggressive"]},
                    "mode": {"enum": ["enforcing", "monitoring", "logging"]},
                }
            ),
        }
    ),
    "AgentNotification": closed(
        {
            "type": {"enum": ["permission_pending", "autonomy_pause", "danger_zone", "status", "error"]},
            "message": NAME,
            "timestamp": TIMESTAMP,
        },
        {"metadata": closed({}, dict.fromkeys(("operation", "reason", "level", "verificationId"), NAME))},
    ),
    "AutonomyDirective": closed(
        {"continue": FLAG, "factors": array(NAME)},
        {
            "stopped": FLAG,
            "reason": NAME,
            "stepsRemaining": COUNT,
            "nextStepRisk": TIER,
            "notifications": array(ref("AgentNotification")),
        },
    ),
    "StepRecorded": closed(
        {"execution_id": NAME, "step": COUNT, "status": STATUS, "autonomy": ref("AutonomyDirective")},
        {"confirmation": closed({"token": TOKEN, "expires_at": TIMESTAMP})},
    ),
    "Confirmed": closed({"confirmed": FLAG, "operation": NAME, "scope": NAME, "expires_at": TIMESTAMP}),
    "Verified": closed({"verified": TRUE, "challenge_id": NAME, "agent": NAME, "unblocked": FLAG}),
    "Memories": array(
        closed({"id": NAME, "kind": {"enum": ["preference", "question"]}, "text": NAME, "at": TIMESTAMP})
    ),
}

STRUCTURES = {**INTROSPECTION, **FAILURES, **SUCCESSES, **DATA}

_QUERIES = {
    ("operations", False): "OperationsListData",
    ("operations", True): "OperationDetailData",
    ("types", False): "TypesListData",
    ("types", True): "TypeDetailData",
    ("adapter_info", False): "AdapterData",
    ("adapter_info", True): "AdapterData",
    ("quota_status", False): "QuotaData",
    ("quota_status", True): "QuotaData",
    ("policies", False): "PoliciesData",
    ("policies", True): "PoliciesData",
}
_OPERATIONS = {
    "query_relationships": "Relationships",
    "execute_agent": "ExecutionStarted",
    "record_execution_step": "StepRecorded",
    "confirm_operation": "Confirmed",
    "verify_challenge": "Verified",
    "list_memories": "Memories",
    "forget_memories": "Counted",
    **dict.fromkeys(
        (
            *("complete_execution", "abort_execution", "get_execution_status", "cancel_execution"),
            *("retry_execution", "run_workflow"),
        ),
        "ExecutionInfo",
    ),
}


@cache
def _validator(name: str) -> Any:
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": STRUCTURES})


def problems_in(structure: str, value: Any) -> list[str]:
    """Return what keeps a value from being this structure."""
    return [
        f"{structure}{error.json_path[1:]}: {error.message[:300]}" for error in _validator(structure).iter_errors(value)
    ]


def problems_with(request: Any, answer: Any) -> list[str]:
    """Return what is wrong with the answer to a request, be it of one operation or of a batch."""
    return list(_problems(_decoded(request), answer))


def check_answer(request: Any, answer: Any) -> None:
    """Fail with everything that is wrong with an answer."""
    problems = problems_with(request, answer)
    assert not problems, f"{json.dumps(answer)[:2000]} breaks {problems}"


def is_envelope(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("success"), bool)


def _decoded(request: Any) -> dict[str, Any]:
    if isinstance(request, bytes):
        try:
            request = json.loads(request)
        except (ValueError, RecursionError):
            return {}
    return request if isinstance(request, dict) else {}


def _problems(request: dict[str, Any], answer: Any) -> Iterator[str]:
    if isinstance(answer, dict) and answer.get("success") is True and "operations" in request:
        yield from problems_in("BatchResult", answer)
        yield from _batch_problems(request["operations"], answer)
    else:
        yield from _result_problems(request, answer)


def _batch_problems(operations: list[Any], answer: dict[str, Any]) -> Iterator[str]:
    items = [*answer.get("results", []), *([answer["halted_at"]] if "halted_at" in answer else [])]
    for item in items:
        yield from _result_problems(_decoded(operations[item["index"]]), item["result"], "ItemSuccess")
    places = sorted(each["index"] for each in (*items, *answer.get("pending_operations", [])))
    if places != list(range(len(operations))):
        yield f"BatchResult: the operations {places} are answered of {len(operations)}"
    summary, results = answer["summary"], answer["results"]
    succeeded = sum(1 for each in results if each["result"]["success"])
    if summary["total"] != len(operations) or summary["succeeded"] != succeeded:
        yield f"BatchSummary: {summary} is counted wrongly"


def _result_problems(request: dict[str, Any], answer: Any, success: str = "OperationSuccess") -> Iterator[str]:
    operation = request.get("operation")
    is_introspection = operation == "introspect"
    if not isinstance(answer, dict) or answer.get("success") is not True:
        yield from problems_in("IntrospectionFailure" if is_introspection else "OperationFailure", answer)
        return
    yield from problems_in(success, answer)
    if is_introspection and answer.keys() != {"success", "data"}:
        yield f"introspection has room for success and data alone, not {sorted(answer)}"
    structure = _structure_of(request, answer.get("data"))
    if structure:
        yield from problems_in(structure, answer.get("data"))


def _structure_of(request: dict[str, Any], data: Any) -> str:
    """Return the structure of an operation's data; none for an operation that a site defines itself."""
    operation = str(request.get("operation"))
    params = {**request, **(request.get("params") or {})}
    if operation == "introspect":
        return _QUERIES[str(params.get("query")), bool(params.get("name"))]
    if operation in _OPERATIONS:
        return _OPERATIONS[operation]
    members = data.keys() if isinstance(data, dict) else set[str]()
    if re.match(r"(list|search)_", operation) and members & {"pageInfo", "aggregations"}:
        return "Page"
    return "ExecutionInfo" if {"execution_id", "status"} <= members else ""
