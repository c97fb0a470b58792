"""The native handshake: what an agent's Hello and this side's offer have in common. Reads no bytes."""

import re
from dataclasses import dataclass
from typing import Any, Final

from portico.protocols.nwp.errors import VersionUnsupported, error_frame
from portico.protocols.nwp.frames import LARGEST, VERSION, EncodingTier, ErrorFrame, HelloFrame, WelcomeFrame

CAPS_REF: Final = "nps:system:caps"
STREAMS: Final = 32  # default number of concurrent streams
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.\d{1,6})*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class HandshakeOffer:
    """What one side supports."""

    version: str = VERSION
    encodings: tuple[EncodingTier, ...] = (EncodingTier.MSGPACK, EncodingTier.JSON)  # the best first
    protocols: tuple[str, ...] = ("ncp", "nwp", "nip", "nop")
    payload: int = LARGEST
    streams: int = STREAMS
    is_extended: bool = False
    oldest: str = ""  # oldest version that an agent may speak


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """What both sides of a session agreed on."""

    version: str
    tier: EncodingTier
    protocols: tuple[str, ...]
    payload: int  # bytes of a payload, at most
    streams: int  # at once
    is_extended: bool


def negotiate(hello: HelloFrame, offer: HandshakeOffer) -> SessionTerms | ErrorFrame:
    """Return the terms that both sides support, or the error if there are none."""
    # `min_version` defaults to the version itself: a later agent has to declare that it speaks this one too.
    oldest = hello.min_version or hello.nps_version
    if parse_version(hello.nps_version) is None or parse_version(oldest) is None or is_older(offer.version, oldest):
        return _incompatible(oldest, offer)
    if is_older(hello.nps_version, offer.oldest):
        message = f"Agents must speak version {offer.oldest} or later"
        return error_frame(VersionUnsupported(message, min_agent_version=offer.oldest))
    version = hello.nps_version if is_older(hello.nps_version, offer.version) else offer.version
    protocols = tuple(protocol for protocol in dict.fromkeys(hello.supported_protocols) if protocol in offer.protocols)
    # NCP 2.6: the common version must not be older than the agent's minimum.
    if is_older(version, oldest):
        return _incompatible(oldest, offer)
    if not protocols:
        return _no_common_protocol(offer)
    tier = next((protocol for protocol in offer.encodings if protocol.token in hello.supported_encodings), None)
    if tier is None:
        return _no_common_encoding(offer)
    is_extended = bool(hello.ext_support) and offer.is_extended
    # The short header has two bytes for the length of a payload.
    largest = offer.payload if is_extended else min(offer.payload, LARGEST)
    return SessionTerms(
        version=version,
        tier=tier,
        protocols=protocols,
        payload=_negotiate_limit(hello.max_frame_payload, LARGEST, largest),
        streams=_negotiate_limit(hello.max_concurrent_streams, STREAMS, offer.streams),
        is_extended=is_extended,
    )


def welcome(agreed: SessionTerms, offer: HandshakeOffer, node_id: str, capabilities: list[str]) -> WelcomeFrame:
    """Return the terms as agents of 0.4 read them, and as later ones do."""
    terms: dict[str, Any] = {
        "nps_version": offer.version,
        "session_version": agreed.version,
        "max_frame_payload": agreed.payload,
        "negotiated_encoding": agreed.tier.token,
        "enabled_encodings": [agreed.tier.token],
        "supported_protocols": list(agreed.protocols),
        "ext_support": agreed.is_extended,
        "max_concurrent_streams": agreed.streams,
    }
    data: list[dict[str, Any]] = [{**terms, "e2e_enc_algorithms": []}]
    return WelcomeFrame(anchor_ref=CAPS_REF, count=1, data=data, node_id=node_id, caps=capabilities, **terms)


def _negotiate_limit(requested: int | None, default: int, own: int) -> int:
    return min(default if requested is None else requested, own)


def _incompatible(oldest: str, offer: HandshakeOffer) -> ErrorFrame:
    return ErrorFrame(
        status="NPS-PROTO-VERSION-INCOMPATIBLE",
        error="NCP-VERSION-INCOMPATIBLE",
        message=f"This node speaks version {offer.version}",
        details={"server_version": offer.version, "client_min_version": oldest[:40]},
    )


def _no_common_protocol(offer: HandshakeOffer) -> ErrorFrame:
    return ErrorFrame(
        status="NPS-PROTO-VERSION-INCOMPATIBLE",
        error="NCP-VERSION-INCOMPATIBLE",
        message=f"This node supports the protocols {', '.join(offer.protocols)}",
        details={"server_version": offer.version, "supported_protocols": list(offer.protocols)},
    )


def _no_common_encoding(offer: HandshakeOffer) -> ErrorFrame:
    encodings = [tier.token for tier in offer.encodings]
    return ErrorFrame(
        status="NPS-SERVER-ENCODING-UNSUPPORTED",
        error="NCP-ENCODING-UNSUPPORTED",
        message=f"This node supports the encodings {' and '.join(encodings)}",
        details={"supported_encodings": encodings},
    )


def parse_version(version: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version, so that 0.10 is later than 0.4; None if it is invalid."""
    match = _VERSION.match(version.strip())
    return (int(match[1]), int(match[2])) if match else None


def is_older(version: str, than: str) -> bool:
    """Return whether a version comes before another. An invalid one is older than any."""
    oldest = parse_version(than)
    return oldest is not None and (parse_version(version) or (-1, -1)) < oldest
