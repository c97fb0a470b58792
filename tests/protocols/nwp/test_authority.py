"""Whom the site has certified, as others ask it over HTTP."""

from datetime import UTC, datetime

import httpx
import msgspec
import rfc8785
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking, listening

from portico.access.nip import verify_signature
from portico.access.nip.authority import IssuedCertificate, SiteAuthority
from portico.server.assembly import Parts

TOWN = {"server": {"url": "https://town.example"}}
UNKNOWN = "NIP-CA-NID-NOT-FOUND"


async def issued(parts: Parts, name: str, *, revoked: bool = False) -> IssuedCertificate:
    made = await SiteAuthority(parts.config, parts.store).issue(name, nodes=["nwp://inn.example/*"])
    if revoked:
        await parts.store.keys.revoke(made.key.id, datetime.now(UTC))
    return made


async def verified(client: httpx.AsyncClient, nid: str) -> httpx.Response:
    return await client.get(f"/v1/agents/{nid}/verify")


@requirement("nwp:identity:authority")
async def test_an_authority_says_who_it_is_with_which_key_and_where_to_ask(inn: Inn) -> None:
    async with inn(**TOWN) as parts, asking(parts) as client:
        own = SiteAuthority(parts.config, parts.store)
        document = await client.get("/.well-known/nps-ca")
        key = await client.get("/v1/ca/cert")

    assert document.json() == own.document("https://town.example")
    assert document.headers["access-control-allow-origin"] == "*"
    assert key.json() == {
        "issuer": "urn:nps:org:town.example",
        "public_key": own.public_key,
        "algorithm": "ed25519",
    }


@requirement("nwp:identity:revocation")
async def test_a_name_has_a_good_certificate_or_not_and_nothing_more_is_said(inn: Inn) -> None:
    async with inn(**TOWN) as parts, asking(parts) as client:
        good, bad = await issued(parts, "ann"), await issued(parts, "bob", revoked=True)
        nids = [good.key.name, bad.key.name, "urn:nps:agent:town.example:eve", "urn:nps:agent", "x' OR 1=1 --"]
        answers = [await verified(client, nid) for nid in nids]
        long = await verified(client, f"{good.key.name}{'n' * 5000}")

    assert {each.status_code for each in (*answers, long)} == {200}
    assert {each.headers["cache-control"] for each in answers} == {"no-cache"}
    assert answers[0].json() == {
        "valid": True,
        "nid": good.key.name,
        "expires_at": good.certificate["expires_at"],
        "serial": good.certificate["serial"],
    }
    assert [each.json() for each in answers[1:]] == [
        {"valid": False, "nid": nid, "error_code": code}
        for nid, code in zip(nids[1:], ("NIP-CERT-REVOKED", UNKNOWN, UNKNOWN, UNKNOWN), strict=True)
    ]
    assert (long.json()["error_code"], len(long.json()["nid"])) == (UNKNOWN, 512)


@requirement("nwp:identity:revocation")
async def test_the_list_of_what_is_revoked_is_signed_and_the_same_until_it_grows(inn: Inn) -> None:
    async with inn(**TOWN) as parts:
        async with asking(parts) as client:
            key = (await client.get("/.well-known/nps-ca")).json()["public_key"]
            empty = await client.get("/v1/crl")
        bob = await issued(parts, "bob", revoked=True)
        async with asking(parts) as client:  # another process: this one may remember the list for a moment
            grown = await client.get("/v1/crl", headers={"if-none-match": empty.headers["etag"]})
            again = await client.get("/v1/crl", headers={"if-none-match": grown.headers["etag"]})

    body = grown.json()
    signature = body.pop("signature")
    assert empty.json()["entries"] == []
    assert [(each["nid"], each["serial"]) for each in body["entries"]] == [(bob.key.name, bob.certificate["serial"])]
    assert verify_signature(key, rfc8785.dumps(body), signature)
    assert again.status_code == 304


async def test_nothing_can_be_registered_or_changed_over_http(inn: Inn) -> None:
    async with inn(**TOWN) as parts, asking(parts) as client:
        made = await issued(parts, "ann")
        register = await client.post("/v1/agents/register", json={"nid": "urn:nps:agent:town.example:eve"})
        others = [
            await client.post(path, json={})
            for path in ("/.well-known/nps-ca", "/v1/ca/cert", "/v1/crl", f"/v1/agents/{made.key.name}/verify")
        ]
        eve = await verified(client, "urn:nps:agent:town.example:eve")

    assert (register.status_code, register.headers["allow"]) == (405, "")
    assert [each.status_code for each in others] == [405] * 4
    assert eve.json()["valid"] is False


@requirement("nwp:identity:authority", "nwp:identity:revocation", "nwp:identity:issuing")
async def test_another_site_takes_the_certificates_of_this_one(inn: Inn) -> None:
    async with inn(**TOWN) as town, listening(town) as port:
        ann, bob = await issued(town, "ann"), await issued(town, "bob", revoked=True)
        trusting = {"auth": "nip-cert", "issuers": [f"http://127.0.0.1:{port}"]}
        at_home = {"url": "https://inn.example"}
        async with inn(server=at_home, nwp=trusting, allow_hosts=["127.0.0.1"]) as parts, asking(parts) as client:
            answers = [
                await client.post("/nwp/rooms/query", json={}, headers={"x-nwp-ident": shown})
                for shown in (msgspec.json.encode(each.certificate).decode() for each in (ann, bob))
            ]

    assert [each.status_code for each in answers] == [200, 401]
    assert answers[0].json()["count"] == 3
    assert answers[1].json()["error"] == "NWP-AUTH-NID-REVOKED"
