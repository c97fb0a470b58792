"""Callers that want to be told of the end of their tasks: what they get, from whom, how often, and when nothing."""

import asyncio
import datetime
import hashlib
import hmac
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn

from portico.config import ca_file_of
from portico.errors import ConfigError, RateLimited
from portico.operations.webhooks import WebhookClient
from portico.protocols import parse_config
from portico.protocols.nwp.actions import describe_task
from portico.protocols.nwp.callbacks import HostRateLimit, TaskCallbacks
from portico.requests import Call, Caller, Task
from portico.server.assembly import Parts
from portico.server.http import application
from portico.telemetry import UnexpectedError

OWN = '''
from portico.errors import Conflict
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def paint_house(context: Context, coats: int = 1) -> dict[str, int]:
    """Paint the house."""
    if not coats:
        raise Conflict("Nothing to do")
    return {"coats": coats}
'''
SOMEBODY = Caller("oauth:1:somebody", "somebody", frozenset({"execute:*"}))
ID = "5b4a4a0e-6f6e-4a8c-9c0a-0d5f1e2d3c4b"


@cache
def certificate() -> tuple[bytes, bytes]:
    """A key and a certificate of this machine, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    at = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(now - day).not_valid_after(now + day).add_extension(at, critical=False)
    signed = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
        key, hashes.SHA256()
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, signed.public_bytes(serialization.Encoding.PEM)


@dataclass
class Receiver:
    """Somebody who is told, over TLS, and refuses a few times."""

    refusals: int = 0
    url: str = ""
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        self.heard.append((lines, await reader.readexactly(int(lines["content-length"]))))
        status = "503 Not now" if len(self.heard) <= self.refusals else "204 Thanks"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(tmp_path: Path, refusals: int = 0) -> AsyncIterator[Receiver]:
    private, public = certificate()
    (tmp_path / "server.pem").write_bytes(private + public)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem")
    receiver = Receiver(refusals)
    async with await asyncio.start_server(receiver.answer, "127.0.0.1", 0, ssl=tls) as server:
        receiver.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/told?token=t"
        yield receiver


@dataclass
class Telling:
    """A site that tells of tasks, and knows when it is through with one."""

    parts: Parts
    notices: TaskCallbacks
    seen: list[Any]

    async def run(self, url: str, **params: Any) -> Task:
        call = Call("paint_house", params, "later", request=ID, callback=url)
        task = await self.parts.site.call(call, SOMEBODY)
        assert isinstance(task, Task)
        return await self.parts.site.tasks.wait(task.id, SOMEBODY, 60)


@asynccontextmanager
async def telling(
    inn: Inn, tmp_path: Path, *allowed: str, pause: float = 0, trusted: bool = True, **nwp: Any
) -> AsyncIterator[Telling]:
    (tmp_path / "own.py").write_text(OWN)
    tls = ssl.create_default_context(cadata=certificate()[1].decode() if trusted else None)
    seen: list[Any] = []
    async with inn(operations=["own.py"], nwp=nwp) as parts:
        callbacks, pauses = WebhookClient(allowed, tls), (pause, pause)
        notices = TaskCallbacks(parts.site, callbacks, lambda _: "ed25519:node", parts.config, seen.append, pauses)
        try:
            yield Telling(parts, notices, seen)
        finally:
            await notices.close()


async def until(reached: Any) -> None:
    async with asyncio.timeout(10):
        while not reached():
            await asyncio.sleep(0.01)


@requirement("nwp:callback:body", "nwp:callback:retries")
async def test_the_end_of_a_task_is_told_until_it_is_heard(
    inn: Inn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "word")
    secret = {"callback_secret": "HOOK_SECRET"}
    async with receiving(tmp_path, 2) as receiver, telling(inn, tmp_path, "127.0.0.1", **secret) as site:
        task = await site.run(receiver.url, coats=2)
        await until(lambda: len(receiver.heard) == 3)

    headers, body = receiver.heard[-1]
    assert json.loads(body) == describe_task(task)
    assert (json.loads(body)["status"], json.loads(body)["result"]) == ("completed", {"coats": 2})
    assert headers["x-nwp-signature"] == f"sha256={hmac.new(b'word', body, hashlib.sha256).hexdigest()}"
    assert (headers["x-nwp-request-id"], headers["content-type"]) == (ID, "application/json")
    assert headers.keys() & {"authorization", "x-api-key", "x-nwp-agent", "x-nwp-ident", "cookie"} == set()
    assert [each for _, each in receiver.heard] == [body] * 3
    assert site.seen == []


@requirement("nwp:callback:retries")
async def test_whoever_does_not_listen_is_given_up_after_three_times_and_the_task_stays_as_it_is(
    inn: Inn, tmp_path: Path
) -> None:
    async with receiving(tmp_path, refusals=99) as receiver, telling(inn, tmp_path, "127.0.0.1") as site:
        task = await site.run(receiver.url, coats=0)
        await until(lambda: site.seen)
        after = await site.parts.site.tasks.get(task.id, SOMEBODY)

    assert site.seen == [UnexpectedError("nwp callback", "127.0.0.1 did not accept a callback: 503")]
    assert [headers["x-nwp-signature"] for headers, _ in receiver.heard] == ["ed25519:node"] * 3
    told = json.loads(receiver.heard[0][1])
    assert (told["status"], told["result"]) == ("failed", None)
    assert told["error"] == {"code": "NPS-CLIENT-CONFLICT", "message": "Nothing to do"}
    assert after == task


@requirement("nwp:callback:https", "nwp:callback:private")
async def test_an_address_is_looked_at_again_when_a_message_is_sent(inn: Inn, tmp_path: Path) -> None:
    async with telling(inn, tmp_path, "127.0.0.1") as site:
        for number, url in enumerate(("http://127.0.0.1:9/", "https://10.0.0.1/", "https://localhost/"), 1):
            await site.run(url)
            await until(lambda most=number: len(site.seen) == most)

    assert [each.error for each in site.seen] == [
        "127.0.0.1 did not accept a callback: BadRequest",
        "10.0.0.1 did not accept a callback: BadRequest",
        "localhost did not accept a callback: BadRequest",
    ]


@requirement("nwp:callback:private-ca")
async def test_a_receiver_whose_authority_nobody_trusts_is_named_with_the_reason_of_tls(
    inn: Inn, tmp_path: Path
) -> None:
    async with receiving(tmp_path) as receiver, telling(inn, tmp_path, "127.0.0.1", trusted=False) as site:
        await site.run(receiver.url)
        await until(lambda: site.seen)

    (event,) = site.seen
    assert event.error.startswith(
        "127.0.0.1 did not accept a callback: TLS: the certificate is not trusted: self-signed certificate"
    )
    assert "token" not in event.error
    assert receiver.heard == []


@requirement("nwp:callback:private-ca")
async def test_the_authority_of_a_receiver_is_trusted_where_the_site_file_names_it(inn: Inn, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "ca.pem").write_bytes(certificate()[1])
    settings: dict[str, Any] = {"operations": ["own.py"], "allow_hosts": ["127.0.0.1"], "ca_file": "ca.pem"}
    anybody = {"scopes": ["execute:*"]}
    async with receiving(tmp_path) as receiver, inn(**settings, anonymous=anybody) as parts:
        app = application(parts)
        app.begin()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inn.example") as client:
            action = {"action_id": "site.paint_house", "async": True, "callback_url": receiver.url}
            begun = await client.post("/nwp/operations/invoke", json=action)
            await until(lambda: receiver.heard)
        await app.close()

    assert json.loads(receiver.heard[0][1])["task_id"] == begun.json()["task_id"]


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"nothing", "no certificate")])
def test_a_file_without_authorities_is_told_at_the_start(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)

    with pytest.raises(ConfigError, match=f"ca_file: .*ca.pem cannot be used: .*{reason}"):
        ca_file_of(parse_config({"ca_file": "ca.pem", "folder": str(tmp_path)}))


async def test_a_site_that_stops_tells_nothing_more(inn: Inn, tmp_path: Path) -> None:
    async with receiving(tmp_path, 99) as receiver, telling(inn, tmp_path, "127.0.0.1", pause=60) as site:
        await site.run(receiver.url)
        await until(lambda: receiver.heard)
        async with asyncio.timeout(10):
            await site.notices.close()
        await site.run(receiver.url)

    assert (len(receiver.heard), site.seen) == (1, [])


def test_a_host_gets_only_so_many_messages_in_a_minute() -> None:
    now = [0.0]
    pace = HostRateLimit(2, lambda: now[0])
    for host in ("a.example", "a.example", "b.example"):
        pace.take(host)
    with pytest.raises(RateLimited):
        pace.take("a.example")

    now[0] = 60.0
    pace.take("a.example")
