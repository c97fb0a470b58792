"""The service embedder against a real HTTP server on this machine, which answers what each test scripts."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from portico.errors import ConfigError, TimedOut, Unavailable
from portico.models import Embedder, open_embedder
from portico.models.openai import LARGEST_ANSWER

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Service:
    """Answers with the scripted answers first, then with good ones."""

    script: list[Answer | None] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    port: int = 0
    pace: int = 0
    """Bytes written at a time, a twentieth of a second apart; all at once when it is 0."""
    let_go: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: dict[str, Any]) -> Answer | None:
        self.seen.append(request)
        return self.script.pop(0) if self.script else good(request)

    def open(self, options: str = "dimensions=2", secret: Callable[[str], str] | None = None) -> Embedder:
        url = f"openai+http://127.0.0.1:{self.port}/v1/org%2Fsmall-model?{options}"
        embedder = open_embedder(url, secret=secret)
        assert embedder is not None
        return embedder


def vector(text: str) -> list[float]:
    return [len(text), 1.0]


def rows(data: list[dict[str, Any]]) -> Answer:
    return 200, {}, json.dumps({"object": "list", "data": data, "usage": {}}).encode()


def good(request: dict[str, Any]) -> Answer:
    """In reverse order: only the index says which text a vector belongs to."""
    data = [{"index": index, "embedding": vector(text)} for index, text in enumerate(request["input"])]
    return rows(data[::-1])


def unit(text: str) -> np.ndarray:
    return np.array(vector(text)) / np.linalg.norm(vector(text))


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            service.paths.append(self.path)
            service.keys.append(self.headers["Authorization"])
            answer = service.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if answer is None:
                service.let_go.wait()
                self.close_connection = True
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            pace = service.pace or len(body) or 1
            with suppress(ConnectionError):  # the client may have left
                for begin in range(0, len(body), pace):
                    service.let_go.wait(0.05 if service.pace else 0)
                    self.wfile.write(body[begin : begin + pace])

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    service.let_go.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_request_is_the_one_the_protocol_asks_for(service: Service) -> None:
    embedder = service.open("dimensions=2&key_env=THE_KEY", secret={"THE_KEY": "k-1\n"}.__getitem__)

    embedder.embed(["a", ""])

    assert service.seen == [{"model": "org/small-model", "input": ["a", " "], "encoding_format": "float"}]
    assert service.paths == ["/v1/embeddings"]
    assert service.keys == ["Bearer k-1"]


def test_vectors_come_in_the_order_of_the_texts_at_length_one(service: Service) -> None:
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]

    vectors = service.open("dimensions=2&batch=2").embed(texts)

    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [unit(text) for text in texts], atol=1e-6)
    assert [request["input"] for request in service.seen] == [["a", "bb"], ["ccc", "dddd"], ["eeeee"]]


def test_the_name_tells_model_and_dimensions_but_not_the_host(service: Service) -> None:
    embedder = service.open("dimensions=2")

    assert (embedder.name, embedder.dimensions) == ("org/small-model-2", 2)


def test_half_of_a_surrogate_pair_is_sent_as_a_question_mark(service: Service) -> None:
    service.open().embed(["a\ud83d"])

    assert service.seen[0]["input"] == ["a?"]


def test_no_texts_need_no_request(service: Service) -> None:
    assert service.open().embed([]).shape == (0, 2)
    assert service.seen == []


def test_a_query_has_its_prefix_and_is_asked_once(service: Service) -> None:
    embedder = service.open("dimensions=2&query_prefix=query%3A%20")

    first, second = embedder.embed_query("soup"), embedder.embed_query("soup")

    assert first is second
    np.testing.assert_allclose(first, unit("query: soup"), atol=1e-6)
    assert [request["input"] for request in service.seen] == [["query: soup"]]


def test_long_texts_are_cut_and_shared_out_over_requests(service: Service) -> None:
    service.open("dimensions=2&max_chars=150000").embed(["x" * 400_000, "y" * 60_000, "z"])

    assert [[len(text) for text in request["input"]] for request in service.seen] == [[150_000], [60_000, 1]]


def test_shorter_vectors_are_asked_for_only_on_request(service: Service) -> None:
    service.open("dimensions=2&shorten=true").embed(["a"])

    assert service.seen[0]["dimensions"] == 2


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_failure_that_may_pass_is_tried_again(service: Service, status: int) -> None:
    service.script = [(status, {"Retry-After": "0"}, b"later")] * 2

    np.testing.assert_allclose(service.open().embed(["abc"]), [unit("abc")], atol=1e-6)
    assert len(service.seen) == 3


def test_patience_ends(service: Service) -> None:
    service.script = [(503, {"Retry-After": "later"}, b"")] * 2

    with pytest.raises(Unavailable, match="returned status 503") as failure:
        service.open().embed_query("soup")

    assert failure.value.details == {"tries": 2}
    assert len(service.seen) == 2


@pytest.mark.parametrize(
    ("status", "hint"), [(400, "shorten=true"), (401, "key_env"), (404, "path and the model"), (302, None)]
)
def test_a_refusal_is_not_tried_again_and_keeps_its_words_to_itself(
    service: Service, status: int, hint: str | None
) -> None:
    service.script = [(status, {"Location": "/elsewhere"}, b'{"error": "Incorrect API key: k-1"}')]

    with pytest.raises(Unavailable, match=f"refused the request with status {status}") as failure:
        service.open().embed(["a"])

    assert (hint is None and failure.value.hint is None) or (hint or "") in (failure.value.hint or "")
    assert "k-1" not in str(failure.value)
    assert len(service.seen) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {}, b"<html>It works!</html>"), "did not send a list of vectors"),
        ((200, {}, b'{"data": "none"}'), "did not send a list of vectors"),
        (
            (200, {}, b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}'),
            "did not send a list of vectors",
        ),
        (rows([]), "one vector for each of 1 texts"),
        (rows([{"index": 1, "embedding": [1, 2]}]), "one vector for each of 1 texts"),
        (rows([{"index": 0, "embedding": [1, 2]}] * 2), "one vector for each of 1 texts"),
        (rows([{"index": 0, "embedding": [1, 2, 3]}]), r"3 dimensions instead of 2\. Correct dimensions="),
        (rows([{"index": 0, "embedding": [0, 0]}]), "a vector of length zero or infinity"),
        (rows([{"index": 0, "embedding": [1e300, 1e300]}]), "a vector of length zero or infinity"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_is_not_vectors_is_refused(service: Service, answer: Answer, message: str) -> None:
    service.script = [answer]

    with pytest.raises(Unavailable, match=message):
        service.open().embed(["a"])


def test_a_compressed_answer_that_is_damaged_is_tried_again(service: Service) -> None:
    service.script = [(200, {"Content-Encoding": "gzip"}, b"not gzip")]

    assert service.open().embed(["a"]).shape == (1, 2)


def test_a_service_that_hangs_is_left_after_the_timeout(service: Service) -> None:
    service.script = [None, None]

    with pytest.raises(TimedOut, match="did not answer in time"):
        service.open("dimensions=2&timeout=0.1").embed_query("soup")


def test_a_service_that_trickles_is_left_after_the_timeout(service: Service) -> None:
    service.pace = 5

    with pytest.raises(TimedOut, match="did not answer in time"):
        service.open("dimensions=2&timeout=0.2").embed_query("soup")


def test_an_endless_answer_is_refused(service: Service) -> None:
    service.script = [(200, {}, b" " * (LARGEST_ANSWER + 1))]

    with pytest.raises(Unavailable, match=f"sent more than {LARGEST_ANSWER} bytes"):
        service.open().embed(["a"])


def test_a_hanging_answer_is_tried_again(service: Service) -> None:
    service.script = [None]

    assert service.open("dimensions=2&timeout=1.5").embed(["a"]).shape == (1, 2)


def test_a_service_that_is_not_there_is_unavailable(service: Service) -> None:
    embedder = open_embedder("openai+http://127.0.0.1:1/v1/model?dimensions=2", secret=None)
    assert embedder is not None

    with pytest.raises(Unavailable, match="cannot be reached"):
        embedder.embed_query("soup")


def no_secret(name: str) -> str:
    raise KeyError(name)


@pytest.mark.parametrize("secret", [None, no_secret, lambda name: "", lambda name: "kéy", lambda name: "a\nb"])
def test_a_missing_or_unusable_key_is_refused_before_any_request(
    service: Service, secret: Callable[[str], str] | None
) -> None:
    with pytest.raises(ConfigError, match="THE_KEY holds no usable key") as refusal:
        service.open("dimensions=2&key_env=THE_KEY", secret=secret)

    assert refusal.value.details == {"variable": "THE_KEY"}
    assert service.seen == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("openai://api.example/v1/model", "required field `dimensions`"),
        ("openai://api.example/v1/model?dimensions=0", "dimensions"),
        ("openai://api.example?dimensions=2", "must name a host and a model"),
        ("openai:///v1/model?dimensions=2", "must name a host and a model"),
        ("openai://user:key@api.example/v1/model?dimensions=2", "must not hold a user or a key"),
        ("openai://api.example:port/v1/model?dimensions=2", "malformed"),
        ("openai://api.example/v1/model?dimensions=2&api_key=k", "unknown field `api_key`"),
    ],
)
def test_a_service_url_that_makes_no_sense_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_embedder(url, secret=None)
