"""NCP frames: a header, and a payload in JSON or MessagePack. Knows bytes and types; nothing of a site.

No length is trusted: a header is compared with the bytes that are there before anything is allocated for it. The
records of a response are decoded lazily, since much of what is done with responses needs none.
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
VERSION: Final = "0.4"  # of NWP, NCP and the other protocols of a session

_EXTENDED = 0x80
_ENCRYPTED = 0x08
_FINAL = 0x04
_TIER = 0x03
_SHORT = struct.Struct(">BBH")
_HEAD = struct.Struct(">HH")  # the short header with type and flags as one number
_LONG = struct.Struct(">BBIH")

MAX_ID: Final = 255  # characters of a request or stream id

Id = Annotated[str, Meta(max_length=MAX_ID, pattern=r"\A[^\0]*\Z")]
Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # the range of both tiers
T = TypeVar("T", bound="Frame")


class FrameError(ValueError):
    """The bytes are not a valid frame. `code` is NCP's."""

    def __init__(self, code: str, message: str, where: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.where = where  # path of the wrong member, such as $.limit; empty for the whole frame


class EncodingTier(IntEnum):
    """How a payload is encoded."""

    JSON = 0
    MSGPACK = 1

    __hash__ = int.__hash__  # faster than Enum's, which is written in Python

    @property
    def token(self) -> str:
        """The name of the tier in a handshake."""
        return self.name.lower()


_TIERS: Final = tuple(EncodingTier)


class FrameType(IntEnum):
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


class FrameHeader(msgspec.Struct, frozen=True):
    """The first four bytes of a frame, or eight if it is extended."""

    type: int
    tier: EncodingTier
    length: int  # of the payload
    is_final: bool = True
    is_encrypted: bool = False
    is_extended: bool = False

    @property
    def size(self) -> int:
        return _LONG.size if self.is_extended else _SHORT.size

    @property
    def flags(self) -> int:
        bits = (_EXTENDED * self.is_extended, _ENCRYPTED * self.is_encrypted, _FINAL * self.is_final)
        return sum(bits) | self.tier

    def encode(self) -> bytes:
        if self.length > (LARGEST_EXTENDED if self.is_extended else LARGEST):
            raise _too_large(self.length, LARGEST)
        if self.is_extended:
            return _LONG.pack(self.type, self.flags, self.length, 0)
        return _SHORT.pack(self.type, self.flags, self.length)


def read_header(raw: bytes | memoryview, body: int | None = None) -> FrameHeader | None:
    """Return the header at the start of some bytes, or None if there are too few. `body` is how many follow, if known.

    Two layouts of the extended header exist. The specification's is preferred; the number of bytes that follow decides
    where both would do.
    """
    if len(raw) < _SHORT.size:
        return None
    fields: tuple[int, int, int] = _SHORT.unpack_from(raw)
    kind, flags, length = fields
    if flags & _TIER > EncodingTier.MSGPACK:
        raise FrameError("NCP-FRAME-FLAGS-INVALID", f"Unknown payload tier {flags & _TIER:02b}")
    is_extended = bool(flags & _EXTENDED)
    if is_extended:
        if len(raw) < _LONG.size:
            return None
        length = _read_extended_length(raw, body)
    tier = _TIERS[flags & _TIER]
    return FrameHeader(kind, tier, length, bool(flags & _FINAL), bool(flags & _ENCRYPTED), is_extended=is_extended)


def _read_extended_length(raw: bytes | memoryview, body: int | None) -> int:
    standard: int = _LONG.unpack_from(raw)[2]
    other: int = struct.unpack_from(">I", raw, 4)[0]
    has_high = bool(raw[2] or raw[3])
    if has_high or not other:
        return standard
    # [type, flags, 0, 0, length in four bytes], as several libraries write it.
    is_other = bool(raw[6] or raw[7]) or (standard != body and other == body)
    return other if is_other else standard


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="frame"):
    """A payload. `frame` is encoded as text, since signatures cover it; unknown members are ignored."""

    TYPE: ClassVar[FrameType]


class AnchorFrame(Frame, frozen=True, kw_only=True, tag="0x01"):
    """A schema and its id."""

    TYPE = FrameType.ANCHOR
    anchor_id: str
    schema: dict[str, Any]
    ttl: int = 3600  # seconds


class DiffFrame(Frame, frozen=True, kw_only=True, tag="0x02"):
    """A change in a subscription."""

    TYPE = FrameType.DIFF
    anchor_ref: str
    base_seq: int
    patch: Any  # may be bytes in a format other than JSON Patch
    patch_format: str | None = None
    entity_id: str | None = None
    stream_id: str | None = None
    seq: int | None = None
    event_type: str | None = None
    timestamp: str | None = None
    trimmed: dict[str, Any] | None = None  # fields left out of the patch


class StreamFrame(Frame, frozen=True, kw_only=True, tag="0x03"):
    """A part of a streamed response."""

    TYPE = FrameType.STREAM
    stream_id: str
    seq: int
    is_last: bool
    data: Any  # as in a CapsFrame
    anchor_ref: str | None = None
    estimated_total: int | None = None
    request_id: str | None = None
    token_est: int | None = None
    trimmed: dict[str, Any] | None = None
    inline_anchor: AnchorFrame | None = None
    window_size: int | None = None
    error_code: str | None = None


class CapsFrame(Frame, frozen=True, kw_only=True, tag="0x04"):
    """A response: its records, and the cursor to the next page."""

    TYPE = FrameType.CAPS
    anchor_ref: str
    count: int
    data: Any  # a list; Records in a decoded frame
    next_cursor: str | None = None
    token_est: int | None = None
    tokenizer_used: str | None = None
    cached: bool | None = None
    inline_anchor: AnchorFrame | None = None
    request_id: str | None = None
    trimmed: dict[str, Any] | None = None
    graph: list[dict[str, Any]] | None = None


class AcceptedFrame(CapsFrame, frozen=True, kw_only=True, tag="0x04"):
    """The acknowledgement of a task. Some clients read its members at the top level, others in `data`."""

    task_id: str
    status: str
    poll_url: str
    estimated_ms: int


class WelcomeFrame(CapsFrame, frozen=True, kw_only=True, tag="0x04"):
    """The response to a Hello: in `data` for readers of 0.4, at the top level for later ones."""

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
    """The first frame of a native session."""

    TYPE = FrameType.HELLO
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
    TYPE = FrameType.QUERY
    anchor_ref: str | None = None
    auto_anchor: bool | None = None
    stream: bool | None = None
    aggregate: Any = None
    filter: Any = None
    fields: list[str] | None = None
    limit: Annotated[int, Meta(ge=0)] | None = None  # a large one is reduced to the maximum
    cursor: str | None = None
    order: list[OrderKey] | None = None
    vector_search: VectorSearch | None = None
    token_budget: Natural | None = None
    tokenizer: str | None = None
    depth: Natural | None = None
    request_id: Id | None = None


class ActionFrame(Frame, frozen=True, kw_only=True, tag="0x11"):
    TYPE = FrameType.ACTION
    action_id: str
    params: dict[str, Any] | None = None
    idempotency_key: str | None = None
    timeout_ms: Natural | None = None
    is_async: bool | None = msgspec.field(default=None, name="async")
    callback_url: str | None = None
    priority: str | None = None
    request_id: Id | None = None


class SubscribeFrame(Frame, frozen=True, kw_only=True, tag="0x12"):
    TYPE = FrameType.SUBSCRIBE
    action: str
    stream_id: Id = ""  # required; checked later, so that the error depends on the action
    anchor_ref: str | None = None
    filter: Any = None
    heartbeat_interval: Natural | None = None
    resume_from_seq: Natural | None = None


class IdentFrame(Frame, frozen=True, kw_only=True, tag="0x20"):
    """A certificate. Its signature covers the raw payload, which is stored beside this."""

    TYPE = FrameType.IDENT
    nid: str


class TaskFrame(Frame, frozen=True, kw_only=True, tag="0x40"):
    """Steps for workers behind a gateway (NOP)."""

    TYPE = FrameType.TASK
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
    TYPE = FrameType.ERROR
    status: str
    error: str
    message: str = ""
    details: dict[str, Any] = {}
    request_id: str | None = None


FRAMES: Final[Mapping[int, type[Frame]]] = {
    frame_type.TYPE: frame_type
    for frame_type in (
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
    """The records of a frame, decoded all at once on first access.

    Invalid records raise a FrameError then, and not before.
    """

    __slots__ = ("_read", "raw", "tier")

    def __init__(self, raw: msgspec.Raw, tier: EncodingTier) -> None:
        self.raw = raw
        self.tier = tier
        self._read: list[Any] | None = None

    def read(self) -> list[Any]:
        if self._read is None:
            records = decode_any(self.raw, self.tier)
            if not isinstance(records, list):
                raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "`data` must be a list of records", "$.data")
            self._read = cast("list[Any]", records)
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


def _lazy_type(kind: type[Frame], tier: EncodingTier) -> type[Frame]:
    """Return the type to decode a frame as, with its records left undecoded."""
    if "data" not in kind.__struct_fields__:
        return kind

    def leave_records(frame: CapsFrame | StreamFrame) -> None:
        if isinstance(frame.data, msgspec.Raw):
            msgspec.structs.force_setattr(frame, "data", Records(frame.data, tier))

    return _with_data(kind, msgspec.Raw, __post_init__=leave_records)


def _with_data(kind: type[Frame], data: Any, **methods: Any) -> type[Frame]:
    """Return a frame type whose records are decoded as the given type."""
    kind_with_data: Any = msgspec.defstruct(
        kind.__name__,
        [("data", data)],
        bases=(kind,),
        namespace={**methods, "__eq__": _equals, "__ne__": _differs},
        tag=kind.__struct_config__.tag,
        frozen=True,
        kw_only=True,
        eq=False,
    )
    return kind_with_data


def _equals(frame: Frame, other: object) -> bool:
    """Compare a decoded frame with one built in code."""
    if not isinstance(other, Frame) or other.TYPE != frame.TYPE:
        return False
    return msgspec.structs.asdict(frame) == msgspec.structs.asdict(other)


def _differs(frame: Frame, other: object) -> bool:
    return not _equals(frame, other)


def _encode_records(value: Any) -> Any:
    """Encode Records as the list that they are."""
    if isinstance(value, Records):
        return value.read()
    raise TypeError(f"{type(value).__name__} cannot be sent")


# msgspec writes decimals as strings by default. As numbers both tiers carry the same object.
_TO_JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=_encode_records)
_TO_MSGPACK = msgspec.msgpack.Encoder(decimal_format="number", enc_hook=_encode_records)
_TO: Final = (_TO_JSON, _TO_MSGPACK)  # by tier
_FROM_JSON: Final[Mapping[type[Frame], msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(_lazy_type(kind, EncodingTier.JSON)) for kind in FRAMES.values()
}
_FROM_MSGPACK: Final[Mapping[type[Frame], msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(_lazy_type(kind, EncodingTier.MSGPACK)) for kind in FRAMES.values()
}
_ANY_JSON = msgspec.json.Decoder()
_ANY_MSGPACK = msgspec.msgpack.Decoder()


def _common_head(kind: type[Frame], tier: EncodingTier) -> int:
    """Return type and flags of a final frame with a short header, as one number."""
    return kind.TYPE << 8 | _FINAL | tier


# Decoders of final frames with a short header, by type and flags.
_COMMON_DECODERS: Final[Mapping[int, Any]] = {
    _common_head(kind, tier): decoder
    for kind in FRAMES.values()
    for tier, decoder in zip(_TIERS, (_FROM_JSON[kind], _FROM_MSGPACK[kind]), strict=True)
}


def encode_value(value: Any, tier: EncodingTier) -> bytes:
    """Encode a payload, or a part of one."""
    try:
        return _TO[tier].encode(value)
    except OverflowError:  # only MessagePack bounds integers
        return _TO_MSGPACK.encode(_within_64_bits(value))


def encode(frame: Frame, tier: EncodingTier, *, is_final: bool = True, largest: int = LARGEST_EXTENDED) -> bytes:
    """Encode a whole frame, extended only if needed. Raises for a payload larger than `largest`."""
    try:
        payload = _TO[tier].encode(frame)
    except OverflowError:  # repeats encode_value inline: another call is expensive for small frames
        payload = encode_value(frame, tier)
    length = len(payload)
    if length > largest:
        raise _too_large(length, largest)
    if length <= LARGEST:
        return _SHORT.pack(frame.TYPE, tier | _FINAL if is_final else tier, length) + payload
    return FrameHeader(frame.TYPE, tier, length, is_final, is_extended=True).encode() + payload


def _within_64_bits(value: Any) -> Any:
    """Return a value with integers beyond 64 bits as floats, or as strings if they are too large even for that."""
    match value:
        case int() if not -(1 << 63) <= value < 1 << 64:
            return float(value) if abs(value) < 1 << 1023 else str(value)
        case list() | tuple() | Records():
            return [_within_64_bits(element) for element in cast("Sequence[Any]", value)]
        case dict():
            return {name: _within_64_bits(element) for name, element in cast("dict[Any, Any]", value).items()}
        case Frame():
            members = {name: _within_64_bits(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **members)
        case _:
            return value


def decode(raw: bytes, largest: int = LARGEST_EXTENDED) -> Frame:
    """Decode bytes that are one whole frame."""
    frame = _decode_common(raw, largest, _COMMON_DECODERS)
    if frame is not None:
        return frame
    header = whole_header(raw, largest)
    return decode_payload(header, memoryview(raw)[header.size :])


def _decode_common(raw: bytes, largest: int, decoders: Mapping[int, Any]) -> Frame | None:
    """Decode a final frame with a short header, as nearly all are. None for any other, and for an invalid one."""
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


def whole_header(raw: bytes, largest: int = LARGEST_EXTENDED) -> FrameHeader:
    """Return the header of bytes that are one whole frame, with a payload of at most `largest` bytes."""
    header = read_header(raw, len(raw) - _LONG.size)
    if header and header.length > largest:
        raise _too_large(header.length, largest)
    if header and not header.is_extended and len(raw) - header.size > LARGEST:
        raise _too_large(len(raw) - header.size, LARGEST)  # more than its two bytes can express
    if header is None or header.size + header.length != len(raw):
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "The bytes are not one whole frame")
    return header


def decode_payload(header: FrameHeader, payload: bytes | memoryview) -> Frame:
    """Decode a payload by its header."""
    kind = FRAMES.get(header.type)
    if kind is None:
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"Unknown frame type 0x{header.type:02X}")
    if header.is_encrypted:
        raise FrameError("NCP-ENC-NOT-NEGOTIATED", "Encryption of payloads was not negotiated")
    return decode_as(kind, payload, header.tier)


def decode_as(kind: type[T], payload: bytes | memoryview, tier: EncodingTier) -> T:
    """Decode a payload as a frame of this kind. `frame` may be missing, or a number, or a string in any case."""
    decoder = (_FROM_JSON if tier == EncodingTier.JSON else _FROM_MSGPACK)[kind]
    try:
        return cast("T", decoder.decode(payload))
    except msgspec.ValidationError:
        return _convert(kind, decode_any(payload, tier))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _undecodable(error) from error


def decode_any(payload: bytes | memoryview | msgspec.Raw, tier: EncodingTier) -> Any:
    """Decode a payload of any content."""
    try:
        return (_ANY_JSON if tier == EncodingTier.JSON else _ANY_MSGPACK).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _undecodable(error) from error


_MISSING_FIELD = re.compile(r"Object missing required field `(\w+)`")


def _convert(kind: type[T], value: Any) -> T:
    if not isinstance(value, dict):
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", "The payload of a frame must be an object")
    members = cast("dict[Any, Any]", value)
    tag = members.pop("frame", None)
    if tag is not None and _tag_number(tag) != kind.TYPE:
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"`frame` must be 0x{kind.TYPE:02X}, not {tag!r:.20}")
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `")
        missing = _MISSING_FIELD.match(message)
        path = f"$.{missing[1]}" if missing and not where else where.rstrip("`")
        raise FrameError("NCP-FRAME-UNKNOWN-TYPE", f"{path or 'the frame'}: {message}", path) from error


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
    """Return a type for the records of a schema. Decoding into it is several times as fast as into dictionaries.

    A field name that is no Python identifier is adapted: `@type` becomes `type`, and `class` becomes `class_`.
    """
    columns = [_column(column) for column in _fields(schema)]
    names = _attributes([column[0] for column in columns])
    fields = [(names[column[0]], *column[1:]) for column in columns]
    has_gaps = any(len(column) == 3 for column in columns)
    renames = {attribute: name for name, attribute in names.items()}
    return msgspec.defstruct("Row", fields, rename=renames, frozen=True, gc=False, omit_defaults=has_gaps, kw_only=True)


def _attributes(names: list[str]) -> dict[str, str]:
    """Map field names to Python identifiers."""
    attributes: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W+", "", name, flags=re.ASCII).lstrip("_0123456789") or "field"
        while iskeyword(plain) or plain in attributes.values():
            plain += "_"
        attributes[name] = plain
    return attributes


def _fields(schema: Mapping[str, Any]) -> list[Any]:
    fields: Any = schema.get("fields")
    if not isinstance(fields, list):
        raise FrameError("NCP-ANCHOR-SCHEMA-INVALID", "A schema must have a list of fields")
    return cast("list[Any]", fields)


def _column(field: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    match field:
        case {"name": str() as name, "type": str() as said}:
            kind = _ROW_TYPES.get(said, Any)
            return (name, kind | None, None) if cast("dict[str, Any]", field).get("nullable") else (name, kind)
        case _:
            raise FrameError("NCP-ANCHOR-SCHEMA-INVALID", "A field of a schema must have a name and a type")


class RecordReader:
    """Decodes the records of one schema into a type."""

    def __init__(self, row: type[msgspec.Struct], anchor: str) -> None:
        self._row = row
        self._anchor = anchor  # the id of the schema
        self._rows = list[row]
        self._decoders = (msgspec.json.Decoder(self._rows), msgspec.msgpack.Decoder(self._rows))  # by tier
        self._usual = dict(_COMMON_DECODERS)
        for kind in (CapsFrame, StreamFrame):
            typed = _with_data(kind, self._rows)
            self._usual[_common_head(kind, EncodingTier.JSON)] = msgspec.json.Decoder(typed)
            self._usual[_common_head(kind, EncodingTier.MSGPACK)] = msgspec.msgpack.Decoder(typed)

    def decode(self, raw: bytes, largest: int = LARGEST_EXTENDED) -> Frame:
        """Decode one whole frame and its records in a single pass.

        Records of another schema or another type are left undecoded.
        """
        frame = _decode_common(raw, largest, self._usual)
        if frame is None or getattr(frame, "anchor_ref", None) not in (None, self._anchor):
            return decode(raw, largest)
        return frame

    def read(self, records: Sequence[Any]) -> list[Any]:
        """Return the records of a frame as rows. Raises a FrameError if they are not of the type."""
        try:
            if isinstance(records, Records):
                return self._decoders[records.tier].decode(records.raw)
            if isinstance(records, list) and set(map(type, records)) == {self._row}:
                return records
            return msgspec.convert(records, self._rows)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _undecodable(error) from error


def _tag_number(tag: Any) -> int | None:
    if isinstance(tag, bool):
        return None
    if isinstance(tag, int):
        return tag
    try:
        return int(tag, 16) if isinstance(tag, str) and tag[:2].lower() == "0x" and len(tag) <= 4 else None
    except ValueError:
        return None


def _undecodable(error: Exception) -> FrameError:
    if isinstance(error, RecursionError):
        return FrameError("NCP-FRAME-UNKNOWN-TYPE", "The payload is too deeply nested")
    return FrameError("NCP-FRAME-UNKNOWN-TYPE", f"The payload is invalid: {str(error)[:200]}")


def _too_large(length: int, largest: int) -> FrameError:
    return FrameError("NCP-FRAME-PAYLOAD-TOO-LARGE", f"The payload has {length} bytes; {largest} are allowed")
