"""How a native session begins: what an agent's Hello and this side's offer have in common. Reads no bytes."""

from dataclasses import dataclass
from typing import Any, Final

from portico.protocols.nwp.errors import VersionUnsupported, failure
from portico.protocols.nwp.frames import LARGEST, VERSION, ErrorFrame, HelloFrame, Tier, WelcomeFrame
from portico.protocols.nwp.versions import is_older, pair

CAPS_REF: Final = "nps:system:caps"
STREAMS: Final = 32  # at once, of an agent that does not say


@dataclass(frozen=True, slots=True)
class Offer:
    """What one side can do."""

    version: str = VERSION
    encodings: tuple[Tier, ...] = (Tier.MSGPACK, Tier.JSON)  # the best first
    protocols: tuple[str, ...] = ("ncp", "nwp", "nip", "nop")
    payload: int = LARGEST
    streams: int = STREAMS
    is_extended: bool = False
    oldest: str = ""  # version that an agent may speak


@dataclass(frozen=True, slots=True)
class Agreed:
    """What holds in a session."""

    version: str
    tier: Tier
    protocols: tuple[str, ...]
    payload: int  # bytes of a payload, at most
    streams: int  # at once
    is_extended: bool


def agree(hello: HelloFrame, offer: Offer) -> Agreed | ErrorFrame:
    """What both sides can do, or why there is nothing that they can do together."""
    # What is left out stands for the version itself, so that a later agent has to say that it speaks this one too.
    oldest = hello.min_version or hello.nps_version
    if pair(hello.nps_version) is None or pair(oldest) is None or is_older(offer.version, oldest):
        return _incompatible(oldest, offer)
    if is_older(hello.nps_version, offer.oldest):
        told = f"Agents speak {offer.oldest} or later here"
        return failure(VersionUnsupported(told, min_agent_version=offer.oldest))
    version = hello.nps_version if is_older(hello.nps_version, offer.version) else offer.version
    protocols = tuple(each for each in dict.fromkeys(hello.supported_protocols) if each in offer.protocols)
    # NCP 2.6: what both can do must not be nothing, nor be less than the agent wants.
    if is_older(version, oldest):
        return _incompatible(oldest, offer)
    if not protocols:
        return _no_protocol(offer)
    tier = next((each for each in offer.encodings if each.token in hello.supported_encodings), None)
    if tier is None:
        return _no_encoding(offer)
    is_extended = bool(hello.ext_support) and offer.is_extended
    # The length of a payload has two bytes in the default header.
    largest = offer.payload if is_extended else min(offer.payload, LARGEST)
    return Agreed(
        version=version,
        tier=tier,
        protocols=protocols,
        payload=_smaller(hello.max_frame_payload, LARGEST, largest),
        streams=_smaller(hello.max_concurrent_streams, STREAMS, offer.streams),
        is_extended=is_extended,
    )


def welcome(agreed: Agreed, offer: Offer, node_id: str, capabilities: list[str]) -> WelcomeFrame:
    """What was agreed on: as agents of 0.4 read it, and as later ones do."""
    said: dict[str, Any] = {
        "nps_version": offer.version,
        "session_version": agreed.version,
        "max_frame_payload": agreed.payload,
        "negotiated_encoding": agreed.tier.token,
        "enabled_encodings": [agreed.tier.token],
        "supported_protocols": list(agreed.protocols),
        "ext_support": agreed.is_extended,
        "max_concurrent_streams": agreed.streams,
    }
    data: list[dict[str, Any]] = [{**said, "e2e_enc_algorithms": []}]
    return WelcomeFrame(anchor_ref=CAPS_REF, count=1, data=data, node_id=node_id, caps=capabilities, **said)


def _smaller(said: int | None, otherwise: int, own: int) -> int:
    return min(otherwise if said is None else said, own)


def _incompatible(oldest: str, offer: Offer) -> ErrorFrame:
    return ErrorFrame(
        status="NPS-PROTO-VERSION-INCOMPATIBLE",
        error="NCP-VERSION-INCOMPATIBLE",
        message=f"{offer.version} is spoken here",
        details={"server_version": offer.version, "client_min_version": oldest[:40]},
    )


def _no_protocol(offer: Offer) -> ErrorFrame:
    return ErrorFrame(
        status="NPS-PROTO-VERSION-INCOMPATIBLE",
        error="NCP-VERSION-INCOMPATIBLE",
        message=f"Protocols here are {', '.join(offer.protocols)}",
        details={"server_version": offer.version, "supported_protocols": list(offer.protocols)},
    )


def _no_encoding(offer: Offer) -> ErrorFrame:
    known = [each.token for each in offer.encodings]
    return ErrorFrame(
        status="NPS-SERVER-ENCODING-UNSUPPORTED",
        error="NCP-ENCODING-UNSUPPORTED",
        message=f"Encodings here are {' and '.join(known)}",
        details={"supported_encodings": known},
    )
