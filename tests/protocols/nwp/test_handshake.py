"""What a Hello and an offer come to."""

from typing import Any

import msgspec
import pytest
from tests.conformance.requirements import requirement

from portico.protocols.nwp.frames import EncodingTier, ErrorFrame, HelloFrame, decode_any, encode_value
from portico.protocols.nwp.handshake import HandshakeOffer, SessionTerms, negotiate, welcome

ONLY_JSON = (EncodingTier.JSON,)


def hello(version: str = "0.4", encodings: tuple[str, ...] = ("msgpack", "json"), **said: Any) -> HelloFrame:
    said = {"supported_protocols": ["ncp", "nwp"], **said}
    return HelloFrame(nps_version=version, supported_encodings=list(encodings), **said)


@requirement("nwp:hello:limits", "nwp:hello:encoding")
def test_both_get_the_most_that_both_can_do() -> None:
    asked = hello(
        min_version="0.3",
        supported_protocols=["nip", "xyz", "nwp", "ncp", "nwp"],
        max_frame_payload=65535,
        ext_support=True,
        max_concurrent_streams=32,
    )
    offer = HandshakeOffer(protocols=("ncp", "nwp", "nip"), payload=32768, streams=64, is_extended=True)

    assert negotiate(asked, offer) == SessionTerms(
        "0.4", EncodingTier.MSGPACK, ("nip", "nwp", "ncp"), 32768, 32, is_extended=True
    )


@requirement("nwp:hello:defaults")
def test_an_agent_that_says_little_gets_what_is_usual() -> None:
    offer = HandshakeOffer(payload=1 << 20, streams=1000, is_extended=True)

    assert negotiate(hello(), offer) == SessionTerms(
        "0.4", EncodingTier.MSGPACK, ("ncp", "nwp"), 65535, 32, is_extended=False
    )


@requirement("nwp:hello:version")
@pytest.mark.parametrize(
    ("agent", "oldest", "site", "agreed"),
    [
        ("0.4", "0.3", "0.3", "0.3"),
        ("0.3", None, "0.4", "0.3"),
        ("0.10", "0.4", "0.4", "0.4"),
        ("0.4", None, "0.10", "0.4"),
    ],
)
def test_the_lower_version_is_spoken(agent: str, oldest: str | None, site: str, agreed: str) -> None:
    found = negotiate(hello(agent, min_version=oldest), HandshakeOffer(site))

    assert isinstance(found, SessionTerms)
    assert found.version == agreed


@requirement("nwp:hello:version-incompatible")
@pytest.mark.parametrize(
    ("agent", "oldest", "told"),
    [
        ("0.6", "0.5", "0.5"),
        ("0.10", None, "0.10"),
        ("new", "0.1", "0.1"),
        ("0.4", "old", "old"),
        ("0.3", "0.4", "0.4"),
    ],
)
def test_an_agent_that_needs_a_later_version_is_told_which_one_is_spoken(
    agent: str, oldest: str | None, told: str
) -> None:
    assert negotiate(hello(agent, min_version=oldest), HandshakeOffer()) == ErrorFrame(
        status="NPS-PROTO-VERSION-INCOMPATIBLE",
        error="NCP-VERSION-INCOMPATIBLE",
        message="This node speaks version 0.4",
        details={"server_version": "0.4", "client_min_version": told},
    )


@requirement("nwp:hello:encoding")
@pytest.mark.parametrize(
    ("agent", "site", "agreed"),
    [
        (("json", "msgpack"), (EncodingTier.MSGPACK, EncodingTier.JSON), EncodingTier.MSGPACK),
        (("msgpack", "json"), ONLY_JSON, EncodingTier.JSON),
        (("json",), (EncodingTier.MSGPACK, EncodingTier.JSON), EncodingTier.JSON),
        (("binary_vector.v1", "json"), (EncodingTier.MSGPACK, EncodingTier.JSON), EncodingTier.JSON),
    ],
)
def test_the_best_encoding_that_both_know_is_taken(
    agent: tuple[str, ...], site: tuple[EncodingTier, ...], agreed: EncodingTier
) -> None:
    found = negotiate(hello(encodings=agent), HandshakeOffer(encodings=site))

    assert isinstance(found, SessionTerms)
    assert found.tier == agreed


@requirement("nwp:hello:protocols")
@pytest.mark.parametrize("protocols", [[], ["smtp"]])
def test_without_a_common_protocol_there_is_no_session(protocols: list[str]) -> None:
    found = negotiate(msgspec.structs.replace(hello(), supported_protocols=protocols), HandshakeOffer())

    assert isinstance(found, ErrorFrame)
    assert (found.status, found.error) == ("NPS-PROTO-VERSION-INCOMPATIBLE", "NCP-VERSION-INCOMPATIBLE")
    assert found.details["supported_protocols"] == ["ncp", "nwp", "nip", "nop"]


@requirement("nwp:hello:encoding-none")
@pytest.mark.parametrize("agent", [("msgpack",), ()])
def test_without_a_common_encoding_there_is_no_session(agent: tuple[str, ...]) -> None:
    assert negotiate(hello(encodings=agent), HandshakeOffer(encodings=ONLY_JSON)) == ErrorFrame(
        status="NPS-SERVER-ENCODING-UNSUPPORTED",
        error="NCP-ENCODING-UNSUPPORTED",
        message="This node supports the encodings json",
        details={"supported_encodings": ["json"]},
    )


def test_a_site_may_want_agents_that_are_not_too_old() -> None:
    found = negotiate(hello("0.2"), HandshakeOffer(oldest="0.3"))

    assert isinstance(found, ErrorFrame)
    assert (found.error, found.details) == ("NWP-MANIFEST-VERSION-UNSUPPORTED", {"min_agent_version": "0.3"})
    assert isinstance(negotiate(hello("0.3"), HandshakeOffer(oldest="0.3")), SessionTerms)


@requirement("nwp:hello:answer", "nwp:hello:answer-flat")
def test_what_was_agreed_on_is_said_for_both_generations_of_agents() -> None:
    agreed = SessionTerms("0.3", EncodingTier.JSON, ("nwp",), 1000, 3, is_extended=False)
    said = {
        "nps_version": "0.4",
        "session_version": "0.3",
        "max_frame_payload": 1000,
        "negotiated_encoding": "json",
        "enabled_encodings": ["json"],
        "supported_protocols": ["nwp"],
        "ext_support": False,
        "max_concurrent_streams": 3,
    }

    answer = welcome(agreed, HandshakeOffer(), "urn:nps:node:inn.example:site", ["nwp:query"])

    assert decode_any(encode_value(answer, EncodingTier.JSON), EncodingTier.JSON) == {
        "frame": "0x04",
        "anchor_ref": "nps:system:caps",
        "count": 1,
        "data": [{**said, "e2e_enc_algorithms": []}],
        "node_id": "urn:nps:node:inn.example:site",
        "caps": ["nwp:query"],
        **said,
    }
