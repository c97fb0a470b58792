"""NCP frames: a header, and a payload in JSON or MessagePack. Knows bytes and types; nothing of a site.

Nothing here trusts a length: what a header says is compared with what is there before anything is made of it. The
records of an answer are let be until somebody looks at them: much of what is done with answers needs none.
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from keyword import iskeyword
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast, overload

import msgspec
from msgspec import Meta

LARGEST: Final = 0xFFFF  # bytes of a payload behind a header of four bytes
LARGEST_EXTENDED: Final = 0xFFFFFFFF
VERSION: Final = "0.4"  # of NWP, NCP and what else a session speaks

_EXTENDED = 0x80
_ENCRYPTED = 0x08
_FINAL = 0x04
_TIER = 0x03
_SHORT = struct.Struct(">BBH")
_HEAD = struct.Struct(">HH")  # the same, type and flags as one number
_LONG = struct.Struct(">BBIH")

MAX_ID: Final = 255  # characters of what an agent calls a request or a stream

Id = Annotated[str, Meta(max_length=MAX_ID, pattern=r"\A[^\0]*\Z")]
Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # what both tiers can write
T = TypeVar("T", bound="Frame")


class FrameError(ValueError):
    """Bytes that are no frame, or a frame that says something impossible. `code` is NCP's."""

    def __init__(self, code: str, message: str, where: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.where = where  # the member that is wrong, as in $.limit; empty if it is the whole


class Tier(IntEnum):
    """How a payload is written."""

    JSON = 0
    MSGPACK = 1

    __hash__ = int.__hash__  # that of an Enum is written in Python, and records are kept by their tier

    @property
    def token(self) -> str:
        """Its name in a handshake."""
        return self.name.lower()


_TIERS: Final = tuple(Tier)


class Type(IntEnum):
    ANCHOR = 0x01
    DIFF = 0x02
    STREAM = 0x03
    CAPS = 0x04
    HELLO = 0x06
    QUERY = 0x10
    ACTION = 0x11
    SUBSCRIBE = 0x12
    IDENT = 0x20
    TASK = 0x40
    ERROR = 0xFE


class Header(msgspec.Struct, frozen=True):
    """The first bytes of a frame: four of them, or eight if it is extended."""

    type: int
    tier: Tier
    length: int  # of the payload
    is_final: bool = True
    is_encrypted: bool = False
    is_extended: bool = False

    @property
    def size(self) -> int:
        return _LONG.size if self.is_extended else _SHORT.size

    @property
    def flags(self) -> int:
        said = (_EXTENDED * self.is_extended, _ENCRYPTED * self.is_encrypted, _FINAL * self.is_final)
        return sum(said) | self.tier

    def encode(self) -> bytes:
        if self.length > (LARGEST_EXTENDED if self.is_extended else LARGEST):
            raise _too_large(self.length, LARGEST)
        if self.is_extended:
            return _LONG.pack(self.type, self.flags, self.length, 0)
        return _SHORT.pack(self.type, self.flags, self.length)


def read_header(raw: bytes | memoryview, body: int | None = None) -> Header | None:
    """The header that bytes begin with; None if more are needed to tell. `body` is how many follow, if that is known.

    Two layouts of the extended header exist; where they differ the specification's is read before the other, and what
    stays in doubt is decided by the number of bytes that follow.
    """
    if len(raw) < _SHORT.size:
        return None
    said: tuple[int, int, int] = _SHORT.unpack_from(raw)
    kind, flags, length = said
    if flags & _TIER > Tier.MSGPACK:
        raise FrameError("NCP-FRAME-FLAGS-INVALID", f"Payloads of tier {flags & _TIER:02b} are not known")
    is_extended = bool(flags & _EXTENDED)
    if is_extended:
        if len(raw) < _LONG.size:
            return None
        length = _extended_length(raw, body)
    tier = _TIERS[flags & _TIER]
    return Header(kind, tier, length, bool(flags & _FINAL), bool(flags & _ENCRYPTED), is_extended=is_extended)


def _extended_length(raw: bytes | memoryview, body: int | None) -> int:
    specified: int = _LONG.unpack_from(raw)[2]
    other: int = struct.unpack_from(">I", raw, 4)[0]
    has_high = bool(raw[2] or raw[3])
    if has_high or not other:
        return specified
    # [type, flags, 0, 0, length in four bytes], as several libraries write it.
    is_other = bool(raw[6] or raw[7]) or (specified != body and other == body)
    return other if is_other else specified


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="frame"):
    """What a payload holds. `frame` is written as text, since signatures cover that; unknown members are let be."""

    TYPE: ClassVar[Type]


class AnchorFrame(Frame, frozen=True, kw_only=True, tag="0x01"):
    """A schema and its name."""

    TYPE = Type.ANCHOR
    anchor_id: str
    schema: dict[str, Any]
    ttl: int = 3600  # seconds


class DiffFrame(Frame, frozen=True, kw_only=True, tag="0x02"):
    """A change, as a subscription tells it."""

    TYPE = Type.DIFF
    anchor_ref: str
    base_seq: int
    patch: Any  # of another format than JSON Patch it may be bytes
    patch_format: str | None = None
    entity_id: str | None = None
    stream_id: str | None = None
    seq: int | None = None
    event_type: str | None = None
    timestamp: str | None = None
    trimmed: dict[str, Any] | None = None  # what was left out of the patch


class StreamFrame(Frame, frozen=True, kw_only=True, tag="0x03"):
    """A part of a long answer."""

    TYPE = Type.STREAM
    stream_id: str
    seq: int
    is_last: bool
    data: Any  # as of an answer
    anchor_ref: str | None = None
    estimated_total: int | None = None
    request_id: str | None = None
    token_est: int | None = None
    trimmed: dict[str, Any] | None = None
    inline_anchor: AnchorFrame | None = None
    window_size: int | None = None
    error_code: str | None = None


class CapsFrame(Frame, frozen=True, kw_only=True, tag="0x04"):
    """An answer: so many records, and where to go on."""

    TYPE = Type.CAPS
    anchor_ref: str
    count: int
    data: Any  # a list; of a frame that came, Records
    next_cursor: str | None = None
    token_est: int | None = None
    tokenizer_used: str | None = None
    cached: bool | None = None
    inline_anchor: AnchorFrame | None = None
    request_id: str | None = None
    trimmed: dict[str, Any] | None = None
    graph: list[dict[str, Any]] | None = None


class AcceptedFrame(CapsFrame, frozen=True, kw_only=True, tag="0x04"):
    """An answer that promises one. Clients read what it says from the top, others from `data`."""

    task_id: str
    status: str
    poll_url: str
    estimated_ms: int


class WelcomeFrame(CapsFrame, frozen=True, kw_only=True, tag="0x04"):
    """The answer to a Hello, for readers of 0.4 in `data` and for later ones at the top."""

    node_id: str
    caps: list[str]
    nps_version: str
    session_version: str
    negotiated_encoding: str
    enabled_encodings: list[str]
    supported_protocols: list[str]
    max_frame_payload: int
    ext_support: bool
    max_concurrent_streams: int


class HelloFrame(Frame, frozen=True, kw_only=True, tag="0x06"):
    """How an agent begins a session."""

    TYPE = Type.HELLO
    nps_version: str
    supported_encodings: list[str]
    supported_protocols: list[str]
    min_version: str | None = None
    agent_id: str | None = None
    max_frame_payload: Natural | None = None
    ext_support: bool | None = None
    max_concurrent_streams: Natural | None = None
    e2e_enc_algorithms: list[str] | None = None


class OrderKey(msgspec.Struct, frozen=True):
    field: str
    dir: str | None = "ASC"

    @property
    def direction(self) -> str:
        return (self.dir or "ASC").upper()


class VectorSearch(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    vector: list[float]
    field: str | None = None
    top_k: int | None = None
    threshold: float | None = None
    metric: str | None = None


class QueryFrame(Frame, frozen=True, kw_only=True, tag="0x10"):
    TYPE = Type.QUERY
    anchor_ref: str | None = None
    auto_anchor: bool | None = None
    stream: bool | None = None
    aggregate: Any = None
    filter: Any = None
    fields: list[str] | None = None
    limit: Annotated[int, Meta(ge=0)] | None = None  # however large: there is a most
    cursor: str | None = None
    order: list[OrderKey] | None = None
    vector_search: VectorSearch | None = None
    token_budget: Natural | None = None
    tokenizer: str | None = None
    depth: Natural | None = None
    request_id: Id | None = None


class ActionFrame(Frame, frozen=True, kw_only=True, tag="0x11"):
    TYPE = Type.ACTION
    action_id: str
    params: dict[str, Any] | None = None
    idempotency_key: str | None = None
    timeout_ms: Natural | None = None
    is_async: bool | None = msgspec.field(default=None, name="async")
    callback_url: str | None = None
    priority: str | None = None
    request_id: Id | None = None


class SubscribeFrame(Frame, frozen=True, kw_only=True, tag="0x12"):
    TYPE = Type.SUBSCRIBE
    action: str
    stream_id: Id = ""  # required; without it a frame is refused by what it wants of the stream
    anchor_ref: str | None = None
    filter: Any = None
    heartbeat_interval: Natural | None = None
    resume_from_seq: Natural | None = None


class IdentFrame(Frame, frozen=True, kw_only=True, tag="0x20"):
    """A certificate. What was signed is the object as it came, so it is kept beside this."""

    TYPE = Type.IDENT
    nid: str


class TaskFrame(Frame, frozen=True, kw_only=True, tag="0x40"):
    """Steps for workers behind a gateway (NOP)."""

    TYPE = Type.TASK
    task_id: str
    dag: dict[str, Any] | None = None
    delegate_depth: Natural | None = None
    timeout_ms: Natural | None = None
    max_retries: Natural | None = None
    priority: str | None = None
    callback_url: str | None = None
    preflight: bool | None = None
    context: dict[str, Any] | None = None
    request_id: Id | None = None


class ErrorFrame(Frame, frozen=True, kw_only=True, tag="0xFE"):
    TYPE = Type.ERROR
    status: str
    error: str
    message: str = ""
    details: dict[str, Any] = {}
    request_id: str | None = None


FRAMES: Final[Mapping[int, type[Frame]]] = {
    each.TYPE: each
    for each in (
        AnchorFrame,
        DiffFrame,
        StreamFrame,
        CapsFrame,
        HelloFrame,
        QueryFrame,
        ActionFrame,
        SubscribeFrame,
        IdentFrame,
        TaskFrame,
        ErrorFrame,
    )
}


class Records(Sequence[Any]):  # noqa: PLW1641 - lists have no hash either
    """The records of a frame as they came. Whoever looks at the first of them has all of them read.

    What cannot be read, or is no list, raises a FrameError then, and not before.
    """

    __slots__ = ("_read", "raw", "tier")

    def __init__(self, raw: msgspec.Raw, tier: Tier) -> None:
        self.raw = raw
        self.tier = tier
        self._read: list[Any] | None = None

    def read(self) -> list[Any]:
        if self._read is None:
            found = decode_any(self.raw, self.tier)
            if not isinstance(found, list):
                raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "The records of a frame are a list", "$.data")
            self._read = cast("list[Any]", found)
        return self._read

    def __len__(self) -> int:
        return len(self.read())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read())

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        return self.read()[place]

    def __eq__(self, other: object) -> bool:
        return self.read() == (other.read() if isinstance(other, Records) else other)

    def __repr__(self) -> str:
        return repr(self.read())


def _as_it_comes(kind: type[Frame], tier: Tier) -> type[Frame]:
    """A kind of frame as it is read: without a look at its records, if it has any."""
    if "data" not in kind.__struct_fields__:
        return kind

    def leave_records(frame: CapsFrame | StreamFrame) -> None:
        if isinstance(frame.data, msgspec.Raw):
            msgspec.structs.force_setattr(frame, "data", Records(frame.data, tier))

    return _with_data(kind, msgspec.Raw, __post_init__=leave_records)


def _with_data(kind: type[Frame], data: Any, **methods: Any) -> type[Frame]:
    """A kind of frame whose records are read as this type."""
    made: Any = msgspec.defstruct(
        kind.__name__,
        [("data", data)],
        bases=(kind,),
        namespace={**methods, "__eq__": _is_same, "__ne__": _is_another},
        tag=kind.__struct_config__.tag,
        frozen=True,
        kw_only=True,
        eq=False,
    )
    return made


def _is_same(frame: Frame, other: object) -> bool:
    """Whether a frame that was read is one that was made."""
    if not isinstance(other, Frame) or other.TYPE != frame.TYPE:
        return False
    return msgspec.structs.asdict(frame) == msgspec.structs.asdict(other)


def _is_another(frame: Frame, other: object) -> bool:
    return not _is_same(frame, other)


def _written(value: Any) -> Any:
    """What stands for a value of ours in a payload."""
    if isinstance(value, Records):
        return value.read()
    raise TypeError(f"{type(value).__name__} cannot be sent")


# Decimals as numbers (notes of msgspec: they are texts else), so that both tiers carry the same object.
_TO_JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=_written)
_TO_MSGPACK = msgspec.msgpack.Encoder(decimal_format="number", enc_hook=_written)
_TO: Final = (_TO_JSON, _TO_MSGPACK)  # by tier
_FROM_JSON: Final[Mapping[type[Frame], msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(_as_it_comes(kind, Tier.JSON)) for kind in FRAMES.values()
}
_FROM_MSGPACK: Final[Mapping[type[Frame], msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(_as_it_comes(kind, Tier.MSGPACK)) for kind in FRAMES.values()
}
_ANY_JSON = msgspec.json.Decoder()
_ANY_MSGPACK = msgspec.msgpack.Decoder()


def _mark(kind: type[Frame], tier: Tier) -> int:
    """Type and flags of a final frame behind a short header."""
    return kind.TYPE << 8 | _FINAL | tier


# Who reads final frames, by type and flags.
_USUAL: Final[Mapping[int, Any]] = {
    _mark(kind, tier): decoder
    for kind in FRAMES.values()
    for tier, decoder in zip(_TIERS, (_FROM_JSON[kind], _FROM_MSGPACK[kind]), strict=True)
}


def encode_value(value: Any, tier: Tier) -> bytes:
    """A payload, or a part of one, as a tier writes it."""
    try:
        return _TO[tier].encode(value)
    except OverflowError:  # only MessagePack has an end of numbers
        return _TO_MSGPACK.encode(_within_64_bits(value))


def encode(frame: Frame, tier: Tier, *, is_final: bool = True, largest: int = LARGEST_EXTENDED) -> bytes:
    """A whole frame. It is extended only if it must be; one whose payload is larger than `largest` is refused."""
    try:
        payload = _TO[tier].encode(frame)
    except OverflowError:  # as of any value; a call of its own is dear beside small frames
        payload = encode_value(frame, tier)
    length = len(payload)
    if length > largest:
        raise _too_large(length, largest)
    if length <= LARGEST:
        return _SHORT.pack(frame.TYPE, tier | _FINAL if is_final else tier, length) + payload
    return Header(frame.TYPE, tier, length, is_final, is_extended=True).encode() + payload


def _within_64_bits(value: Any) -> Any:
    """The same with numbers that MessagePack can write: a whole one that is too large is the nearest that is not."""
    match value:
        case int() if not -(1 << 63) <= value < 1 << 64:
            return float(value) if abs(value) < 1 << 1023 else str(value)
        case list() | tuple() | Records():
            return [_within_64_bits(each) for each in cast("Sequence[Any]", value)]
        case dict():
            return {name: _within_64_bits(each) for name, each in cast("dict[Any, Any]", value).items()}
        case Frame():
            members = {name: _within_64_bits(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **members)
        case _:
            return value


def decode(raw: bytes, largest: int = LARGEST_EXTENDED) -> Frame:
    """The one frame that these bytes are."""
    frame = _read_quickly(raw, largest, _USUAL)
    if frame is not None:
        return frame
    header = whole_header(raw, largest)
    return decode_payload(header, memoryview(raw)[header.size :])


def _read_quickly(raw: bytes, largest: int, decoders: Mapping[int, Any]) -> Frame | None:
    """A final frame behind a short header, as nearly all are. None for any other, and for one that has a fault."""
    if len(raw) < _HEAD.size:
        return None
    head, length = _HEAD.unpack_from(raw)
    decoder = decoders.get(head)
    if decoder is None or length != len(raw) - _HEAD.size or length > largest:
        return None
    try:
        return decoder.decode(raw[_HEAD.size :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def whole_header(raw: bytes, largest: int = LARGEST_EXTENDED) -> Header:
    """The header of bytes that are one whole frame, with a payload that is not larger than `largest`."""
    header = read_header(raw, len(raw) - _LONG.size)
    if header and header.length > largest:
        raise _too_large(header.length, largest)
    if header and not header.is_extended and len(raw) - header.size > LARGEST:
        raise _too_large(len(raw) - header.size, LARGEST)  # the two bytes that it has cannot say so
    if header is None or header.size + header.length != len(raw):
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "The bytes are not one whole frame")
    return header


def decode_payload(header: Header, payload: bytes | memoryview) -> Frame:
    """What a payload holds, by its header."""
    kind = FRAMES.get(header.type)
    if kind is None:
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"Frames of type 0x{header.type:02X} are not known here")
    if header.is_encrypted:
        raise FrameError("NCP-ENC-NOT-NEGOTIATED", "Encryption of payloads was not negotiated")
    return decode_as(kind, payload, header.tier)


def decode_as(kind: type[T], payload: bytes | memoryview, tier: Tier) -> T:
    """A payload as a frame of this kind. `frame` may be left out, or be a number or a text in any case."""
    decoder = (_FROM_JSON if tier == Tier.JSON else _FROM_MSGPACK)[kind]
    try:
        return cast("T", decoder.decode(payload))
    except msgspec.ValidationError:
        return _converted(kind, decode_any(payload, tier))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(error) from error


def decode_any(payload: bytes | memoryview | msgspec.Raw, tier: Tier) -> Any:
    """A payload as it was written, whatever it holds."""
    try:
        return (_ANY_JSON if tier == Tier.JSON else _ANY_MSGPACK).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _unreadable(error) from error


_LACKS = re.compile(r"Object missing required field `(\w+)`")


def _converted(kind: type[T], value: Any) -> T:
    if not isinstance(value, dict):
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "The payload of a frame is an object")
    members = cast("dict[Any, Any]", value)
    said = members.pop("frame", None)
    if said is not None and _number(said) != kind.TYPE:
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"`frame` is {said!r:.20}; here it is 0x{kind.TYPE:02X}")
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        says, _, where = str(error).partition(" - at `")
        lacks = _LACKS.match(says)
        named = f"$.{lacks[1]}" if lacks and not where else where.rstrip("`")
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"{named or 'the frame'}: {says}", named) from error


# Records by their schema

_ROW_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "uint64": int,
    "int64": int,
    "decimal": float,
    "bool": bool,
    "timestamp": str,
    "bytes": str,
}


def row_type(schema: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A type for the records of a schema: reading them so is several times as fast as reading objects of any kind.

    A field that cannot be called so in Python is called by its letters: `@type` is `type`, and `class` is `class_`.
    """
    columns = [_column(each) for each in _fields(schema)]
    names = _attributes([each[0] for each in columns])
    fields = [(names[each[0]], *each[1:]) for each in columns]
    has_gaps = any(len(each) == 3 for each in columns)
    said = {attribute: name for name, attribute in names.items()}
    return msgspec.defstruct("Row", fields, rename=said, frozen=True, gc=False, omit_defaults=has_gaps, kw_only=True)


def _attributes(names: list[str]) -> dict[str, str]:
    """By name of a field, what it is called in Python."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W+", "", name, flags=re.ASCII).lstrip("_0123456789") or "field"
        while iskeyword(plain) or plain in found.values():
            plain += "_"
        found[name] = plain
    return found


def _fields(schema: Mapping[str, Any]) -> list[Any]:
    fields: Any = schema.get("fields")
    if not isinstance(fields, list):
        raise FrameError("NCP-ANCHOR-SCHEMA-INVALID", "A schema has a list of fields")
    return cast("list[Any]", fields)


def _column(field: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    match field:
        case {"name": str() as name, "type": str() as said}:
            kind = _ROW_TYPES.get(said, Any)
            return (name, kind | None, None) if cast("dict[str, Any]", field).get("nullable") else (name, kind)
        case _:
            raise FrameError("NCP-ANCHOR-SCHEMA-INVALID", "A field of a schema has a name and a type")


class Reader:
    """Reads the records of one schema as a type, and makes nothing of them but that."""

    def __init__(self, row: type[msgspec.Struct], anchor: str) -> None:
        self._row = row
        self._anchor = anchor  # the id of the schema
        self._rows = list[row]
        self._decoders = (msgspec.json.Decoder(self._rows), msgspec.msgpack.Decoder(self._rows))  # by tier
        self._usual = dict(_USUAL)
        for kind in (CapsFrame, StreamFrame):
            typed = _with_data(kind, self._rows)
            self._usual[_mark(kind, Tier.JSON)] = msgspec.json.Decoder(typed)
            self._usual[_mark(kind, Tier.MSGPACK)] = msgspec.msgpack.Decoder(typed)

    def decode(self, raw: bytes, largest: int = LARGEST_EXTENDED) -> Frame:
        """The one frame that these bytes are, its records read by the way: once over the bytes in place of twice.

        Records of another schema or another type are left unread.
        """
        frame = _read_quickly(raw, largest, self._usual)
        if frame is None or getattr(frame, "anchor_ref", None) not in (None, self._anchor):
            return decode(raw, largest)
        return frame

    def read(self, records: Sequence[Any]) -> list[Any]:
        """The records of a frame. If they are not of the type, a FrameError is raised."""
        try:
            if isinstance(records, Records):
                return self._decoders[records.tier].decode(records.raw)
            if isinstance(records, list) and set(map(type, records)) == {self._row}:
                return records
            return msgspec.convert(records, self._rows)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _unreadable(error) from error


def _number(said: Any) -> int | None:
    if isinstance(said, bool):
        return None
    if isinstance(said, int):
        return said
    try:
        return int(said, 16) if isinstance(said, str) and said[:2].lower() == "0x" and len(said) <= 4 else None
    except ValueError:
        return None


def _unreadable(error: Exception) -> FrameError:
    if isinstance(error, RecursionError):
        return FrameError("NCP-FRAME-UNKNOWN-TYPE", "The payload is nested too deeply")
    return FrameError("NCP-FRAME-UNKNOWN-TYPE", f"The payload cannot be read: {str(error)[:200]}")


def _too_large(length: int, largest: int) -> FrameError:
    return FrameError("NCP-FRAME-PAYLOAD-TOO-LARGE", f"The payload has {length} bytes; {largest} are allowed")
