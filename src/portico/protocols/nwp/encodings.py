"""Detects how a request body is encoded, which is how its response will be: a frame, or bare JSON or MessagePack."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from portico.errors import BadRequest
from portico.protocols.nwp.errors import MEMBERS, frame_problem
from portico.protocols.nwp.frames import (
    FRAMES,
    LARGEST,
    LARGEST_EXTENDED,
    MAX_ID,
    ActionFrame,
    EncodingTier,
    Frame,
    FrameError,
    FrameType,
    TaskFrame,
    decode,
    decode_any,
    decode_as,
    encode,
    encode_value,
    whole_header,
)

CAPSULE: Final = "application/nwp-capsule"
# The specified media type; the profile is for clients that look for their own type in it.
FRAMED_CAPSULE: Final = f'{CAPSULE}; profile="application/nwp-frame application/x-nps-frame"'
TASK: Final = f"0x{FrameType.TASK:x}"
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))  # first bytes of a MessagePack object


@dataclass(frozen=True, slots=True)
class FrameEncoding:
    """The tier of a body, and whether it is a frame with a header."""

    tier: EncodingTier
    is_framed: bool

    @property
    def largest(self) -> int | None:
        return LARGEST if self.is_framed else None

    def body(self, frame: Frame, *, is_final: bool = True) -> bytes:
        return encode(frame, self.tier, is_final=is_final) if self.is_framed else encode_value(frame, self.tier)

    @property
    def media_type(self) -> str:
        return FRAMED_CAPSULE if self.is_framed else CAPSULE


BARE: Final = FrameEncoding(EncodingTier.JSON, is_framed=False)


def _is_framed(body: bytes) -> bool:
    """Return whether a body is a frame: its first byte begins neither JSON nor a MessagePack map."""
    if not body or body[0] not in {
        FrameType.QUERY,
        FrameType.ACTION,
        FrameType.SUBSCRIBE,
        FrameType.ANCHOR,
        FrameType.IDENT,
        FrameType.TASK,
    }:
        return bool(body) and body[0] not in b"{ \t\r\n" and body[0] not in _MAPS
    # 0x20 is also a space, which JSON may follow.
    return body[0] != FrameType.IDENT or not body.lstrip().startswith(b"{")


def read_frame(body: bytes, kind: type[Frame], largest: int = LARGEST_EXTENDED) -> tuple[Frame, FrameEncoding]:
    """Decode a body, and tell its encoding. The payload may have `largest` bytes."""
    try:
        if not body:
            raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "The body is empty")
        if not _is_framed(body):
            tier = _tier_of(body)
            return _decode_bare(kind, body, tier), FrameEncoding(tier, is_framed=False)
        if body[0] not in FRAMES:  # before its second byte is taken for flags
            raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "The body is neither JSON, nor MessagePack, nor a frame")
        frame = decode(body, largest)
        if not isinstance(frame, (ActionFrame, TaskFrame) if kind is ActionFrame else kind):
            raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"A frame of type 0x{frame.TYPE:02X} is not accepted here")
        return frame, FrameEncoding(EncodingTier(body[1] & 1), is_framed=True)
    except FrameError as error:
        raise frame_problem(error, MEMBERS.get(kind, BadRequest)) from error


def encode_header_id(id: str) -> str:
    """Return an id as a header value, with everything but printable ASCII percent-encoded."""
    return id if id.isascii() and id.isprintable() else quote(id, safe=_PRINTABLE)


def request_id_of(body: bytes) -> str | None:
    """Return the request id of a body that may be invalid otherwise."""
    try:
        if _is_framed(body):
            header = whole_header(body)
            payload = decode_any(body[header.size :], header.tier)
        else:
            payload = decode_any(body, _tier_of(body))
    except FrameError:
        return None
    match payload:
        case {"request_id": str(id)} if len(id) <= MAX_ID:
            return id
        case _:
            return None


def _tier_of(body: bytes) -> EncodingTier:
    """Return the tier of a body without a header."""
    return EncodingTier.MSGPACK if body and body[0] in _MAPS else EncodingTier.JSON


def _decode_bare(kind: type[Frame], body: bytes, tier: EncodingTier) -> Frame:
    """Decode a body without a header. In place of an ActionFrame it may be a TaskFrame."""
    try:
        return decode_as(kind, body, tier)
    except FrameError:
        if kind is not ActionFrame or not _is_task(body, tier):
            raise
        return decode_as(TaskFrame, body, tier)


def _is_task(body: bytes, tier: EncodingTier) -> bool:
    """Return whether a payload that is no ActionFrame is a TaskFrame: by its `frame`, or its `dag`."""
    match decode_any(body, tier):
        case {"action_id": _}:
            return False
        case {"frame": str(frame)}:
            return frame.lower() == TASK
        case {"frame": int(frame)}:
            return frame == FrameType.TASK
        case {"dag": _}:
            return True
        case _:
            return False
