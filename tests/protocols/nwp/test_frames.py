"""The codec: headers, tiers, and payloads that come from anywhere."""

import struct
from contextlib import suppress
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.requirements import requirement

from portico.catalog import anchor_of
from portico.protocols.nwp.anchors import check_anchor
from portico.protocols.nwp.errors import code_of, frame_problem
from portico.protocols.nwp.frames import (
    FRAMES,
    LARGEST,
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    EncodingTier,
    ErrorFrame,
    Frame,
    FrameError,
    FrameHeader,
    FrameType,
    HelloFrame,
    IdentFrame,
    QueryFrame,
    RecordReader,
    Records,
    StreamFrame,
    SubscribeFrame,
    TaskFrame,
    decode,
    decode_any,
    decode_as,
    encode,
    read_header,
    row_type,
)

MIB = 1024 * 1024
EVERY_TIER = pytest.mark.parametrize("tier", EncodingTier)


def refusal(error: FrameError) -> tuple[str, str, int]:
    """The code, the status of the suite, and that of HTTP."""
    code = code_of(frame_problem(error))
    return code.error, code.status, code.http


# Headers


@requirement("nwp:header:default", "nwp:header:flags", "nwp:header:final", "nwp:tiers:known")
def test_a_header_has_a_type_flags_and_the_length_in_two_bytes() -> None:
    assert FrameHeader(FrameType.ANCHOR, EncodingTier.JSON, 200).encode().hex() == "010400c8"
    assert FrameHeader(FrameType.CAPS, EncodingTier.MSGPACK, LARGEST).encode().hex() == "0405ffff"
    assert FrameHeader(FrameType.STREAM, EncodingTier.JSON, 1, is_final=False).encode().hex() == "03000001"
    assert read_header(bytes.fromhex("06040138")) == FrameHeader(FrameType.HELLO, EncodingTier.JSON, 312, is_final=True)
    assert read_header(bytes.fromhex("030d0001")) == FrameHeader(
        FrameType.STREAM, EncodingTier.MSGPACK, 1, is_encrypted=True
    )


@requirement("nwp:header:extended")
def test_an_extended_header_has_the_length_in_bytes_two_to_five() -> None:
    header = FrameHeader(FrameType.STREAM, EncodingTier.MSGPACK, MIB, is_final=False, is_extended=True)

    assert header.encode().hex() == "0381001000000000"
    assert read_header(header.encode()) == header
    assert (header.size, FrameHeader(FrameType.STREAM, EncodingTier.MSGPACK, 1).size) == (8, 4)


@requirement("nwp:header:extended-other")
def test_the_other_layout_of_an_extended_header_is_read() -> None:
    header = FrameHeader(FrameType.STREAM, EncodingTier.MSGPACK, 1_000_001, is_final=False, is_extended=True)
    assert read_header(bytes.fromhex("03810000000f4241")) == header


@requirement("nwp:header:extended-other")
def test_where_both_layouts_fit_the_bytes_that_follow_decide() -> None:
    both = bytes.fromhex("0381000000100000")  # sixteen bytes, or a mebibyte in the other layout

    assert [read_header(both, body).length for body in (MIB, 16, None, 5)] == [MIB, 16, 16, 16]


@requirement("nwp:header:flags")
def test_reserved_flags_are_ignored() -> None:
    assert read_header(bytes.fromhex("10740005")) == FrameHeader(FrameType.QUERY, EncodingTier.JSON, 5)


@requirement("nwp:header:too-large")
def test_a_payload_that_the_header_has_no_room_for_is_refused() -> None:
    for header in (
        FrameHeader(FrameType.CAPS, EncodingTier.MSGPACK, 70_000),
        FrameHeader(FrameType.CAPS, EncodingTier.MSGPACK, 2**32, is_extended=True),
    ):
        with pytest.raises(FrameError) as refused:
            header.encode()
        assert refusal(refused.value) == ("NCP-FRAME-PAYLOAD-TOO-LARGE", "NPS-LIMIT-PAYLOAD", 413)


@requirement("nwp:header:too-large")
def test_a_payload_above_what_was_agreed_on_is_neither_written_nor_read() -> None:
    frame = QueryFrame(filter={"name": {"$eq": "x" * 100}})
    whole = encode(frame, EncodingTier.JSON)

    for step in (lambda: encode(frame, EncodingTier.JSON, largest=99), lambda: decode(whole, 99)):
        with pytest.raises(FrameError) as refused:
            step()
        assert refusal(refused.value) == ("NCP-FRAME-PAYLOAD-TOO-LARGE", "NPS-LIMIT-PAYLOAD", 413)


@requirement("nwp:tiers:reserved")
@pytest.mark.parametrize("raw", ["01070040", "01060040", "0187001000000000"])
def test_reserved_tiers_are_refused(raw: str) -> None:
    with pytest.raises(FrameError) as refused:
        read_header(bytes.fromhex(raw))
    assert refusal(refused.value) == ("NCP-FRAME-FLAGS-INVALID", "NPS-CLIENT-BAD-FRAME", 400)


@requirement("nwp:header:encryption-refused")
def test_an_encrypted_frame_is_refused() -> None:
    with pytest.raises(FrameError) as refused:
        decode(bytes.fromhex("100c0002") + b"{}")
    assert refusal(refused.value) == ("NCP-ENC-NOT-NEGOTIATED", "NPS-CLIENT-BAD-FRAME", 400)


def test_too_few_bytes_are_no_header_yet() -> None:
    assert [read_header(bytes.fromhex(raw)) for raw in ("", "100400", "10840000000000")] == [None, None, None]


# Frames

SCHEMA = {"fields": [{"name": "id", "type": "uint64"}, {"name": "name", "type": "string"}]}
SCHEMA_ID = "sha256:8f02e05eee5c4e02f40567b4b17c3ceed022b9719aedc0774d520b63665e198c"

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
) | st.text(max_size=8)
objects = st.dictionaries(st.text(max_size=5), plain, max_size=3)
texts = st.text(max_size=8)
stream_ids = texts.filter(lambda text: "\0" not in text)  # no frame can carry one with it
naturals = st.integers(0, 2**32 - 1)
anchors = st.builds(AnchorFrame, anchor_id=texts, schema=objects, ttl=naturals)


def maybe(strategy: Any) -> Any:
    return st.none() | strategy


FRAMES_OF_ALL_KINDS: dict[int, Any] = {
    FrameType.ANCHOR: anchors,
    FrameType.DIFF: st.builds(
        DiffFrame,
        anchor_ref=texts,
        base_seq=naturals,
        patch=st.lists(objects, max_size=2),
        entity_id=maybe(texts),
        seq=maybe(naturals),
    ),
    FrameType.STREAM: st.builds(
        StreamFrame,
        stream_id=texts,
        seq=naturals,
        is_last=st.booleans(),
        data=st.lists(plain, max_size=3),
        estimated_total=maybe(st.integers(-1, 2**63 - 1)),
        window_size=maybe(naturals),
        error_code=maybe(texts),
    ),
    FrameType.CAPS: st.builds(
        CapsFrame,
        anchor_ref=texts,
        count=naturals,
        data=st.lists(objects, max_size=2),
        next_cursor=maybe(texts),
        inline_anchor=maybe(anchors),
        cached=maybe(st.booleans()),
    ),
    FrameType.HELLO: st.builds(
        HelloFrame,
        nps_version=texts,
        supported_encodings=st.lists(texts, max_size=2),
        supported_protocols=st.lists(texts, max_size=2),
        max_frame_payload=maybe(naturals),
    ),
    FrameType.QUERY: st.builds(
        QueryFrame, anchor_ref=maybe(texts), filter=maybe(objects), limit=maybe(naturals), depth=maybe(naturals)
    ),
    FrameType.ACTION: st.builds(
        ActionFrame, action_id=texts, params=maybe(objects), is_async=maybe(st.booleans()), timeout_ms=maybe(naturals)
    ),
    FrameType.SUBSCRIBE: st.builds(
        SubscribeFrame, action=texts, stream_id=stream_ids, filter=maybe(objects), resume_from_seq=maybe(naturals)
    ),
    FrameType.IDENT: st.builds(IdentFrame, nid=texts),
    FrameType.TASK: st.builds(TaskFrame, task_id=texts, dag=objects, context=maybe(objects)),
    FrameType.ERROR: st.builds(ErrorFrame, status=texts, error=texts, message=texts, details=objects),
}


@requirement("nwp:frames:types", "nwp:frames:diff", "nwp:frames:error", "nwp:frames:anchor")
@EVERY_TIER
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_frame_is_read_back_as_it_was(tier: EncodingTier, data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(sorted(FRAMES_OF_ALL_KINDS)).flatmap(FRAMES_OF_ALL_KINDS.__getitem__))

    raw = encode(frame, tier)

    read = decode(raw)
    assert isinstance(read, type(frame))
    assert read == frame
    assert frame == read
    assert (read != frame) is False
    assert encode(read, tier) == raw
    assert raw[:2] == bytes((frame.TYPE, 0x04 | tier))
    assert struct.unpack(">H", raw[2:4]) == (len(raw) - 4,)


def test_there_is_a_way_to_make_every_frame_that_is_known() -> None:
    assert set(FRAMES_OF_ALL_KINDS) == set(FRAMES)


@requirement("nwp:frames:anchor")
def test_a_schema_holds_for_an_hour_if_nothing_is_said() -> None:
    assert decode_as(AnchorFrame, b'{"anchor_id": "a", "schema": {}}', EncodingTier.JSON).ttl == 3600


@requirement("nwp:header:final")
def test_only_the_last_part_of_a_stream_is_final() -> None:
    part = StreamFrame(stream_id="s", seq=0, is_last=False, data=[])

    flags = [encode(part, tier, is_final=is_final)[1] for tier in EncodingTier for is_final in (False, True)]

    assert flags == [0x00, 0x04, 0x01, 0x05]


@requirement("nwp:header:extended")
def test_a_frame_is_extended_only_if_it_must_be() -> None:
    empty = len(encode(StreamFrame(stream_id="", seq=0, is_last=True, data=[]), EncodingTier.JSON)) - 4
    fitting, larger = (
        StreamFrame(stream_id="x" * (length - empty), seq=0, is_last=True, data=[]) for length in (LARGEST, LARGEST + 1)
    )

    short, long = encode(fitting, EncodingTier.JSON), encode(larger, EncodingTier.JSON)

    assert (short[:4].hex(), long[:8].hex()) == ("0304ffff", "0384000100000000")
    assert (decode(short), decode(long)) == (fitting, larger)


@requirement("nwp:header:extended-other")
@pytest.mark.parametrize("length", [16, LARGEST, LARGEST + 1, 2 * LARGEST + 2])
def test_a_whole_frame_is_read_in_either_layout(length: int) -> None:
    payload = b'{"limit":1}'.ljust(length)
    layouts = struct.pack(">BBIH", 0x10, 0x84, length, 0), struct.pack(">BBHI", 0x10, 0x84, 0, length)

    assert [decode(header + payload) for header in layouts] == [QueryFrame(limit=1)] * 2


@requirement("nwp:frames:types")
def test_the_bytes_of_a_known_client_are_read() -> None:
    raw = (
        "1005003784a56c696d697405aa616e63686f725f726566a87368613235363a78"
        "a666696c74657281a16181a324657101a66669656c647391a26964"
    )

    assert decode(bytes.fromhex(raw)) == QueryFrame(
        anchor_ref="sha256:x", filter={"a": {"$eq": 1}}, fields=["id"], limit=5
    )


@requirement("nwp:frames:key")
@pytest.mark.parametrize("said", ["0x10", "0X10", 16, None])
@EVERY_TIER
def test_the_key_frame_may_be_a_text_a_number_or_left_out(tier: EncodingTier, said: str | int | None) -> None:
    payload = {"limit": 3, **({} if said is None else {"frame": said})}
    assert decode_as(QueryFrame, written(payload, tier), tier) == QueryFrame(limit=3)


@requirement("nwp:frames:key")
def test_hexadecimal_digits_of_the_key_frame_may_be_small_or_capital() -> None:
    error = ErrorFrame(status="S", error="E")
    for said in ("0xFE", "0xfe", "0XFe", 254):
        assert (
            decode_as(
                ErrorFrame, written({"frame": said, "status": "S", "error": "E"}, EncodingTier.JSON), EncodingTier.JSON
            )
            == error
        )


@requirement("nwp:frames:key")
@pytest.mark.parametrize("said", ["0x11", 17, "10", "16", 16.5, True, "0x", "0x010", [], {}])
@EVERY_TIER
def test_a_key_frame_that_contradicts_the_header_is_refused(tier: EncodingTier, said: Any) -> None:
    payload = written({"frame": said, "limit": 3}, tier)

    with pytest.raises(FrameError) as refused:
        decode(struct.pack(">BBH", 0x10, 0x04 | tier, len(payload)) + payload)
    assert refusal(refused.value) == ("NCP-FRAME-UNKNOWN-TYPE", "NPS-CLIENT-BAD-FRAME", 400)


@requirement("nwp:frames:key")
@EVERY_TIER
def test_the_key_frame_is_written_as_a_text(tier: EncodingTier) -> None:
    shown = [
        decode_any(encode(frame, tier)[4:], tier)["frame"] for frame in (QueryFrame(), ErrorFrame(status="", error=""))
    ]
    assert shown == ["0x10", "0xFE"]


@requirement("nwp:frames:unknown-type")
@pytest.mark.parametrize("kind", [0x00, 0x05, 0x13, 0x21, 0x30, 0x41, 0xF0, 0xFF])
def test_a_frame_of_an_unknown_type_is_refused(kind: int) -> None:
    with pytest.raises(FrameError) as refused:
        decode(struct.pack(">BBH", kind, 0x04, 2) + b"{}")
    assert refusal(refused.value) == ("NCP-FRAME-UNKNOWN-TYPE", "NPS-CLIENT-BAD-FRAME", 400)


@requirement("nwp:frames:same-object")
def test_both_tiers_carry_the_same_object() -> None:
    data = [{"day": "2026-05-01T12:00:00Z", "price": Decimal("12.5"), "beds": 2}]
    caps = CapsFrame(anchor_ref="a", count=1, data=data, inline_anchor=AnchorFrame(anchor_id="b", schema=SCHEMA))

    in_json, in_msgpack = (decode_any(encode(caps, tier)[4:], tier) for tier in EncodingTier)

    assert in_json == in_msgpack
    assert in_json == {
        "frame": "0x04",
        "anchor_ref": "a",
        "count": 1,
        "data": [{"day": "2026-05-01T12:00:00Z", "price": 12.5, "beds": 2}],
        "inline_anchor": {"frame": "0x01", "anchor_id": "b", "schema": SCHEMA},
    }


@EVERY_TIER
def test_what_is_not_known_in_a_frame_is_let_be(tier: EncodingTier) -> None:
    payload = written({"limit": 1, "action": "x", "later": [1, {"2": None}]}, tier)
    assert decode_as(QueryFrame, payload, tier) == QueryFrame(limit=1)


# What comes from anywhere


@EVERY_TIER
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_payload_that_is_nested_without_end_is_refused(tier: EncodingTier, opening: bytes) -> None:
    deep = b'{"filter":' + opening * 100_000
    packed = b"\x81\xa6filter" + (b"\x91" if opening == b"[" else b"\x81\xa1a") * 100_000

    with pytest.raises(FrameError) as refused:
        decode_as(QueryFrame, packed if tier == EncodingTier.MSGPACK else deep, tier)
    assert refusal(refused.value) == ("NCP-FRAME-UNKNOWN-TYPE", "NPS-CLIENT-BAD-FRAME", 400)


@pytest.mark.parametrize(
    "raw",
    [
        "8410ffffffff0000" + "7b7d",  # an extended length of four gigabytes, and two bytes
        "10040003" + "7b7d",
        "10040001" + "7b7d",
        "1004",
        "",
        "10050005" + "dfffffffff",  # a map of four billion members
        "10050006" + "81a6ffffffff",
        "10040001" + "ff",
        "10040004" + "6e756c6c",
    ],
)
def test_lengths_are_never_trusted(raw: str) -> None:
    with pytest.raises(FrameError, match=r".") as refused:
        decode(bytes.fromhex(raw))
    assert refused.value.code == "NCP-FRAME-UNKNOWN-TYPE"


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=60)
    | st.builds(
        lambda kind, tier, payload: struct.pack(">BBH", kind, 0x04 | tier, len(payload)) + payload,
        st.sampled_from(sorted(FRAMES)),
        st.integers(0, 1),
        st.binary(max_size=40),
    )
)
def test_bytes_are_a_frame_or_refused(raw: bytes) -> None:
    with suppress(FrameError):
        assert isinstance(decode(raw), Frame)


@EVERY_TIER
def test_the_records_of_an_answer_are_read_when_somebody_looks_at_them(tier: EncodingTier) -> None:
    records = [{"id": "a", "price": 1.5}, {"id": "b", "price": None}]
    answer = decode(encode(CapsFrame(anchor_ref="x", count=2, data=records, next_cursor="c"), tier))
    assert isinstance(answer, CapsFrame)
    assert (answer.count, answer.next_cursor, len(answer.data)) == (2, "c", 2)
    assert (answer.data[0], answer.data[1:], list(answer.data)) == (records[0], records[1:], records)


@pytest.mark.parametrize(
    ("tier", "data"),
    [
        (EncodingTier.JSON, b'["\xff"]'),
        (EncodingTier.JSON, b'{"id": "a"}'),
        (EncodingTier.JSON, b"null"),
        (EncodingTier.MSGPACK, b"\x81\xa2id\xa1a"),
        (EncodingTier.MSGPACK, b"\x91\xa1\xff"),
        (EncodingTier.MSGPACK, b"\xdc\x00\x01\xa1\xff"),
    ],
)
def test_records_that_are_none_are_refused_when_somebody_looks_at_them(tier: EncodingTier, data: bytes) -> None:
    answer = decode(encode(CapsFrame(anchor_ref="x", count=1, data=msgspec.Raw(data)), tier))
    assert isinstance(answer, CapsFrame)
    for look in (len, list, repr, answer.data.__eq__, lambda data: data[0]):
        with pytest.raises(FrameError) as refused:
            look(answer.data)
        assert refused.value.code == "NCP-FRAME-UNKNOWN-TYPE"


@EVERY_TIER
def test_the_records_of_a_known_schema_are_read_with_their_frame(tier: EncodingTier) -> None:
    row = row_type({"fields": [{"name": "id", "type": "string"}, {"name": "price", "type": "decimal"}]})
    reader = RecordReader(row, "sha256:rooms")
    answer = CapsFrame(anchor_ref="sha256:rooms", count=1, data=[{"id": "attic", "price": 40.0}])
    part = StreamFrame(stream_id="s", seq=1, is_last=True, data=[{"id": "attic", "price": 40.0}])
    attic = row(id="attic", price=40.0)

    read = [reader.decode(encode(each, tier)) for each in (answer, part)]

    data = [each.data for each in read if isinstance(each, CapsFrame | StreamFrame)]
    assert data == [[attic], [attic]]
    assert [reader.read(each) for each in data] == data


@EVERY_TIER
@pytest.mark.parametrize(
    ("anchor", "record"), [("sha256:others", {"id": "attic", "price": 40.0}), ("sha256:rooms", {"id": "attic"})]
)
def test_records_of_another_schema_or_type_are_left_unread(
    tier: EncodingTier, anchor: str, record: dict[str, Any]
) -> None:
    row = row_type({"fields": [{"name": "id", "type": "string"}, {"name": "price", "type": "decimal"}]})
    answer = CapsFrame(anchor_ref=anchor, count=1, data=[record])

    read = RecordReader(row, "sha256:rooms").decode(encode(answer, tier))

    assert isinstance(read, CapsFrame)
    assert isinstance(read.data, Records)
    assert read == answer


def test_a_member_of_a_wrong_type_is_named() -> None:
    with pytest.raises(FrameError) as refused:
        decode_as(QueryFrame, b'{"order": [{"field": 5}]}', EncodingTier.JSON)
    assert (refused.value.where, str(refused.value)) == (
        "$.order[0].field",
        "$.order[0].field: Expected `str`, got `int`",
    )


# Schemas and their names


@requirement("nwp:anchors:id", "nwp:anchors:constant")
def test_the_name_of_a_schema_is_the_hash_of_its_canonical_form() -> None:
    product = {
        "fields": [
            {"name": "id", "type": "uint64", "semantic": "entity.id"},
            {"name": "name", "type": "string", "semantic": "entity.label"},
            {"name": "price", "type": "decimal", "semantic": "commerce.price.usd"},
            {"name": "stock", "type": "uint64", "semantic": "commerce.inventory.count"},
        ]
    }
    place = {
        "fields": [
            {"name": "lat", "type": "decimal", "semantic": "geo.latitude"},
            {"name": "lng", "type": "decimal", "semantic": "geo.longitude"},
        ]
    }
    shuffled = {"fields": [{"type": "uint64", "name": "id"}, {"type": "string", "name": "name"}]}
    turned = {"fields": SCHEMA["fields"][::-1]}

    assert anchor_of(product) == "sha256:d31c3734e35b4e3815cb281a6307786aa0c46136b5d3b2ab07183d0b541ca9fe"
    assert anchor_of(place) == "sha256:6f448d402076d3b9c2666598b7214551c599a3c2d9a5c3c79494074f8e9d2b10"
    assert anchor_of(SCHEMA) == anchor_of(shuffled) == SCHEMA_ID
    assert anchor_of(turned) != SCHEMA_ID  # the order of fields is part of it


@requirement("nwp:anchors:mismatch", "nwp:anchors:constant")
def test_a_schema_under_a_name_that_is_not_its_own_is_refused() -> None:
    check_anchor(AnchorFrame(anchor_id=SCHEMA_ID, schema=SCHEMA))
    for name in ("sha256:" + "0" * 64, SCHEMA_ID.upper(), ""):
        with pytest.raises(FrameError) as refused:
            check_anchor(AnchorFrame(anchor_id=name, schema=SCHEMA))
        assert refusal(refused.value) == ("NCP-ANCHOR-ID-MISMATCH", "NPS-CLIENT-CONFLICT", 409)


@requirement("nwp:anchors:malformed")
@pytest.mark.parametrize(
    "schema",
    [{}, {"fields": {}}, {"fields": ["id"]}, {"fields": [{"name": "id"}]}, {"fields": [{"name": "id", "type": "int"}]}],
)
def test_a_malformed_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(FrameError) as refused:
        check_anchor(AnchorFrame(anchor_id=anchor_of(schema), schema=schema))
    assert refusal(refused.value) == ("NCP-ANCHOR-SCHEMA-INVALID", "NPS-CLIENT-BAD-FRAME", 400)


def written(value: Any, tier: EncodingTier) -> bytes:
    return msgspec.json.encode(value) if tier == EncodingTier.JSON else msgspec.msgpack.encode(value)
