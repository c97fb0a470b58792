"""How a request is written, and so its answer: a frame with its header, or bare JSON or MessagePack."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from portico.errors import BadRequest
from portico.protocols.nwp.errors import MEMBERS, unreadable
from portico.protocols.nwp.frames import (
    FRAMES,
    LARGEST,
    LARGEST_EXTENDED,
    MAX_ID,
    ActionFrame,
    Frame,
    FrameError,
    TaskFrame,
    Tier,
    Type,
    decode,
    decode_any,
    decode_as,
    encode,
    encode_value,
    whole_header,
)

CAPSULE: Final = "application/nwp-capsule"
# The type as specified; the profile is for clients that look for their own word in it.
FRAMED_CAPSULE: Final = f'{CAPSULE}; profile="application/nwp-frame application/x-nps-frame"'
TASK: Final = f"0x{Type.TASK:x}"
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))  # first bytes of a MessagePack object


@dataclass(frozen=True, slots=True)
class Form:
    """How a request was written, and so how its answer will be."""

    tier: Tier
    is_framed: bool

    @property
    def largest(self) -> int | None:
        return LARGEST if self.is_framed else None

    def body(self, frame: Frame, *, is_final: bool = True) -> bytes:
        return encode(frame, self.tier, is_final=is_final) if self.is_framed else encode_value(frame, self.tier)

    @property
    def media_type(self) -> str:
        return FRAMED_CAPSULE if self.is_framed else CAPSULE


BARE: Final = Form(Tier.JSON, is_framed=False)


def _is_framed(body: bytes) -> bool:
    """Whether bytes are meant as a frame: their first one begins neither JSON nor a map of MessagePack."""
    if not body or body[0] not in {Type.QUERY, Type.ACTION, Type.SUBSCRIBE, Type.ANCHOR, Type.IDENT, Type.TASK}:
        return bool(body) and body[0] not in b"{ \t\r\n" and body[0] not in _MAPS
    # 0x20 is a space too, and then JSON follows.
    return body[0] != Type.IDENT or not body.lstrip().startswith(b"{")


def read_frame(body: bytes, kind: type[Frame], largest: int = LARGEST_EXTENDED) -> tuple[Frame, Form]:
    """The frame that bytes are, and how it was written. Its payload has `largest` bytes at most."""
    try:
        if not body:
            raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "There is nothing to read: the body is empty")
        if not _is_framed(body):
            tier = _tier_of(body)
            return _bare(kind, body, tier), Form(tier, is_framed=False)
        if body[0] not in FRAMES:  # before its second byte is taken for flags
            raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "This is neither JSON nor MessagePack, nor a frame")
        frame = decode(body, largest)
        if not isinstance(frame, (ActionFrame, TaskFrame) if kind is ActionFrame else kind):
            raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"A frame of type 0x{frame.TYPE:02X} is not read here")
        return frame, Form(Tier(body[1] & 1), is_framed=True)
    except FrameError as error:
        raise unreadable(error, MEMBERS.get(kind, BadRequest)) from error


def header_form(id: str) -> str:
    """Return an id as a header can have it: what is not printable ASCII is percent-encoded."""
    return id if id.isascii() and id.isprintable() else quote(id, safe=_PRINTABLE)


def request_id_of(body: bytes) -> str | None:
    """The id that a request has by its body, though what else it says may be of no use."""
    try:
        if _is_framed(body):
            header = whole_header(body)
            said = decode_any(body[header.size :], header.tier)
        else:
            said = decode_any(body, _tier_of(body))
    except FrameError:
        return None
    match said:
        case {"request_id": str(id)} if len(id) <= MAX_ID:
            return id
        case _:
            return None


def _tier_of(body: bytes) -> Tier:
    """Of an object without a header."""
    return Tier.MSGPACK if body and body[0] in _MAPS else Tier.JSON


def _bare(kind: type[Frame], body: bytes, tier: Tier) -> Frame:
    """A frame without a header. Where actions are invoked it may be a whole task, as it may be with one."""
    try:
        return decode_as(kind, body, tier)
    except FrameError:
        if kind is not ActionFrame or not _is_task(body, tier):
            raise
        return decode_as(TaskFrame, body, tier)


def _is_task(body: bytes, tier: Tier) -> bool:
    """Whether an object that is no action is meant as a task: it says so, or has its steps."""
    match decode_any(body, tier):
        case {"action_id": _}:
            return False
        case {"frame": str(said)}:
            return said.lower() == TASK
        case {"frame": int(said)}:
            return said == Type.TASK
        case {"dag": _}:
            return True
        case _:
            return False
