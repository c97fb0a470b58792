"""Long work that was asked for in words: awaited, through a crash of the server, and cancelled."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.server.conftest import Running, Serve

SITE = """
operations = ["work.py"]
[search]
embedder = "none:"
[store]
url = "{url}"
[anonymous]
scopes = ["ask", "read:*", "execute:*"]
danger = "reversible"
[collections.things]
"""

# Five minutes of work in three thousand steps; it goes on where it was.
WORK = '''
import asyncio
from portico.operations import tasks
from portico.operations import Context, operation

tasks.LEASE_SECONDS, tasks.RENEW_SECONDS = 5.0, 1.0  # what is left behind is taken up sooner


@operation(long=True, attempts=9, estimate=300.0)
async def recount_inventory(context: Context) -> dict[str, int]:
    """Count everything in the store rooms again."""
    for step in range(context.saved or 0, 3000):
        await context.progress(step / 3000, f"Shelf {step}", save=step)
        await asyncio.sleep(0.1)
    return {"counted": 3000}
'''


@pytest.fixture
def start(serve: Serve, tmp_path: Path, url: str) -> Callable[[], Running]:
    (tmp_path / "portico.toml").write_text(SITE.format(url=url))
    (tmp_path / "work.py").write_text(WORK)
    return lambda: serve("serve")


def post(server: Running, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    with httpx.Client(trust_env=False, timeout=30) as client:
        answer = client.post(f"http://127.0.0.1:{server.port}{path}", json=body)
    return answer.status_code, answer.json()


def look(server: Running, token: str, action: str = "checkin") -> tuple[int, dict[str, Any]]:
    return post(server, "/await", {"promise_token": token, "action": action, "meta": {"version": "0.55"}})


def look_until(server: Running, token: str, arrived: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        status, body = look(server, token)
        assert (status, body["_meta"]["response_type"]) == (202, "promise"), body
        if arrived(body["promise"]):
            return body["promise"]
        assert time.monotonic() < deadline, body
        time.sleep(0.05)


@requirement(
    "nlweb:await:running-promise",
    "nlweb:await:progress",
    "nlweb:await:cancelled-code",
    "nlweb:note:await-202",
    "nlweb:note:cancel-idempotent",
)
def test_a_task_of_five_minutes_is_awaited_through_a_crash_and_cancelled(start: Callable[[], Running]) -> None:
    server = start()
    status, body = post(server, "/ask", {"query": {"text": "Please recount the inventory"}})
    assert (status, body["_meta"]["response_type"]) == (202, "promise"), body
    assert body["promise"]["estimated_time"] == 300
    token = body["promise"]["token"]
    before = look_until(server, token, lambda promise: promise["progress"] > 2 / 3000)
    assert before["message"].startswith("Shelf")

    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    again = start()

    after = look_until(again, token, lambda promise: promise["progress"] > before["progress"])
    assert after["progress"] > before["progress"]
    cancelled = look(again, token, "cancel")
    assert (cancelled[0], cancelled[1]["_meta"]["response_type"], cancelled[1]["error"]["code"]) == (
        200,
        "failure",
        "CANCELLED",
    )
    assert [look(again, token, action)[1]["error"]["code"] for action in ("checkin", "cancel")] == ["CANCELLED"] * 2
