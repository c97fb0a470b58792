"""Operations that are HTTP endpoints elsewhere."""

import json
from contextlib import AbstractAsyncContextManager

import pytest
import yaml
from tests.site.conftest import OPERATOR, Calling, Elsewhere, Open

from portico.errors import (
    BadRequest,
    ConfigError,
    InvalidParams,
    OperationFailed,
    OutcomeUnknown,
    SiteError,
    Unavailable,
)
from portico.requests import Call
from portico.server.assembly import Parts
from portico.sources.ingest import ingest
from portico.sources.registry import SourceOptions, open_source

ALLOWED = {"allow_hosts": ["127.0.0.1"]}


@pytest.fixture
def with_endpoint(opened: Open, elsewhere: Elsewhere):
    """Open a site with one HTTP operation named `order`."""

    def opening(path: str = "/orders", **said: object) -> AbstractAsyncContextManager[Parts]:
        operation = {"name": "order", "url": elsewhere.url + path, "kind": "execute", **said}
        return opened(operation=[operation], **ALLOWED)

    return opening


async def test_parameters_go_to_the_path_the_query_the_headers_and_the_body(with_endpoint, elsewhere) -> None:
    elsewhere.body = b'{"ok": true}'
    params = {
        "room": {"type": "string"},
        "nights": {"type": "integer", "location": "query"},
        "days": {"type": "array", "location": "query"},
        "X-Guest": {"type": "string", "location": "header"},
        "note": {"type": "object", "location": "body", "required": False},
    }
    async with with_endpoint("/rooms/{room}/orders?v=2", method="POST", params=params) as parts:
        result = await Calling(parts.site)(
            "order",
            **{"room": "the attic/2", "nights": 3, "days": ["mo", "tu"], "X-Guest": "Ada", "note": {"egg": True}},
        )

    assert result == {"ok": True}
    asked = elsewhere.asked[0]
    assert (asked.method, asked.path) == ("POST", "/rooms/the%20attic%2F2/orders?v=2&nights=3&days=mo&days=tu")
    assert asked.headers["X-Guest"] == "Ada"
    assert asked.headers["Content-Type"] == "application/json"
    assert json.loads(asked.body) == {"note": {"egg": True}}


@pytest.mark.parametrize("value", ["..", ".", "../../admin", "a?b=c", "a#b", "%2e%2e", "a\r\nX: y"])
async def test_a_path_parameter_never_leaves_its_place(with_endpoint, elsewhere, value: str) -> None:
    async with with_endpoint("/rooms/{room}/price", params={"room": {}}) as parts:
        try:
            await Calling(parts.site)("order", room=value)
        except SiteError:
            assert elsewhere.asked == []
            return

    path = elsewhere.asked[0].path
    assert path.startswith("/rooms/")
    assert path.endswith("/price")
    assert path.count("/") == 3
    assert "?" not in path


async def test_a_header_parameter_cannot_make_another_header(with_endpoint, elsewhere) -> None:
    params = {"X-Guest": {"location": "header"}}
    async with with_endpoint(params=params) as parts:
        await Calling(parts.site)("order", **{"X-Guest": "Ada\r\nX-Admin: yes"})

    assert "X-Admin" not in elsewhere.asked[0].headers


async def test_a_secret_in_a_header_comes_from_the_environment(
    with_endpoint, elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INN_TOKEN", "s3cret")
    async with with_endpoint(headers={"Authorization": "Bearer ${INN_TOKEN}"}) as parts:
        await Calling(parts.site)("order")

    assert elsewhere.asked[0].headers["Authorization"] == "Bearer s3cret"


async def test_a_secret_that_is_not_set_is_missed_when_the_site_opens(with_endpoint) -> None:
    with pytest.raises(ConfigError, match="NO_SUCH_TOKEN is not set"):
        async with with_endpoint(headers={"Authorization": "Bearer ${NO_SUCH_TOKEN}"}):
            pass


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
async def test_an_error_elsewhere_is_a_failure_here_without_its_text(with_endpoint, elsewhere, status: int) -> None:
    elsewhere.status, elsewhere.body = status, b'{"secret": "inner"}'
    async with with_endpoint() as parts:
        with pytest.raises(OperationFailed) as failure:
            await Calling(parts.site)("order")

    assert failure.value.details["status"] == status
    assert "inner" not in f"{failure.value} {failure.value.details}"


async def test_text_empty_and_broken_answers(with_endpoint, elsewhere) -> None:
    async with with_endpoint() as parts:
        call = Calling(parts.site)
        elsewhere.body, elsewhere.content_type = "Grüße".encode(), "text/plain; charset=utf-8"
        assert await call("order") == "Grüße"
        elsewhere.body = b""
        assert await call("order") is None
        elsewhere.body, elsewhere.content_type = b'{"half": ', "application/json"
        with pytest.raises(OperationFailed, match="broken JSON"):
            await call("order")


async def test_an_answer_that_is_too_large_is_not_taken(with_endpoint, elsewhere) -> None:
    elsewhere.body = b'"' + b"x" * (5 << 20) + b'"'
    async with with_endpoint() as parts:
        with pytest.raises(Unavailable, match="larger than"):
            await Calling(parts.site)("order")


async def test_an_endpoint_that_does_not_answer_is_unavailable(opened: Open) -> None:
    operation = {"name": "order", "url": "http://127.0.0.1:9/"}
    async with opened(operation=[operation], **ALLOWED) as parts:
        with pytest.raises(Unavailable):
            await Calling(parts.site)("order")


@pytest.mark.parametrize(("method", "error"), [("POST", OutcomeUnknown), ("PUT", Unavailable), ("GET", Unavailable)])
async def test_an_endpoint_that_breaks_off_may_have_done_its_work(
    with_endpoint, elsewhere, method: str, error: type[SiteError]
) -> None:
    elsewhere.status = 0  # no answer at all
    async with with_endpoint(method=method) as parts:
        for _ in range(2):
            with pytest.raises(error):
                await parts.site.call(Call("order", key="k"), OPERATOR)

    assert len(elsewhere.asked) == (1 if method == "POST" else 2)


@pytest.mark.parametrize(("method", "calls"), [("POST", 1), ("PATCH", 1), ("PUT", 2), ("GET", 2), ("DELETE", 2)])
@pytest.mark.parametrize(
    ("status", "body"), [(500, b"{}"), (502, b"{}"), (504, b""), (200, b'{"half": '), (201, b"<html>")]
)
async def test_a_response_that_does_not_tell_the_outcome_keeps_the_key(
    with_endpoint, elsewhere, method: str, calls: int, status: int, body: bytes
) -> None:
    elsewhere.status, elsewhere.body = status, body
    async with with_endpoint(method=method) as parts:
        for _ in range(2):
            with pytest.raises(OutcomeUnknown if calls == 1 else OperationFailed):
                await parts.site.call(Call("order", key="k"), OPERATOR)

    assert len(elsewhere.asked) == calls


@pytest.mark.parametrize("status", [400, 404, 409, 422, 429])
async def test_a_request_that_the_endpoint_refused_may_be_sent_again_with_its_key(
    with_endpoint, elsewhere, status: int
) -> None:
    elsewhere.status = status
    async with with_endpoint(method="POST") as parts:
        with pytest.raises(OperationFailed):
            await parts.site.call(Call("order", key="k"), OPERATOR)
        elsewhere.status, elsewhere.body = 200, b'"done"'
        assert (await parts.site.call(Call("order", key="k"), OPERATOR)).result == "done"


@pytest.mark.parametrize(("status", "error"), [(0, Unavailable), (503, OperationFailed)])
async def test_a_failed_post_that_only_reads_has_no_outcome_to_doubt(
    with_endpoint, elsewhere, status: int, error: type[SiteError]
) -> None:
    elsewhere.status = status
    async with with_endpoint(method="POST", kind="read") as parts:
        for _ in range(2):
            with pytest.raises(error):
                await parts.site.call(Call("order", key="k"), OPERATOR)

    assert len(elsewhere.asked) == 2


async def test_a_private_address_is_refused_unless_allowed(opened: Open, elsewhere) -> None:
    async with opened(operation=[{"name": "order", "url": elsewhere.url}]) as parts:
        with pytest.raises(Unavailable, match="not a public address"):
            await Calling(parts.site)("order")

    assert elsewhere.asked == []


async def test_parameters_are_checked_before_anything_is_sent(with_endpoint, elsewhere) -> None:
    params = {"nights": {"type": "integer"}, "note": {"required": False}}
    async with with_endpoint(params=params) as parts:
        call = Calling(parts.site)
        for wrong, name in (({}, "nights"), ({"nights": "two"}, "nights"), ({"nights": 1, "color": "red"}, "color")):
            with pytest.raises(InvalidParams) as refusal:
                await call("order", **wrong)
            assert name in str(refusal.value)

    assert elsewhere.asked == []


API = """
openapi: 3.0.3
info: {title: Tours, version: "1"}
servers: [{url: "%s/api"}]
paths:
  /tours:
    get:
      operationId: listTours
      parameters: [{name: limit, in: query, schema: {type: integer, minimum: 1}}]
      responses:
        "200":
          description: All.
          content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Tour"}}}}
  /tours/{id}:
    get:
      operationId: getTour
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses:
        "200":
          description: One.
          content: {application/json: {schema: {$ref: "#/components/schemas/Tour"}}}
    delete:
      operationId: cancelTour
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses: {"204": {description: Gone.}}
  /tours/{id}/bookings:
    post:
      operationId: bookTour
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      requestBody:
        required: true
        content:
          application/json:
            schema: {type: object, required: [seats], properties: {seats: {type: integer}, name: {type: string}}}
      responses: {"201": {description: Booked.}}
components:
  schemas:
    Tour: {type: object, required: [id], properties: {id: {type: string}, name: {type: string}, price: {type: number}}}
"""


@pytest.fixture
async def tours(opened: Open, elsewhere: Elsewhere, tmp_path):
    """A site whose operations come from an OpenAPI document."""
    assert yaml.safe_load(API)
    (tmp_path / "tours.yaml").write_text(API % elsewhere.url)
    async with opened() as parts:
        source = open_source(str(tmp_path / "tours.yaml"), SourceOptions())
        await ingest(parts.store, source, "_operations", declared=parts.config.collection)
    async with opened(**ALLOWED) as parts:
        yield Calling(parts.site)


async def test_an_imported_operation_sends_path_and_body(tours: Calling, elsewhere: Elsewhere) -> None:
    elsewhere.status, elsewhere.body = 201, b'{"booking": 5}'

    assert await tours("book_tour", id="harbour", seats=2, name="Ada") == {"booking": 5}
    asked = elsewhere.asked[0]
    assert (asked.method, asked.path) == ("POST", "/api/tours/harbour/bookings")
    assert json.loads(asked.body) == {"seats": 2, "name": "Ada"}
    with pytest.raises(BadRequest):
        await tours("book_tour", id="harbour")


async def test_an_imported_operation_may_answer_with_a_list(tours: Calling, elsewhere: Elsewhere) -> None:
    elsewhere.body = b'[{"id": "a", "name": "Harbour", "price": 5}, {"id": "b"}]'

    assert await tours("list_tours", limit=2) == [{"id": "a", "name": "Harbour", "price": 5}, {"id": "b"}]
    assert elsewhere.asked[0].path == "/api/tours?limit=2"


async def test_an_answer_that_breaks_the_imported_schema_is_a_failure(tours: Calling, elsewhere: Elsewhere) -> None:
    elsewhere.body = b'{"name": "without an id"}'

    with pytest.raises(OperationFailed):
        await tours("get_tour", id="a")


async def test_an_imported_deletion_is_destructive_and_may_answer_nothing(tours: Calling, elsewhere: Elsewhere) -> None:
    elsewhere.status, elsewhere.body = 204, b""

    assert tours.site.catalog.operation("cancel_tour").danger.name == "DESTRUCTIVE"
    assert (await tours.site.call(Call("cancel_tour", {"id": "a"}), OPERATOR)).result is None
