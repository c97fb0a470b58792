"""Certificates of agents: those of this site, and those of authorities that listen on loopback."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from nps_sdk.nip.ca import InMemoryNipCaStore, NipCaOptions, NipCaRouterApp, NipCaService
from nps_sdk.nip.identity import NipIdentity
from tests.conformance.requirements import requirement

from portico.access.identity import Identity, RequestCredentials
from portico.access.nip import (
    allows_action,
    canonical_body,
    covers,
    is_nid,
    render_key,
    sign,
    timestamp,
    verify_signature,
)
from portico.access.nip.authority import SiteAuthority
from portico.access.nip.verifier import DOCUMENT_SECONDS, RETRY_SECONDS, AuthorityLocation, CertificateVerifier
from portico.catalog import Danger, Trust
from portico.errors import (
    BadRequest,
    CertificateExpired,
    CertificateRevoked,
    ConfigError,
    Conflict,
    Unauthenticated,
    Unavailable,
    UntrustedIssuer,
)
from portico.protocols import parse_config
from portico.requests import Caller, Warrant
from portico.server.assembly import open_site
from portico.store import Store, open_store

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = "urn:nps:agent:inn.example:ann"
BOB = "urn:nps:agent:elsewhere.example:bob"


@dataclass
class Clock:
    now: float = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


@dataclass
class Inn:
    """A site at inn.example, at a time of the test's choosing."""

    store: Store
    clock: Clock = field(default_factory=Clock)

    def config(self, url: str = "https://inn.example", **nwp: Any) -> Any:
        return parse_config({"server": {"url": url}, "nwp": nwp, "allow_hosts": ["127.0.0.1"]})

    @property
    def authority(self) -> SiteAuthority:
        return SiteAuthority(self.config(), self.store, self.clock)

    def identity(self, **nwp: Any) -> Identity:
        verifier = CertificateVerifier(self.config(**nwp), self.store, self.clock)
        return Identity(self.store.keys.find, frozenset(), find_agent=verifier.agent)

    async def certificate(self, name: str = "ann", **said: Any) -> dict[str, Any]:
        return dict((await self.authority.issue(name, **said)).certificate)


@pytest.fixture
async def inn() -> AsyncIterator[Inn]:
    store = await open_store("sqlite:///:memory:")
    yield Inn(store)
    await store.close()


def shown(certificate: Any, agent: str = "") -> RequestCredentials:
    return RequestCredentials(certificate=json.dumps(certificate).encode(), agent=agent)


# Form


def test_a_signature_covers_all_but_itself_and_the_metadata() -> None:
    frame = {
        "nid": ANN,
        "signature": "ed25519:…",
        "scope": {"nodes": ["nwp://café.example/*"], "max_token_budget": 50000},
        "capabilities": ["nwp:query", "nwp:action"],
        "metadata": {"model_family": "some/model"},
        "lineage": {"role": "session", "group_nid": "g"},
        "cert_format": "v1",
        "cert_chain": [],
    }
    expected = (
        '{"capabilities":["nwp:query","nwp:action"],"frame":"0x20","lineage":{"group_nid":"g","role":"session"},'
        '"nid":"urn:nps:agent:inn.example:ann","scope":{"max_token_budget":50000,"nodes":["nwp://café.example/*"]}}'
    )

    assert canonical_body(frame) == canonical_body({**frame, "frame": "0x20"}) == expected.encode()


def test_a_key_is_read_with_its_header_or_without_and_nothing_else_is() -> None:
    key = Ed25519PrivateKey.generate()
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    bare = "ed25519:" + base64.urlsafe_b64encode(raw).decode()
    der, signature = render_key(key.public_key()), sign(key, b"text")
    good = [der, der.rstrip("="), bare, bare.rstrip("=")]
    wrong = ["", "ed25519:", f"ed25519:{raw.hex()}", raw.hex(), bare[8:], "rsa:" + bare[8:], f"{bare[:-4]}====", "é"]

    assert [verify_signature(each, b"text", signature) for each in good] == [True] * 4
    assert verify_signature(der, b"text", signature.rstrip("="))
    assert not any(verify_signature(each, b"text", signature) for each in wrong)
    assert not any(verify_signature(der, b"text", each) for each in [*wrong, key.sign(b"text").hex(), "x" * 9000])
    assert not verify_signature(der, b"other", signature)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (ANN, True),
        ("urn:nps:node:inn.example:rooms", True),
        ("urn:nps:org:inn.example", True),
        ("urn:nps:org:inn.example:ca", True),
        ("urn:nps:agent:inn.example", False),
        ("urn:nps:agent:inn.example:a b", False),
        ("urn:nps:agent:inn.example:a:b", False),
        ("urn:nps:robot:inn.example:ann", False),
        (f"{ANN}\n", False),
        ("", False),
    ],
)
def test_a_nid_names_a_kind_a_domain_and_an_identifier(text: str, is_one: bool) -> None:
    assert is_nid(text) is is_one


ROOMS = "nwp://inn.example:17433/rooms"


@pytest.mark.parametrize(
    ("node", "covered", "exactly"),
    [
        ("*", True, False),
        ("nwp://*", True, False),
        ("nwp://inn.example", True, False),
        ("nwp://inn.example/*", True, False),
        ("nwp://INN.example/rooms", True, True),
        ("nwp://inn.example:17433/rooms/", True, True),
        ("nwp://inn.example/rooms/*", True, False),
        ("nwp://inn.example/room", False, False),
        ("nwp://inn.example/rooms/attic", False, False),
        ("nwp://inn.example/ro*", False, False),
        ("nwp://inn.example:17434/rooms", False, False),
        ("nwp://inn", False, False),
        ("nwp://other.example/*", False, False),
        ("https://inn.example/rooms", False, False),
        ("nwp:", False, False),
        ("", False, False),
    ],
)
def test_a_scope_covers_a_node_and_what_lies_below(node: str, covered: bool, exactly: bool) -> None:
    assert (covers((node,), ROOMS), covers((node,), ROOMS, exact=True)) == (covered, exactly)


def test_no_scope_covers_nothing() -> None:
    assert not covers((), ROOMS)


@pytest.mark.parametrize(
    ("actions", "allowed"),
    [
        (None, True),
        (("orders:create",), True),
        (("orders.create",), True),
        (("rooms:read", "orders:*"), True),
        (("*",), True),
        (("orders:read",), False),
        (("order:*",), False),
        (("orders",), False),
        ((), False),
    ],
)
def test_an_action_is_allowed_by_name_or_with_its_whole_group(actions: tuple[str, ...] | None, allowed: bool) -> None:
    assert allows_action(actions, "orders.create") is allowed


# This site


async def test_an_agent_of_the_site_is_known_by_its_certificate(tmp_path: Path) -> None:
    config = parse_config({"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}})
    async with open_site(config, background=False) as parts:
        issued = await SiteAuthority(config, parts.store).issue(
            "ann",
            capabilities=["nwp:query"],
            nodes=["nwp://localhost/rooms"],
            actions=["rooms:book"],
            budget=500,
            scopes=["read:rooms"],
            danger=Danger.REVERSIBLE,
            metadata={"model_family": "some/model", "tokenizer": "cl100k_base"},
        )
        credentials = RequestCredentials(address="10.0.0.1", certificate=json.dumps(issued.certificate).encode())
        caller = await parts.site.access.authenticate(credentials)
        named = await parts.site.access.authenticate(RequestCredentials(agent="urn:nps:agent:localhost:ann"))

        assert await parts.store.keys.list_all() == [issued.key]

    warrant = Warrant(
        frozenset({"nwp:query"}), ("nwp://localhost/rooms",), ("rooms:book",), 500, "cl100k_base", issued.key.id
    )
    nid = "urn:nps:agent:localhost:ann"
    scopes = frozenset({"read:rooms"})
    assert caller == Caller(f"nip:{nid}", nid, scopes, Danger.REVERSIBLE, "10.0.0.1", warrant)
    assert named.is_anonymous
    assert issued.certificate["serial"] == f"0x{issued.key.id}"
    private = load_pem_private_key(issued.private_key.encode(), None)
    assert isinstance(private, Ed25519PrivateKey)
    assert render_key(private.public_key()) == issued.certificate["pub_key"]


async def test_a_certificate_says_little_unless_more_is_said(inn: Inn) -> None:
    own = render_key(Ed25519PrivateKey.generate().public_key())
    issued = await inn.authority.issue("ann", public_key=own.rstrip("="))
    caller = await inn.identity().caller(shown(issued.certificate, ANN))

    usual = frozenset({"nwp:query", "nwp:stream", "nwp:action", "nwp:invoke"})
    assert caller.warrant == Warrant(usual, ("nwp://inn.example/*",), record=issued.key.id)
    assert (caller.scopes, caller.danger) == (frozenset(), Danger.SAFE)
    assert (issued.private_key, issued.certificate["pub_key"]) == ("", own)
    assert issued.key.expires == NOW + timedelta(days=30)


async def test_metadata_may_change_and_nothing_else(inn: Inn) -> None:
    good, identity = await inn.certificate(), inn.identity()

    for metadata, tokenizer in (({"model_family": "m"}, "m"), ({"tokenizer": 5}, ""), ([1], ""), (None, "")):
        caller = await identity.caller(shown({**good, "metadata": metadata}))
        assert caller.warrant
        assert caller.warrant.tokenizer == tokenizer

    changes = [
        {"capabilities": [*good["capabilities"], "nop:delegate"]},
        {"scope": {**good["scope"], "nodes": ["*"]}},
        {"expires_at": timestamp(NOW + timedelta(days=300))},
        {"nid": "urn:nps:agent:inn.example:root"},
        {"lineage": {"role": "session"}},
        {"serial": "0x1"},
        {"signature": "ed25519:" + "0123456789abcdef" * 8},
        {"signature": sign(Ed25519PrivateKey.generate(), canonical_body(good))},
    ]
    for change in changes:
        with pytest.raises(UntrustedIssuer, match="signature"):
            await identity.caller(shown({**good, **change}))


async def test_a_certificate_counts_between_its_two_times(inn: Inn) -> None:
    good, identity = await inn.certificate(days=1), inn.identity()
    for early in (-30, 0, 86399):
        inn.clock.now = NOW.timestamp() + early
        assert await identity.caller(shown(good))

    for wrong in (-61, 86400, 86400 * 40):
        inn.clock.now = NOW.timestamp() + wrong
        with pytest.raises(CertificateExpired):
            await identity.caller(shown(good))
        with pytest.raises(CertificateExpired):  # before anything else is looked at
            await inn.identity().caller(shown({**good, "issued_by": "urn:nps:org:other.example", "signature": "x"}))


async def test_a_revoked_certificate_ends_at_once_and_others_stay(inn: Inn) -> None:
    identity = inn.identity()
    first, second = await inn.authority.issue("ann"), await inn.authority.issue("ann")
    await identity.caller(shown(first.certificate))

    await inn.store.keys.revoke(first.key.id, NOW)

    with pytest.raises(CertificateRevoked):
        await identity.caller(shown(first.certificate))
    assert (await identity.caller(shown(second.certificate))).name == ANN


@requirement("nwp:identity:renewal")
async def test_a_certificate_is_renewed_in_its_last_week_and_the_old_one_is_good_for_an_hour_more(inn: Inn) -> None:
    identity, day = inn.identity(), 86400
    old = await inn.authority.issue(
        "ann",
        capabilities=["nwp:query"],
        nodes=["nwp://inn.example/rooms"],
        budget=500,
        metadata={"runtime": "x"},
        scopes=["read:rooms"],
        danger=Danger.REVERSIBLE,
        trust=Trust.CERTIFIED,
    )
    raw = shown(old.certificate).certificate

    inn.clock.now += 23 * day - 1
    with pytest.raises(BadRequest, match="from 2026-05-24T12:00:00Z"):
        await inn.authority.renew(raw)
    inn.clock.now += 1
    new = await inn.authority.renew(raw)

    same = ("nid", "pub_key", "capabilities", "scope", "issued_by", "metadata")
    assert [new.certificate[name] for name in same] == [old.certificate[name] for name in same]
    assert (new.certificate["issued_at"], new.certificate["expires_at"]) == (
        "2026-05-24T12:00:00Z",
        "2026-06-23T12:00:00Z",
    )
    assert new.certificate["serial"] != old.certificate["serial"]
    assert new.private_key == ""
    before, after = [await identity.caller(shown(each.certificate)) for each in (old, new)]
    assert before == replace(after, warrant=replace(after.warrant, record=old.key.id))
    assert (await inn.authority.list_revoked())["entries"] == []
    inn.clock.now += 3599
    assert await identity.caller(shown(old.certificate))
    inn.clock.now += 1
    with pytest.raises(CertificateRevoked):
        await identity.caller(shown(old.certificate))
    assert await identity.caller(shown(new.certificate)) == after
    assert (await inn.authority.verify(ANN))["serial"] == new.certificate["serial"]
    assert [each["serial"] for each in (await inn.authority.list_revoked())["entries"]] == [old.certificate["serial"]]


@requirement("nwp:identity:renewal")
async def test_nothing_is_renewed_that_is_not_good_and_nothing_twice(inn: Inn) -> None:
    renew, good = inn.authority.renew, await inn.certificate(days=1)
    revoked, renewed = await inn.authority.issue("bob", days=1), await inn.certificate("cid", days=1)
    await inn.store.keys.revoke(revoked.key.id, NOW)
    await renew(shown(renewed).certificate)

    for wrong, error in (
        ({**good, "scope": {"nodes": ["*"]}}, UntrustedIssuer),
        ({**good, "issued_by": "urn:nps:org:other.example"}, UntrustedIssuer),
        (inn.authority.node_certificate(), CertificateRevoked),
        (revoked.certificate, CertificateRevoked),
        (renewed, Conflict),
        ("none", UntrustedIssuer),
    ):
        with pytest.raises(error):
            await renew(shown(wrong).certificate)
    inn.clock.now += 86400
    with pytest.raises(CertificateExpired):
        await renew(shown(good).certificate)


async def test_of_two_who_renew_one_certificate_at_once_one_does(inn: Inn) -> None:
    raw = shown({**await inn.certificate(days=1), "metadata": "odd"}).certificate
    later = SiteAuthority(inn.config(), inn.store, Clock(inn.clock.now + 2))

    done = await asyncio.gather(*(each.renew(raw) for each in (later, inn.authority)), return_exceptions=True)

    assert sorted(type(each).__name__ for each in done) == ["Conflict", "IssuedCertificate"]
    assert sum(each.revoked is None and each.until is None for each in await inn.store.keys.list_all()) == 1


async def test_a_certificate_without_a_record_counts_for_nothing(inn: Inn) -> None:
    for unrecorded in (inn.authority.node_certificate(), inn.authority.node_certificate("rooms")):
        with pytest.raises(CertificateRevoked):
            await inn.identity().caller(shown(unrecorded))


async def test_a_certificate_is_of_the_agent_that_is_named_and_stands_alone(inn: Inn) -> None:
    good = shown(await inn.certificate())

    with pytest.raises(UntrustedIssuer, match="another agent"):
        await inn.identity().caller(
            RequestCredentials(certificate=good.certificate, agent="urn:nps:agent:inn.example:bob")
        )
    with pytest.raises(Unauthenticated, match="both a certificate and a key"):
        await inn.identity().caller(RequestCredentials("pk_x", certificate=good.certificate))
    with pytest.raises(Unauthenticated, match="does not accept certificates"):
        await Identity(inn.store.keys.find, frozenset()).caller(good)
    assert "serial" not in repr(good)


async def test_what_is_no_certificate_is_refused(inn: Inn) -> None:
    identity = inn.identity()
    for ident in (b"x", b"{}", b"[]", b"\xff\xfe", b"[" * 8000, b'{"scope":' * 800):
        with pytest.raises(UntrustedIssuer, match="is malformed"):
            await identity.caller(RequestCredentials(certificate=ident))
    with pytest.raises(UntrustedIssuer, match="at most 8192 bytes"):
        await identity.caller(shown({**await inn.certificate(), "metadata": "x" * 8192}))


async def test_a_certificate_with_a_wrong_value_is_refused(inn: Inn) -> None:
    good, identity = await inn.certificate(), inn.identity()
    changes = [
        {"frame": "0x21"},
        {"nid": "ann"},
        {"issued_by": "inn.example"},
        {"issued_at": "2026-05-01"},
        {"expires_at": "2026-06-01T00:00:00+02:00"},
        {"expires_at": "2026-06-01T00:00:00"},
        {"expires_at": "2026-13-01T00:00:00Z"},
        {"serial": "first"},
        {"capabilities": "nwp:query"},
        {"scope": None},
        {"more": 2**60},
        {"more": "\ud800"},
    ]
    for change in changes:
        with pytest.raises(UntrustedIssuer, match="is malformed"):
            await identity.caller(shown({**good, **change}))


async def test_nothing_is_issued_that_makes_no_sense(inn: Inn) -> None:
    for wrong in ({"days": 0}, {"days": 400}, {"public_key": "ed25519:x"}, {"public_key": "ab" * 32}):
        with pytest.raises(BadRequest):
            await inn.authority.issue("ann", **wrong)
    for name in ("", "a b", "a:b", "x" * 129, "é"):
        with pytest.raises(BadRequest):
            await inn.authority.issue(name)
    with pytest.raises(ConfigError):
        await inn.authority.issue("ann", scopes=["write:rooms"])

    assert await inn.store.keys.list_all() == []


async def test_the_site_tells_of_its_certificates(inn: Inn) -> None:
    ann, bob = await inn.authority.issue("ann"), await inn.authority.issue("bob", days=1)
    await inn.store.keys.revoke(ann.key.id, NOW)
    again = await inn.authority.issue("carl")
    carl = "urn:nps:agent:inn.example:carl"
    inn.clock.now += 2 * 86400
    node = inn.authority.node_certificate("rooms")
    revoked = await inn.authority.list_revoked()

    said = [await inn.authority.verify(nid) for nid in (carl, ANN, bob.key.name, "nobody", node["nid"])]
    assert said == [
        {"valid": True, "nid": carl, "expires_at": "2026-05-31T12:00:00Z", "serial": again.certificate["serial"]},
        {"valid": False, "nid": ANN, "error_code": "NIP-CERT-REVOKED"},
        {"valid": False, "nid": bob.key.name, "error_code": "NIP-CERT-EXPIRED"},
        {"valid": False, "nid": "nobody", "error_code": "NIP-CA-NID-NOT-FOUND"},
        {"valid": True, "nid": node["nid"], "expires_at": node["expires_at"], "serial": node["serial"]},
    ]
    serial = ann.certificate["serial"]
    entry = {"nid": ANN, "serial": serial, "revoked_at": "2026-05-01T12:00:00Z", "reason": "revoked"}
    body = {"entries": [entry], "issued_at": "2026-05-03T12:00:00Z", "issued_by": "urn:nps:org:inn.example"}
    signed = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    assert {name: each for name, each in revoked.items() if name != "signature"} == body
    assert verify_signature(inn.authority.public_key, signed, revoked["signature"])


async def test_others_may_be_told_of_a_revocation_a_second_late_and_the_site_knows_it_at_once(inn: Inn) -> None:
    authority, identity = inn.authority, inn.identity()
    ann = await authority.issue("ann")
    good = await authority.verify(ANN)
    await inn.store.keys.revoke(ann.key.id, NOW)

    inn.clock.now += 0.9
    assert good["valid"]
    assert (await authority.verify(ANN), (await authority.list_revoked())["entries"]) == (good, [])
    with pytest.raises(CertificateRevoked):
        await identity.caller(shown(ann.certificate))

    inn.clock.now += 0.1
    assert await authority.verify(ANN) == {"valid": False, "nid": ANN, "error_code": "NIP-CERT-REVOKED"}
    assert [each["nid"] for each in (await authority.list_revoked())["entries"]] == [ANN]


async def test_a_crowd_that_asks_of_certificates_costs_one_look(inn: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = await inn.authority.issue("ann")
    looks: list[float] = []
    list_all = inn.store.keys.list_all

    async def watched() -> Any:
        looks.append(inn.clock.now)
        return await list_all()

    monkeypatch.setattr(inn.store.keys, "list_all", watched)
    authority = inn.authority
    told = await asyncio.gather(*(authority.verify(each) for each in (ANN, "nobody", ANN)), authority.list_revoked())

    assert [each.get("serial") for each in told[:3]] == [ann.certificate["serial"], None, ann.certificate["serial"]]
    assert looks == [NOW.timestamp()]


async def test_all_processes_of_a_store_have_the_same_keys_and_other_stores_have_others(inn: Inn) -> None:
    one, two = inn.authority, inn.authority
    other = await open_store("sqlite:///:memory:")
    elsewhere = SiteAuthority(inn.config(), other)
    await other.close()

    assert one.node_certificate() == two.node_certificate()
    assert (one.public_key, one.node_public_key) == (two.public_key, two.node_public_key)
    assert len({one.public_key, one.node_public_key, elsewhere.public_key, elsewhere.node_public_key}) == 4
    assert verify_signature(two.node_public_key, b"done", one.sign(b"done"))


async def test_names_have_the_host_that_the_world_knows(inn: Inn) -> None:
    urls = ["https://Shop.example:8443/x", "", "http://[::1]:8000", "https://café.example"]

    assert [SiteAuthority(inn.config(url), inn.store).nid for url in urls] == [
        "urn:nps:org:shop.example",
        "urn:nps:org:localhost",
        "urn:nps:org:--1",
        "urn:nps:org:xn--caf-dma.example",
    ]


# Authorities elsewhere


@dataclass
class Web:
    """What authorities publish by path, and what they were asked for."""

    url: str
    published: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    def publish(self, nid: str = "urn:nps:org:elsewhere.example", under: str = "", endpoints: str = "verify") -> None:
        document = {"issuer": nid, "public_key": render_key(self.key.public_key()), "endpoints": {endpoints: "…"}}
        self.published[f"{under}/.well-known/nps-ca"] = document
        self.tell(True)

    def tell(self, valid: bool, nid: str = BOB, **more: Any) -> None:
        self.published[f"/v1/agents/{nid}/verify"] = {"valid": valid, **more}

    def certificate(self, **said: Any) -> dict[str, Any]:
        """A good certificate of elsewhere.example for bob, but for what is said."""
        frame = {
            "nid": BOB,
            "pub_key": render_key(self.key.public_key()),
            "capabilities": ["nwp:query"],
            "scope": {"nodes": ["nwp://inn.example"]},
            "issued_by": "urn:nps:org:elsewhere.example",
            "issued_at": timestamp(NOW),
            "expires_at": timestamp(NOW + timedelta(days=30)),
            "serial": "0x0A3F",
            **said,
        }
        return {**frame, "signature": sign(self.key, canonical_body(frame))}

    def revoke(self, *serials: str, key: Ed25519PrivateKey | None = None) -> None:
        entries = [{"nid": BOB, "serial": each, "revoked_at": timestamp(NOW)} for each in serials]
        body = {"issued_by": "urn:nps:org:elsewhere.example", "issued_at": timestamp(NOW), "entries": entries}
        raw = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
        self.published["/v1/crl"] = {**body, "signature": sign(key or self.key, raw)}


@pytest.fixture(scope="module")
def listening() -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.asked.append(self.path)
            found = web.published.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web = Web(f"http://127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield web
        server.shutdown()
        serving.join()


@pytest.fixture
def web(listening: Web) -> Web:
    listening.published.clear()
    listening.asked.clear()
    listening.publish()
    return listening


@requirement("nwp:identity:times")
async def test_an_authority_writes_utc_in_either_way(inn: Inn, web: Web) -> None:
    identity = inn.identity(issuers=[web.url])
    for said in ("2026-06-01T00:00:00Z", "2026-06-01T00:00:00+00:00", "2026-06-01T00:00:00.123456+00:00"):
        agent = await identity.caller(shown(web.certificate(expires_at=said)))

        assert agent.name == BOB
    with pytest.raises(CertificateExpired):
        await identity.caller(shown(web.certificate(expires_at="2026-04-01T00:00:00+00:00")))


async def test_an_agent_of_a_trusted_authority_may_do_what_the_site_file_says(inn: Inn, web: Web) -> None:
    identity = inn.identity(issuers=[web.url], scopes=["read:rooms"], danger="reversible")
    certificate = web.certificate(lineage={"purpose": "Zimmer für Ånn, 雨"}, later=[1.0, None])

    caller = await identity.caller(shown(certificate))
    assert await identity.caller(shown(certificate, BOB)) == caller

    warrant = Warrant(frozenset({"nwp:query"}), ("nwp://inn.example",))
    assert caller == Caller(f"nip:{BOB}", BOB, frozenset({"read:rooms"}), Danger.REVERSIBLE, "", warrant)
    assert web.asked == ["/.well-known/nps-ca", f"/v1/agents/{BOB}/verify"]
    with pytest.raises(UntrustedIssuer, match="signature"):
        await identity.caller(shown({**certificate, "later": [2.0, None]}))


@requirement("nwp:identity:keys")
async def test_an_authority_publishes_its_key_with_its_header_or_without_padded_or_not(inn: Inn, web: Web) -> None:
    raw = web.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    der = web.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    other = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    bob = shown(web.certificate())
    for key, is_good in {raw: True, der: True, other: False}.items():
        padded = f"ed25519:{base64.urlsafe_b64encode(key).decode()}"
        assert padded.endswith("=")
        for written in (padded, padded.rstrip("=")):
            web.published["/.well-known/nps-ca"]["public_key"] = written
            assert await is_taken(inn.identity(issuers=[web.url]), bob) is is_good


async def test_another_site_of_portico_is_an_authority_too(inn: Inn, web: Web) -> None:
    store = await open_store("sqlite:///:memory:")
    other = SiteAuthority(inn.config("https://elsewhere.example"), store, inn.clock)
    node, issued = other.node_certificate(), await other.issue("bob")
    web.published = {"/.well-known/nps-ca": other.document(web.url), "/v1/crl": await other.list_revoked()}
    for each in (node["nid"], BOB):
        web.published[f"/v1/agents/{each}/verify"] = await other.verify(each)
    await store.close()
    identity = inn.identity(issuers=[web.url])

    callers = [await identity.caller(shown(each)) for each in (node, issued.certificate)]

    assert [each.name for each in callers] == [node["nid"], BOB]


async def test_certificates_of_a_common_authority_are_good(inn: Inn, web: Web, tmp_path: Path) -> None:
    inn.clock.now = datetime.now(UTC).timestamp()
    options = NipCaOptions(ca_nid="urn:nps:org:elsewhere.example")
    ca = NipCaService(options, InMemoryNipCaStore(), NipIdentity.generate(str(tmp_path / "ca.key"), "secret"))
    key = render_key(web.key.public_key())
    frame = await ca.register("agent", "bob", key, ["nwp:query"], '{"nodes":["nwp://*"]}', '{"tokenizer":"o200k_base"}')
    transport = httpx.ASGITransport(NipCaRouterApp(options, ca))
    async with httpx.AsyncClient(transport=transport, base_url=web.url) as client:
        for path in ("/.well-known/nps-ca", f"/v1/agents/{BOB}/verify", "/v1/crl"):
            web.published[path] = (await client.get(path)).json()
    identity = inn.identity(issuers=[web.url])

    caller = await identity.caller(shown(frame.to_dict()))

    assert caller.warrant == Warrant(frozenset({"nwp:query"}), ("nwp://*",), tokenizer="o200k_base")


async def test_what_an_authority_says_counts_for_a_minute(inn: Inn, web: Web) -> None:
    identity, bob = inn.identity(issuers=[web.url]), shown(web.certificate())
    await identity.caller(bob)
    web.tell(False, error_code="NIP-CERT-REVOKED")

    inn.clock.now += 59
    assert await identity.caller(bob)
    inn.clock.now += 2
    with pytest.raises(CertificateRevoked):
        await identity.caller(bob)
    web.tell(False, error_code="NIP-CERT-EXPIRED")
    inn.clock.now += 61
    with pytest.raises(CertificateExpired):
        await identity.caller(bob)


async def test_a_key_that_an_authority_withdrew_is_forgotten_within_the_hour(inn: Inn, web: Web) -> None:
    identity, old = inn.identity(issuers=[web.url]), shown(web.certificate())
    await identity.caller(old)
    web.key = Ed25519PrivateKey.generate()
    web.publish()
    new = shown(web.certificate())
    with pytest.raises(UntrustedIssuer):
        await identity.caller(new)

    inn.clock.now += DOCUMENT_SECONDS
    async with asyncio.timeout(60):
        while not await is_taken(identity, new):  # the new key is read in the background
            await asyncio.sleep(0.01)
    assert not await is_taken(identity, old)


async def is_taken(identity: Identity, credentials: RequestCredentials) -> bool:
    try:
        return bool(await identity.caller(credentials))
    except UntrustedIssuer:
        return False


async def test_nobody_gets_in_by_an_authority_that_does_not_answer(inn: Inn, web: Web) -> None:
    identity, bob = inn.identity(issuers=[web.url]), shown(web.certificate())
    document = web.published.pop("/.well-known/nps-ca")
    web.published.pop(f"/v1/agents/{BOB}/verify")

    for _ in range(3):  # asked once, then let alone for a while
        with pytest.raises(Unavailable):
            await identity.caller(bob)
    assert web.asked == ["/.well-known/nps-ca"]

    web.published["/.well-known/nps-ca"] = document
    inn.clock.now += RETRY_SECONDS
    with pytest.raises(Unavailable):
        await identity.caller(bob)
    web.tell(True)
    inn.clock.now += RETRY_SECONDS
    assert (await identity.caller(bob)).name == BOB


@pytest.mark.parametrize(
    ("serials", "refusal"), [(["0x1"], None), (["0x1", "a3f"], CertificateRevoked), (["x"], Unavailable)]
)
async def test_an_authority_may_have_only_a_list_of_what_it_revoked(
    inn: Inn, web: Web, serials: list[str], refusal: type[Exception] | None
) -> None:
    web.publish(endpoints="crl")
    web.revoke(*serials)
    identity, bob = inn.identity(issuers=[web.url]), shown(web.certificate())

    if refusal is None:
        assert (await identity.caller(bob)).name == BOB
        return
    with pytest.raises(refusal):
        await identity.caller(bob)


async def test_a_list_that_its_authority_did_not_sign_is_no_answer(inn: Inn, web: Web) -> None:
    web.publish(endpoints="crl")
    web.revoke(key=Ed25519PrivateKey.generate())

    with pytest.raises(Unavailable):
        await inn.identity(issuers=[web.url]).caller(shown(web.certificate()))


async def test_an_answer_about_another_certificate_of_the_agent_leaves_the_question_open(inn: Inn, web: Web) -> None:
    web.tell(True, serial="0xB")
    old = shown(web.certificate())
    with pytest.raises(CertificateRevoked):
        await inn.identity(issuers=[web.url]).caller(old)
    assert await inn.identity(issuers=[web.url]).caller(shown(web.certificate(serial="0b")))

    web.published["/.well-known/nps-ca"]["endpoints"]["crl"] = "…"
    web.revoke("0xC")
    assert await inn.identity(issuers=[web.url]).caller(old)


async def test_an_authority_that_is_not_in_the_site_file_is_not_trusted(inn: Inn, web: Web) -> None:
    for issuers in ([], [web.url]):
        with pytest.raises(UntrustedIssuer, match="not trusted"):
            await inn.identity(issuers=issuers).caller(shown(web.certificate(issued_by="urn:nps:org:other.example")))


async def test_no_authority_speaks_for_the_agents_of_another(inn: Inn, web: Web) -> None:
    web.publish("urn:nps:org:third.example", under="/third")
    issuers = [web.url, f"{web.url}/third"]

    for nid in (ANN, "urn:nps:agent:third.example:ann"):
        with pytest.raises(UntrustedIssuer, match="cannot certify"):
            await inn.identity(issuers=issuers).caller(shown(web.certificate(nid=nid)))


async def test_an_authority_that_claims_to_be_this_site_is_not_heard(inn: Inn, web: Web) -> None:
    good = await inn.certificate()
    web.tell(True, ANN)
    claims = {"urn:nps:org:inn.example": UntrustedIssuer, "urn:nps:org:inn.example:second": Unavailable}
    for nid, refusal in claims.items():
        web.publish(nid)
        identity = inn.identity(issuers=[web.url])

        assert (await identity.caller(shown(good))).name == ANN
        with pytest.raises(refusal):
            await identity.caller(shown(web.certificate(nid=ANN, issued_by=nid)))


@pytest.mark.parametrize(
    ("host", "domain", "can_be"),
    [
        ("example.com", "example.com", True),
        ("ca.example.com", "example.com", True),
        ("a.ca.example.com", "example.com", True),
        ("ca.example.com", "com", False),
        ("example.com", "ca.example.com", False),
        ("badexample.com", "example.com", False),
        ("other.example", "example.com", False),
        ("ca.third.example", "third.example", False),
        ("other.example", "third.example", False),
    ],
)
def test_an_authority_is_called_as_its_host_or_as_a_domain_that_it_is_in(host: str, domain: str, can_be: bool) -> None:
    assert AuthorityLocation(host, frozenset({"third.example"})).may_speak_for(domain) is can_be


@pytest.mark.parametrize(
    ("domain", "can_be"),
    [("10.0.0.5", True), ("example.com", True), ("ca.third.example", False), ("third.example", False)],
)
def test_an_authority_nearby_may_have_any_name_that_is_no_other_ones(domain: str, can_be: bool) -> None:
    assert (
        AuthorityLocation("10.0.0.5", frozenset({"ca.third.example"}), is_allowed_host=True).may_speak_for(domain)
        is can_be
    )


async def test_nobody_has_the_name_or_the_agents_of_an_authority_that_cannot_be_read(inn: Inn, web: Web) -> None:
    away = "127.0.0.2"  # not among the hosts that may be reached
    identity = inn.identity(issuers=[web.url, f"https://{away}"])
    nid = f"urn:nps:agent:{away}:bob"
    web.tell(True, nid)
    with pytest.raises(UntrustedIssuer, match="cannot certify"):
        await identity.caller(shown(web.certificate(nid=nid)))

    web.publish(f"urn:nps:org:{away}")
    identity = inn.identity(issuers=[web.url, f"https://{away}"])
    with pytest.raises(Unavailable):
        await identity.caller(shown(web.certificate(nid=nid, issued_by=f"urn:nps:org:{away}")))
    assert await inn.identity(issuers=[web.url]).caller(
        shown(web.certificate(nid=nid, issued_by=f"urn:nps:org:{away}"))
    )


async def test_of_two_authorities_with_one_name_the_first_counts(inn: Inn, web: Web) -> None:
    certificate = shown(web.certificate())
    other = Ed25519PrivateKey.generate()
    document = {"issuer": "urn:nps:org:elsewhere.example", "public_key": render_key(other.public_key())}
    web.published["/other/.well-known/nps-ca"] = document

    assert await inn.identity(issuers=[web.url, f"{web.url}/other"]).caller(certificate)
    with pytest.raises(UntrustedIssuer, match="signature"):
        await inn.identity(issuers=[f"{web.url}/other", web.url]).caller(certificate)


async def test_an_authority_is_reached_safely_or_not_at_all(inn: Inn) -> None:
    for url in ("http://elsewhere.example", "ftp://127.0.0.1", "elsewhere.example", "https://a@b.c"):
        with pytest.raises(ConfigError, match=r"nwp\.issuers"):
            inn.identity(issuers=[url])


# Bare names


async def test_a_bare_name_is_believed_only_where_the_site_file_says_so(inn: Inn, web: Web) -> None:
    issued = await inn.authority.issue("ann", scopes=["*:*"], danger=Danger.DANGEROUS)
    web.tell(False, "urn:nps:agent:elsewhere.example:eve")
    identity = inn.identity(issuers=[web.url], trust_names=True, scopes=["ask"])

    callers = [await identity.caller(RequestCredentials(agent=each)) for each in (ANN, BOB)]
    warrant = Warrant(frozenset({"nwp:query"}), ("*",))
    assert callers == [Caller(f"nip:{each}", each, frozenset({"ask"}), warrant=warrant) for each in (ANN, BOB)]
    assert (await inn.identity().caller(RequestCredentials(agent=ANN))).is_anonymous

    await inn.store.keys.revoke(issued.key.id, NOW)
    inn.clock.now += 1
    for name in (ANN, "urn:nps:agent:inn.example:eve", "urn:nps:agent:elsewhere.example:eve"):
        with pytest.raises(CertificateRevoked):
            await identity.caller(RequestCredentials(agent=name))
    for name in ("urn:nps:agent:other.example:ann", inn.authority.node_nid(), "ann"):
        with pytest.raises(UntrustedIssuer):
            await identity.caller(RequestCredentials(agent=name))
