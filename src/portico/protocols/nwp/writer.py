"""Writes frames to a native connection: encodes them within the agreed size, and waits for an agent to read."""

import asyncio
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from portico.errors import SiteError
from portico.protocols.nwp.errors import error_frame, frame_problem
from portico.protocols.nwp.fitting import fit_change
from portico.protocols.nwp.frames import LARGEST, DiffFrame, Frame, FrameError, encode
from portico.protocols.nwp.handshake import SessionTerms

RequestTag: TypeAlias = Mapping[str, str]  # the member that names the request of an error: request_id or stream_id


class FrameWriter:
    """Writes to the connection of one session."""

    def __init__(self, terms: SessionTerms, seconds: float) -> None:
        self.tier = terms.tier
        self.last_write = 0.0  # in the time of the event loop
        self._payload = terms.payload
        self._seconds = seconds  # to read something of what was written before
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport

    def connect(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def pause(self) -> None:
        self._writable.clear()

    def resume(self) -> None:
        self._writable.set()

    def encode(self, frame: Frame, *, is_final: bool = True) -> bytes:
        try:
            return encode(frame, self.tier, is_final=is_final, largest=self._payload)
        except FrameError as error:
            raise frame_problem(error) from error

    def encode_change(self, frame: Frame) -> bytes:
        """Encode a change without the values that do not fit into a frame, so that later changes can follow."""
        try:
            return encode(frame, self.tier, largest=self._payload)
        except FrameError:
            if not isinstance(frame, DiffFrame):
                raise
            return self.encode(fit_change(frame, self._payload, self.tier))

    def encode_error(self, error: SiteError, tag: RequestTag) -> bytes:
        """Encode an error. Agents of 0.4 look for the request in its details."""
        frame = error_frame(error, tag.get("request_id"))
        try:
            return encode(msgspec.structs.replace(frame, details={**frame.details, **tag}), self.tier)
        except OverflowError:  # a number that came in JSON, and is too large for MessagePack
            return encode(msgspec.structs.replace(frame, details={**tag}), self.tier)

    async def send(self, encoded: bytes) -> None:
        """Write once the agent has read most of what was written before. Aborts the connection if it stops reading."""
        if not self._writable.is_set():
            await self.wait_writable()
        self.last_write = self._loop.time()
        self.write(encoded)

    async def wait_writable(self) -> None:
        while not self._writable.is_set():
            unread = self._transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._writable.wait()
            except TimeoutError:
                # A large frame takes a while on a slow line: an agent that reads on is waited for.
                if unread - self._transport.get_write_buffer_size() < LARGEST:
                    self._transport.abort()
                    await self._loop.create_future()  # cancelled when the connection ends

    def write(self, encoded: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(encoded)
