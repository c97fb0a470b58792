"""A site with its native port, and an agent that speaks to it natively."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec import structs
from tests.protocols.conftest import ROOMS

from portico.protocols import parse_config
from portico.protocols.nwp.frames import EncodingTier, Frame, HelloFrame, decode, decode_any, encode, read_header
from portico.protocols.nwp.native import NativePort, NativeTimeouts
from portico.server.assembly import Parts, open_site
from portico.server.http import Serving, application, bind_listeners, server_settings
from portico.store.records import Put

PREAMBLE = b"NPS/1.0\n"


@dataclass(frozen=True)
class Ports:
    http: int
    native: int


@dataclass(frozen=True)
class Open:
    """A site that is served."""

    parts: Parts
    ports: Ports


@asynccontextmanager
async def opened_inn(folder: Path, **said: Any) -> AsyncIterator[Parts]:
    settings = {"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}, "folder": str(folder)}
    async with open_site(parse_config({**settings, **said})) as parts:
        await parts.store.collections.declare(parts.config.collection("rooms"))
        await parts.store.items.write("rooms", [Put(id, data) for id, data in ROOMS.items()])
        await parts.index.sync(await parts.store.changes.head())
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def native_inn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    """The inn, served once for all tests of a module that run in its loop; anybody may do everything there."""
    anonymous = {"scopes": ["ask", "*:*"], "danger": "dangerous"}
    async with opened_inn(tmp_path_factory.mktemp("inn"), anonymous=anonymous) as parts, serving(parts) as ports:
        yield Open(parts, ports)


@asynccontextmanager
async def serving(parts: Parts, patience: NativeTimeouts | None = None) -> AsyncIterator[Ports]:
    """Where a real server of a site listens, natively too. Leaving stops it as an operator does."""
    server = structs.replace(parts.config.server, port=0, nwp_port=0)
    config, listeners = bind_listeners(structs.replace(parts.config, server=server))
    parts = replace(parts, config=config)
    app = application(parts)
    running = Serving(server_settings(parts, app), app)
    with pytest.MonkeyPatch.context() as patch:
        if patience:
            patch.setattr("portico.protocols.nwp.routes.NativePort", partial(NativePort, timeouts=patience))
        running.listen_natively(listeners.native)
    work = asyncio.create_task(running.serve(sockets=[listeners.http]))
    try:
        async with asyncio.timeout(10):
            while not running.started:
                await asyncio.sleep(0.01)
        yield Ports(config.server.port, config.server.nwp_port)
    finally:
        running.should_exit = True
        await work


class Native:
    """An agent with a connection. Whatever it waits for takes seconds at most."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tier: EncodingTier) -> None:
        self.reader = reader
        self.writer = writer
        self.tier = tier
        self.said: Any = None  # the last payload, as an object

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> "Native":
        """One that has said nothing yet."""
        named = "localhost" if tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, server_hostname=named, local_addr=(address, 0)
        )
        return cls(reader, writer, EncodingTier.JSON)

    @classmethod
    async def open(
        cls,
        port: int,
        encodings: Sequence[str] = ("msgpack", "json"),
        preamble: bool = False,
        tls: ssl.SSLContext | None = None,
        **said: Any,
    ) -> "Native":
        """One that has said Hello, and was answered."""
        agent = await cls.connect(port, tls)
        if preamble:
            agent.writer.write(PREAMBLE)
        hello = {"nps_version": "0.4", "supported_protocols": ["ncp", "nwp"], **said}
        await agent.send(HelloFrame(supported_encodings=list(encodings), **hello))
        await agent.receive()
        return agent

    async def send(self, frame: Frame) -> None:
        await self.send_raw(encode(frame, self.tier))

    async def send_raw(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def receive(self) -> Frame:
        """The next frame. What it is written in is what is spoken from then on."""
        async with asyncio.timeout(10):
            head = await self.reader.readexactly(4)
            if head[1] & 0x80:
                head += await self.reader.readexactly(4)
            header = read_header(head)
            payload = await self.reader.readexactly(header.length)
        self.tier, self.said = header.tier, decode_any(payload, header.tier)
        return decode(head + payload)

    async def ask(self, frame: Frame) -> Frame:
        await self.send(frame)
        return await self.receive()

    async def last_words(self) -> bytes:
        """What is sent before the server closes the connection."""
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> "Native":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def tls_files(folder: Path) -> dict[str, str]:
    """Make one for localhost; where it is."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "inn")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "inn.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "inn.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return {"tls_certificate": "inn.pem", "tls_key": "inn.key"}
