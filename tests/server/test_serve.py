"""`portico serve` and `portico demo`: what they say, what they answer, how they stop."""

import json
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.server.conftest import Running, Serve

from portico.protocols import parse_config, protocols

SITE = """
[site]
name = "The <Inn> & Stable"
[search]
embedder = "none:"
[store]
url = "{url}"
[[source]]
url = "rooms.jsonl"
[collections.ledger]
private = true
"""


@pytest.fixture
def inn(serve: Serve, tmp_path: Path, url: str) -> Running:
    (tmp_path / "portico.toml").write_text(SITE.format(url=url))
    (tmp_path / "rooms.jsonl").write_text('{"id": "attic", "name": "<b>Attic</b>"}\n')
    return serve("serve", "--load")


def ready(server: Running) -> dict:
    deadline = time.monotonic() + 60
    while True:
        status, body, _ = server.get("/readyz")
        if status == 200:
            return json.loads(body)
        assert status == 503
        assert time.monotonic() < deadline, body
        time.sleep(0.05)


def test_a_server_answers_on_all_its_addresses_and_stops_when_told(inn: Running) -> None:
    status, body, _ = inn.get("/healthz")
    assert (status, json.loads(body)["status"]) == (200, "ok")

    said = {"ready": True, "current": True, "behind": 0, "collections": {"rooms": {"items": 1, "embedded": 0}}}
    assert ready(inn) == said

    status, metrics, headers = inn.get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert "portico_seconds" in metrics

    status, page, headers = inn.get("/")
    assert status == 200
    assert "The &lt;Inn&gt; &amp; Stable" in page
    assert "<Inn>" not in page
    assert "rooms" in page
    assert "ledger" not in page
    assert "default-src 'none'" in headers["content-security-policy"]

    assert inn.get("/nothing")[0] == 404

    code, err = inn.stop(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err


def test_a_server_prints_an_address_and_a_curl_line_for_every_protocol(inn: Running) -> None:
    base = f"http://127.0.0.1:{inn.port}"
    text = "\n".join(inn.announced)

    assert "The <Inn> & Stable is running" in text
    examples = [example for protocol in protocols() for example in protocol.examples(parse_config({}))]
    assert {"NLWeb", "MCP", "A2A", "NWP", "MCP-AQL", "AI Chat", "Home page"} <= {example.title for example in examples}
    for example in examples:
        assert re.search(rf"{re.escape(example.title)} +{re.escape(base + example.path)}", text), example
        assert example.command.format(base=base) in text


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopping_is_clean_and_a_second_start_works(serve: Serve, tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "portico.toml").write_text('[search]\nembedder = "none:"\n')
    port = free_port()
    for _ in range(2):
        server = serve(port=port)
        assert server.get("/healthz")[0] == 200
        code, err = server.stop(how)

        assert code == 0, err
        assert "Traceback" not in err
        assert not list(tmp_path.glob("*.db-wal")), "the store was not closed"


def test_a_port_in_use_is_said_plainly(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text('[search]\nembedder = "none:"\n')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = serve(port=port)
        _, err = server.process.communicate(timeout=60)

    assert server.process.returncode == 6
    assert "Traceback" not in err
    assert str(port) in err
    assert "in use" in err
    assert server.announced == []


def test_with_port_zero_the_printed_address_is_the_real_one(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text('[search]\nembedder = "none:"\n')

    server = serve("serve", "--port", "0")

    found = re.search(r"http://127\.0\.0\.1:(\d+)/healthz", "\n".join(server.announced))
    assert int(found[1]) != 0
    server.port = int(found[1])
    assert server.get("/healthz")[0] == 200


def test_the_demo_loads_serves_and_starts_again_in_seconds(serve: Serve, tmp_path: Path) -> None:
    first = serve("demo")
    collections = ready(first)["collections"]
    assert sum(each["items"] for each in collections.values()) >= 400
    assert "Merrow Bay" in first.get("/")[1]
    first.stop(signal.SIGINT)
    assert (tmp_path / ".portico" / "demo.db").is_file()

    started = time.monotonic()
    second = serve("demo")
    ready(second)
    assert time.monotonic() - started < 60
    code, err = second.stop(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err


SLOW = '''
"""An operation that waits for longer than a server does."""
import asyncio
from pathlib import Path
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def wait(context: Context) -> str:
    """Waits."""
    Path("waiting").touch()
    await asyncio.sleep(600)
    return "done"
'''


def test_a_request_that_outlasts_the_stop_gets_a_503_and_the_log_stays_json(serve: Serve, tmp_path: Path) -> None:
    settings = 'operations = ["own.py"]\n[anonymous]\nscopes = ["*:*"]\n[search]\nembedder = "none:"\n'
    (tmp_path / "portico.toml").write_text(settings)
    (tmp_path / "own.py").write_text(SLOW)
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        body = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        client.sendall(b"POST /operations/wait HTTP/1.1\r\n" + body)
        while not (tmp_path / "waiting").exists():
            time.sleep(0.05)

        code, err = server.stop(signal.SIGTERM)
        head, _, problem = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")

    assert code == 0
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5" in head.lower()
    assert b"application/problem+json" in head
    assert json.loads(problem)["detail"] == "The server is shutting down"
    events = [json.loads(line) for line in err.splitlines()]
    assert [each["requests"] for each in events if each["event"] == "Cancelled"] == [1]
    assert not [each for each in events if each["event"] == "Broke"]


def test_requests_that_are_not_http_are_logged_as_json_once_a_second_at_most(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text('[search]\nembedder = "none:"\n')
    server = serve()
    began = time.monotonic()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    most = time.monotonic() - began + 1

    _, err = server.stop(signal.SIGTERM)

    events = [json.loads(line) for line in err.splitlines()]
    assert {each["event"] for each in events} == {"Refused"}
    assert {each["what"] for each in events} == {"http"}
    assert 1 <= len(events) <= most
