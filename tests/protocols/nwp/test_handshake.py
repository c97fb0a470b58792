"""What a Hello and an offer come to."""

from typing import Any

import msgspec
import pytest
from tests.conformance.requirements import requirement

from portico.protocols.nwp.frames import ErrorFrame, HelloFrame, Tier, decode_any, encode_value
from portico.protocols.nwp.handshake import Agreed, Offer, agree, welcome

ONLY_JSON = (Tier.JSON,)


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
    offer = Offer(protocols=("ncp", "nwp", "nip"), payload=32768, streams=64, is_extended=True)

    assert agree(asked, offer) == Agreed("0.4", Tier.MSGPACK, ("nip", "nwp", "ncp"), 32768, 32, is_extended=True)


@requirement("nwp:hello:defaults")
def test_an_agent_that_says_little_gets_what_is_usual() -> None:
    offer = Offer(payload=1 << 20, streams=1000, is_extended=True)

    assert agree(hello(), offer) == Agreed("0.4", Tier.MSGPACK, ("ncp", "nwp"), 65535, 32, is_extended=False)


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
    found = agree(hello(agent, min_version=oldest), Offer(site))

    assert isinstance(found, Agreed)
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
    assert agree(hello(agent, min_version=oldest), Offer()) == ErrorFrame(
        status="NPS-PROTO-VERSION-INCOMPATIBLE",
        error="NCP-VERSION-INCOMPATIBLE",
        message="0.4 is spoken here",
        details={"server_version": "0.4", "client_min_version": told},
    )


@requirement("nwp:hello:encoding")
@pytest.mark.parametrize(
    ("agent", "site", "agreed"),
    [
        (("json", "msgpack"), (Tier.MSGPACK, Tier.JSON), Tier.MSGPACK),
        (("msgpack", "json"), ONLY_JSON, Tier.JSON),
        (("json",), (Tier.MSGPACK, Tier.JSON), Tier.JSON),
        (("binary_vector.v1", "json"), (Tier.MSGPACK, Tier.JSON), Tier.JSON),
    ],
)
def test_the_best_encoding_that_both_know_is_taken(
    agent: tuple[str, ...], site: tuple[Tier, ...], agreed: Tier
) -> None:
    found = agree(hello(encodings=agent), Offer(encodings=site))

    assert isinstance(found, Agreed)
    assert found.tier == agreed


@requirement("nwp:hello:protocols")
@pytest.mark.parametrize("protocols", [[], ["smtp"]])
def test_without_a_common_protocol_there_is_no_session(protocols: list[str]) -> None:
    found = agree(msgspec.structs.replace(hello(), supported_protocols=protocols), Offer())

    assert isinstance(found, ErrorFrame)
    assert (found.status, found.error) == ("NPS-PROTO-VERSION-INCOMPATIBLE", "NCP-VERSION-INCOMPATIBLE")
    assert found.details["supported_protocols"] == ["ncp", "nwp", "nip", "nop"]


@requirement("nwp:hello:encoding-none")
@pytest.mark.parametrize("agent", [("msgpack",), ()])
def test_without_a_common_encoding_there_is_no_session(agent: tuple[str, ...]) -> None:
    assert agree(hello(encodings=agent), Offer(encodings=ONLY_JSON)) == ErrorFrame(
        status="NPS-SERVER-ENCODING-UNSUPPORTED",
        error="NCP-ENCODING-UNSUPPORTED",
        message="Encodings here are json",
        details={"supported_encodings": ["json"]},
    )


def test_a_site_may_want_agents_that_are_not_too_old() -> None:
    found = agree(hello("0.2"), Offer(oldest="0.3"))

    assert isinstance(found, ErrorFrame)
    assert (found.error, found.details) == ("NWP-MANIFEST-VERSION-UNSUPPORTED", {"min_agent_version": "0.3"})
    assert isinstance(agree(hello("0.3"), Offer(oldest="0.3")), Agreed)


@requirement("nwp:hello:answer", "nwp:hello:answer-flat")
def test_what_was_agreed_on_is_said_for_both_generations_of_agents() -> None:
    agreed = Agreed("0.3", Tier.JSON, ("nwp",), 1000, 3, is_extended=False)
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

    answer = welcome(agreed, Offer(), "urn:nps:node:inn.example:site", ["nwp:query"])

    assert decode_any(encode_value(answer, Tier.JSON), Tier.JSON) == {
        "frame": "0x04",
        "anchor_ref": "nps:system:caps",
        "count": 1,
        "data": [{**said, "e2e_enc_algorithms": []}],
        "node_id": "urn:nps:node:inn.example:site",
        "caps": ["nwp:query"],
        **said,
    }
