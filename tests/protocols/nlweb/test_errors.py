"""Every error has a code and a status, and none tells what should stay inside."""

import inspect

import pytest
from tests.conformance.requirements import requirement

from portico import errors
from portico.errors import SiteError
from portico.protocols.nlweb import errors as failures
from portico.protocols.nlweb.dialects import FLAT, V54, V55, ClientInfo
from portico.protocols.nlweb.errors import InvalidAction, MissingField, NoResults, UnsupportedFormat, UnsupportedMode

CLASSES = [
    each
    for module in (errors, failures)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, SiteError) and each is not SiteError
]
DOCUMENTED = {200, 400, 401, 403, 429, 500}


@requirement("nlweb:failure:shape", "nlweb:failure:message", "nlweb:note:error-body", "nlweb54:response:failure")
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dialect", [V55, V54, FLAT], ids=lambda dialect: dialect.name)
def test_every_error_has_a_code_and_a_documented_status(kind: type[SiteError], dialect) -> None:
    whole = failures.failure_answer(kind("The sea is rough"), ClientInfo(dialect))

    assert whole.status in DOCUMENTED
    assert whole.body["_meta"] == {"response_type": dialect.response_type("failure"), "version": dialect.version}
    assert whole.body["error"]["code"].replace("_", "").isupper()
    assert whole.body["error"]["message"]


@requirement(
    "nlweb:failure:no-results",
    "nlweb:failure:invalid-query",
    "nlweb:failure:unsupported-format",
    "nlweb:failure:unsupported-mode",
    "nlweb:failure:rate-limited",
    "nlweb:failure:internal-error",
    "nlweb:failure:timeout",
    "nlweb:failure:token-limit",
)
@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (errors.BadRequest("x"), "INVALID_QUERY", 400),
        (errors.UnknownField("x"), "INVALID_QUERY", 400),
        (errors.TooLarge("x"), "TOKEN_LIMIT", 400),
        (MissingField("x"), "INVALID_QUERY", 400),
        (InvalidAction("x"), "INVALID_QUERY", 400),
        (NoResults("x"), "NO_RESULTS", 200),
        (UnsupportedFormat("x"), "UNSUPPORTED_FORMAT", 200),
        (UnsupportedMode("x"), "UNSUPPORTED_MODE", 200),
        (errors.UnknownTask("x"), "UNKNOWN_PROMISE", 200),
        (errors.TaskCancelled("x"), "CANCELLED", 200),
        (errors.TimedOut("x"), "TIMEOUT", 200),
        (errors.Unauthenticated("x"), "UNAUTHENTICATED", 401),
        (errors.Forbidden("x"), "FORBIDDEN", 403),
        (errors.RateLimited("x"), "RATE_LIMITED", 429),
        (errors.Unavailable("x"), "INTERNAL_ERROR", 500),
        (errors.OperationFailed("x"), "INTERNAL_ERROR", 200),
        (errors.Interrupted("x"), "INTERNAL_ERROR", 200),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SiteError) else None,
)
def test_errors_have_the_codes_of_the_specification(error: SiteError, code: str, status: int) -> None:
    whole = failures.failure_answer(error, ClientInfo())

    assert (whole.body["error"]["code"], whole.status) == (code, status)


@requirement("nlweb54:code:invalid-request", "nlweb54:code:missing-field", "nlweb54:code:invalid-action")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadRequest("x"), "INVALID_REQUEST"),
        (errors.UnknownField("x"), "INVALID_REQUEST"),
        (MissingField("x"), "MISSING_FIELD"),
        (InvalidAction("x"), "INVALID_ACTION"),
        (errors.TooLarge("x"), "TOKEN_LIMIT"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SiteError) else None,
)
def test_0_54_has_names_of_its_own_for_some(error: SiteError, code: str) -> None:
    assert failures.failure_answer(error, ClientInfo(V54)).body["error"]["code"] == code


@requirement("nlweb:note:errors-from-catalogue")
def test_what_broke_inside_is_not_told() -> None:
    error = errors.Unavailable("connection to postgres://admin:secret@db failed")

    assert failures.failure_answer(error, ClientInfo()).body["error"] == {
        "code": "INTERNAL_ERROR",
        "message": "The site cannot answer this at the moment. Try again later.",
    }


@requirement("nlweb:rate:http-429")
@pytest.mark.parametrize(("wait", "seconds"), [(0.02, 1), (1.0, 1), (1.2, 2), (59.5, 60)])
def test_who_is_too_fast_is_told_how_many_whole_seconds_to_wait(wait: float, seconds: int) -> None:
    whole = failures.failure_answer(errors.RateLimited("Too fast", retry_after=wait), ClientInfo())

    assert whole.headers == {"retry-after": str(seconds)}
    assert whole.body["error"] == {"code": "RATE_LIMITED", "message": "Too fast", "retry_after": seconds}


def test_who_is_unknown_is_told_how_to_be_known() -> None:
    assert failures.failure_answer(errors.Unauthenticated("Who?"), ClientInfo()).headers == {
        "www-authenticate": "Bearer"
    }


def test_a_failure_carries_the_ids_of_its_request() -> None:
    body = failures.failure_answer(errors.BadRequest("What?"), ClientInfo(FLAT, request_id="r1", query_id="q1")).body

    assert body == {
        "_meta": {"response_type": "failure", "version": "0.55", "request_id": "r1"},
        "error": {"code": "INVALID_QUERY", "message": "What?"},
        "query_id": "q1",
    }
