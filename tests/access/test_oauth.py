"""Access tokens of an authorization server that listens on loopback."""

import asyncio
import base64
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tests.conformance.requirements import requirement

from portico.access.identity import ApiKey, Identity, RequestCredentials
from portico.access.oauth import LIFETIME_SECONDS, PAUSE_SECONDS, RETRY_SECONDS, AuthorizationServer, audiences
from portico.catalog import Danger
from portico.errors import ConfigError, Unauthenticated, Unavailable
from portico.protocols import parse_config, resources
from portico.requests import Caller

SITE = "https://inn.example"
METADATA = "/.well-known/oauth-authorization-server"
ELLIPTIC = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
SECRET = b"known to whoever reads the keys."
EDWARDS = ed25519.Ed25519PrivateKey.generate()
Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def segment(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def public(key: Private, kid: str = "", **more: str) -> dict[str, Any]:
    """The key as an authorization server publishes it."""
    match key:
        case rsa.RSAPrivateKey():
            shown = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case ec.EllipticCurvePrivateKey():
            shown = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        case _:
            shown = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    shown.pop("key_ops", None)
    return {**shown, **({"kid": kid} if kid else {}), **more}


@dataclass
class Authority:
    """An authorization server: what it publishes by path, a text being a redirect, and what it was asked for."""

    url: str
    published: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    was_asked: threading.Event = field(default_factory=threading.Event)
    is_open: threading.Event = field(default_factory=threading.Event)  # whether it answers at all

    def publish(self, *keys: dict[str, Any]) -> None:
        self.published |= {METADATA: {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}, "/keys": {"keys": keys}}

    def token(
        self, key: Any = ELLIPTIC, kid: str = "one", alg: str = "ES256", typ: str = "at+jwt", **claims: Any
    ) -> str:
        """A good token, but for what is said. A claim that is None is left out."""
        now = int(datetime.now(UTC).timestamp())
        said = {"iss": self.url, "sub": "ann", "aud": SITE, "exp": now + 300, "iat": now, **claims}
        headers = {"typ": typ, **({"kid": kid} if kid else {})}
        return jwt.encode({name: each for name, each in said.items() if each is not None}, key, alg, headers)


@contextmanager
def listening_authority() -> Iterator[Authority]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            authority.asked.append(self.path)
            authority.was_asked.set()
            authority.is_open.wait(10)
            found = authority.published.get(self.path)
            self.send_response(404 if found is None else 302 if isinstance(found, str) else 200)
            if isinstance(found, str):
                self.send_header("location", found)
            self.end_headers()
            self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        authority = Authority(f"http://127.0.0.1:{server.server_port}")
        authority.is_open.set()
        authority.publish(public(ELLIPTIC, "one"))
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield authority
        server.shutdown()
        serving.join()


@pytest.fixture
def authority() -> Iterator[Authority]:
    with listening_authority() as authority:
        yield authority


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Trusting:
    """A site that trusts an authority, at a time of the test's choosing."""

    authority: Authority
    folder: Path
    clock: Clock = field(default_factory=Clock)

    def identity(self, server: dict[str, Any] | None = None, **oauth: Any) -> Identity:
        async def no_key(_: str) -> ApiKey | None:
            return None

        said = {"issuer": self.authority.url, **oauth}
        settings = {"oauth": said, "server": server or {"url": SITE}, "folder": str(self.folder)}
        config = parse_config({**settings, "allow_hosts": ["127.0.0.1"]})
        return Identity(no_key, frozenset(), find_holder=AuthorizationServer(config, resources(), self.clock).holder)

    def offline(self, **oauth: Any) -> Identity:
        """The same with the keys in a file beside the site file."""
        (self.folder / "keys.json").write_text(json.dumps({"keys": [public(ELLIPTIC, "one")]}))
        return self.identity(keys="keys.json", **oauth)


@pytest.fixture
def trusting(authority: Authority, tmp_path: Path) -> Trusting:
    return Trusting(authority, tmp_path)


async def refused(identity: Identity, token: str) -> str:
    with pytest.raises(Unauthenticated) as refusal:
        await identity.caller(RequestCredentials(token))
    return refusal.value.message


async def test_a_good_token_makes_a_caller_that_may_what_the_site_and_the_token_say(trusting: Trusting) -> None:
    identity = trusting.identity(scopes=["ask"], danger="reversible")
    token = trusting.authority.token(client_id="assistant", scope="openid read:rooms execute:book *:* write:rooms")

    caller = await identity.caller(RequestCredentials(token, "10.0.0.1"))

    assert caller == Caller(
        caller.id,
        "assistant",
        frozenset({"ask", "read:rooms", "execute:book", "*:*"}),
        Danger.REVERSIBLE,
        "10.0.0.1",
    )
    assert caller.id.startswith("oauth:")
    assert caller.id.endswith(":ann")
    assert caller.rate_key == caller.id
    assert trusting.authority.asked == [METADATA, "/keys"]


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({}, set()),
        ({"scp": "read:a ask"}, {"read:a", "ask"}),
        ({"scp": ["read:a", "nothing", 7]}, {"read:a"}),
        ({"scope": "read:a", "scp": ["read:b"]}, {"read:a", "read:b"}),
        ({"scope": 7, "scp": {"read:a": True}}, set()),
        ({"scope": "read:\ud800"}, set()),
    ],
)
async def test_scopes_come_as_text_or_as_a_list(trusting: Trusting, claims: dict[str, Any], scopes: set[str]) -> None:
    caller = await trusting.offline(scopes=[]).caller(RequestCredentials(trusting.authority.token(**claims)))

    assert caller.scopes == scopes


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"aud": "https://elsewhere.example"}, "The access token is for another audience"),
        ({"aud": ["https://inn.example.evil", "inn.example"]}, "The access token is for another audience"),
        ({"aud": None}, "The access token is not valid"),
        ({"iss": "https://elsewhere.example"}, "The access token is not valid"),
        ({"iss": None}, "The access token is not valid"),
        ({"exp": 1_000_000_000}, "The access token has expired"),
        ({"exp": None}, "The access token is not valid"),
        ({"nbf": 9_000_000_000}, "The access token is not valid yet"),
        ({"iat": 9_000_000_000}, "The access token is not valid yet"),
        ({"sub": None}, "The access token is not valid"),
        ({"sub": ""}, "The access token is not valid"),
        ({"typ": "logout+jwt"}, "The access token is not valid"),
        ({"key": OTHER}, "The access token is not valid"),
        ({"key": OTHER, "kid": ""}, "The access token is not valid"),
        ({"key": OTHER, "kid": "unheard of"}, "The access token is not valid"),
        ({"key": None, "alg": "none"}, "The access token is not valid"),
        ({"long": "x" * 8192}, "The access token is not valid"),
    ],
    ids=lambda said: str(said)[:50],
)
@requirement("mcp:auth:audience")
async def test_a_token_that_is_not_good_here_is_refused(
    trusting: Trusting, claims: dict[str, Any], message: str
) -> None:
    assert await refused(trusting.offline(), trusting.authority.token(**claims)) == message


async def test_clocks_may_differ_by_half_a_minute(trusting: Trusting) -> None:
    now, identity = int(datetime.now(UTC).timestamp()), trusting.offline()

    for claims in ({"exp": now - 15}, {"nbf": now + 15, "iat": now + 15}):
        assert (await identity.caller(RequestCredentials(trusting.authority.token(**claims)))).name == "ann"


@pytest.mark.parametrize("typ", ["JWT", "at+jwt", "application/at+jwt", ""])
async def test_a_token_may_call_itself_an_access_token_or_just_a_jwt(trusting: Trusting, typ: str) -> None:
    assert (await trusting.offline().caller(RequestCredentials(trusting.authority.token(typ=typ)))).name == "ann"


@pytest.mark.parametrize(
    "token",
    [
        "a.b.c",
        "..",
        "e30.e30.",
        "é.é.é",
        "\ud800..",
        segment(b"[" * 6000) + ".e30.e30",
        segment(b'{"alg": "none"}') + ".e30.",
        segment(b'{"alg": "HS256", "kid": "one"}') + ".e30.e30",
    ],
    ids=["letters", "dots", "empty", "accents", "surrogate", "deep", "unsigned", "symmetric"],
)
async def test_what_only_looks_like_a_token_is_refused_without_asking_anybody(trusting: Trusting, token: str) -> None:
    assert await refused(trusting.identity(), token) == "The access token is not valid"
    assert trusting.authority.asked == []


async def test_a_public_key_is_never_taken_for_a_secret(trusting: Trusting) -> None:
    authority, identity = trusting.authority, trusting.identity()
    authority.publish(public(RSA, "one"), {"kty": "oct", "kid": "one", "k": segment(SECRET)})
    header, payload = segment(b'{"alg":"HS256","kid":"one","typ":"at+jwt"}'), authority.token().split(".")[1]

    for secret in (RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), SECRET):
        signature = segment(hmac.digest(secret, f"{header}.{payload}".encode(), "sha256"))
        assert await refused(identity, f"{header}.{payload}.{signature}") == "The access token is not valid"

    assert (await identity.caller(RequestCredentials(authority.token(RSA, alg="RS256")))).name == "ann"


@pytest.mark.parametrize(
    ("key", "alg", "published"),
    [
        (RSA, "RS256", public(RSA, "one", alg="RS256", use="sig")),
        (RSA, "PS384", public(RSA, "one")),
        (EDWARDS, "EdDSA", public(EDWARDS, "one")),
        (ELLIPTIC, "ES256", public(ELLIPTIC, "one", d="AQAB")),
    ],
    ids=["RS256", "PS384", "EdDSA", "ES256"],
)
async def test_asymmetric_algorithms_are_known(
    trusting: Trusting, key: Private, alg: str, published: dict[str, Any]
) -> None:
    trusting.authority.publish({"kty": "AKP", "kid": "later"}, "no key", published)

    assert (await trusting.identity().caller(RequestCredentials(trusting.authority.token(key, alg=alg)))).name == "ann"


@pytest.mark.parametrize(
    "published",
    [public(RSA, "one", alg="RS512"), public(RSA, "one", use="enc"), public(ELLIPTIC, "one")],
    ids=["for another algorithm", "for encryption", "of another kind"],
)
async def test_a_key_counts_only_for_what_it_was_published_for(trusting: Trusting, published: dict[str, Any]) -> None:
    trusting.authority.publish(published, public(OTHER, "two"))

    message = await refused(trusting.identity(), trusting.authority.token(RSA, alg="RS256"))

    assert message == "The access token is not valid"


async def test_a_token_that_names_no_key_may_be_signed_with_any(trusting: Trusting) -> None:
    trusting.authority.publish(public(OTHER), public(ELLIPTIC, "two"))

    assert (await trusting.identity().caller(RequestCredentials(trusting.authority.token(kid="")))).name == "ann"


async def test_an_unknown_key_is_looked_for_once_a_minute_however_many_tokens_name_one(trusting: Trusting) -> None:
    identity, authority = trusting.identity(keys=f"{trusting.authority.url}/keys"), trusting.authority
    await identity.caller(RequestCredentials(authority.token()))

    for number in range(5):
        await refused(identity, authority.token(OTHER, f"made up {number}"))
    assert authority.asked == ["/keys"]

    trusting.clock.now += PAUSE_SECONDS
    for number in range(5):
        await refused(identity, authority.token(OTHER, f"made up {number}"))
    assert authority.asked == ["/keys"] * 2


async def test_a_new_key_of_the_issuer_is_found_and_a_withdrawn_one_forgotten(trusting: Trusting) -> None:
    identity, authority = trusting.identity(), trusting.authority
    old, new = authority.token(), authority.token(OTHER, "two", sub="bob")
    await identity.caller(RequestCredentials(old))

    authority.publish(public(OTHER, "two"))
    trusting.clock.now += PAUSE_SECONDS

    assert (await identity.caller(RequestCredentials(new))).name == "bob"
    assert await refused(identity, old) == "The access token is not valid"


async def test_callers_do_not_wait_while_old_keys_are_read_again(trusting: Trusting) -> None:
    identity, authority = trusting.identity(), trusting.authority
    await identity.caller(RequestCredentials(authority.token()))
    authority.publish(public(OTHER, "two"))
    authority.is_open.clear()
    authority.was_asked.clear()
    trusting.clock.now += LIFETIME_SECONDS

    assert (await identity.caller(RequestCredentials(authority.token()))).name == "ann"

    assert await asyncio.to_thread(authority.was_asked.wait, 60)
    authority.is_open.set()
    assert (await identity.caller(RequestCredentials(authority.token(OTHER, "two", sub="bob")))).name == "bob"
    assert authority.asked == [METADATA, "/keys"] * 2


async def test_many_who_come_at_once_have_the_keys_read_once_also_if_the_first_leaves(trusting: Trusting) -> None:
    identity, authority = trusting.identity(), trusting.authority
    authority.is_open.clear()
    coming = [asyncio.ensure_future(identity.caller(RequestCredentials(authority.token(sub=f"{n}")))) for n in range(5)]
    await asyncio.to_thread(authority.was_asked.wait, 60)

    coming[0].cancel()
    authority.is_open.set()

    assert [caller.name for caller in await asyncio.gather(*coming[1:])] == ["1", "2", "3", "4"]
    assert authority.asked == [METADATA, "/keys"]


async def test_known_keys_stay_good_while_the_issuer_is_away(trusting: Trusting) -> None:
    identity, authority = trusting.identity(), trusting.authority
    await identity.caller(RequestCredentials(authority.token()))
    authority.published.clear()

    for _ in range(3):
        trusting.clock.now += LIFETIME_SECONDS
        assert await refused(identity, authority.token(OTHER, "two")) == "The access token is not valid"
        assert (await identity.caller(RequestCredentials(authority.token()))).name == "ann"


async def test_without_any_keys_nobody_can_tell_and_it_is_tried_again_soon(trusting: Trusting) -> None:
    identity, authority = trusting.identity(), trusting.authority
    authority.published.clear()
    for _ in range(3):
        with pytest.raises(Unavailable, match="cannot be verified at the moment"):
            await identity.caller(RequestCredentials(authority.token()))
    assert authority.asked == [METADATA, "/.well-known/openid-configuration"]

    authority.publish(public(ELLIPTIC, "one"))
    trusting.clock.now += RETRY_SECONDS

    assert (await identity.caller(RequestCredentials(authority.token()))).name == "ann"


@pytest.mark.parametrize(
    "keys",
    [
        b"not JSON",
        b'{"keys": []}',
        b'{"keys": 7}',
        b"[" * 5000,
        json.dumps({"keys": [public(OTHER, "two"), "x" * (300 << 10)]}).encode(),
        json.dumps({"keys": [*[public(ELLIPTIC, "one")] * 50, public(OTHER, "two")]}).encode(),
    ],
    ids=["not JSON", "empty", "no list", "deep", "huge", "many"],
)
async def test_a_document_that_is_empty_or_endless_leaves_the_known_keys(trusting: Trusting, keys: bytes) -> None:
    identity, authority = trusting.identity(), trusting.authority
    await identity.caller(RequestCredentials(authority.token()))
    authority.published["/keys"] = keys
    trusting.clock.now += PAUSE_SECONDS

    await refused(identity, authority.token(OTHER, "two"))

    assert authority.asked == [METADATA, "/keys"] * 2
    assert (await identity.caller(RequestCredentials(authority.token()))).name == "ann"


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-authorization-server/tenant",
        "/tenant/.well-known/openid-configuration",
        "/tenant/.well-known/oauth-authorization-server",
    ],
)
async def test_an_issuer_with_a_path_has_its_metadata_where_it_likes(trusting: Trusting, path: str) -> None:
    authority, issuer = trusting.authority, f"{trusting.authority.url}/tenant"
    authority.published = {
        path: {"issuer": issuer, "jwks_uri": f"{authority.url}/keys"},
        "/keys": authority.published["/keys"],
    }

    caller = await trusting.identity(issuer=issuer).caller(RequestCredentials(authority.token(iss=issuer)))

    assert caller.name == "ann"


@pytest.mark.parametrize(
    ("metadata", "trouble"),
    [
        ({"issuer": "https://elsewhere.example", "jwks_uri": "{url}/keys"}, "404"),
        ({"issuer": "{url}", "jwks_uri": "http://login.example/keys"}, "is not https"),
        ({"issuer": "{url}", "jwks_uri": "https://10.0.0.1/keys"}, "not a public address"),
        ({"issuer": "{url}", "jwks_uri": "file:///etc/passwd"}, "neither http nor https"),
        ({"issuer": "{url}", "jwks_uri": "{url}/moved"}, "302"),
        ({"issuer": "{url}"}, "404"),
    ],
    ids=["another issuer", "plain http", "a private address", "a file", "a redirect", "no keys"],
)
async def test_metadata_lead_only_to_keys_of_the_issuer_by_a_safe_way(
    trusting: Trusting, metadata: dict[str, str], trouble: str
) -> None:
    authority = trusting.authority
    authority.published["/moved"] = f"{authority.url}/keys"
    authority.published[METADATA] = {name: each.format(url=authority.url) for name, each in metadata.items()}

    with pytest.raises(Unavailable) as refusal:
        await trusting.identity().caller(RequestCredentials(authority.token()))

    assert trouble in str(refusal.value.__cause__)
    assert "/keys" not in authority.asked


async def test_keys_may_lie_in_a_file_beside_the_site_file(trusting: Trusting) -> None:
    caller = await trusting.offline().caller(RequestCredentials(trusting.authority.token()))

    assert caller.name == "ann"
    assert trusting.authority.asked == []


@pytest.mark.parametrize(
    ("oauth", "message"),
    [
        ({"keys": "nowhere.json"}, "nowhere.json cannot be read"),
        ({"keys": "keys.json"}, "has no key that can verify tokens"),
        ({"keys": "ftp://127.0.0.1/keys"}, "neither http nor https"),
        ({"keys": "http://login.example/keys"}, "http://login.example/keys is not https"),
        ({"issuer": "http://login.example"}, "http://login.example is not https"),
        ({"issuer": "login.example"}, "neither http nor https"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_told_at_the_start(
    trusting: Trusting, tmp_path: Path, oauth: dict[str, Any], message: str
) -> None:
    (tmp_path / "keys.json").write_text('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}')

    with pytest.raises(ConfigError, match=message):
        trusting.identity(**oauth)


@pytest.mark.parametrize("audience", [SITE, f"{SITE}/", f"{SITE}/mcp", f"{SITE}/a2a", f"{SITE}/ask", ["x", SITE]])
@requirement("mcp:auth:audience")
async def test_a_token_may_be_for_the_site_or_one_of_its_doors(trusting: Trusting, audience: Any) -> None:
    assert (await trusting.offline().caller(RequestCredentials(trusting.authority.token(aud=audience)))).name == "ann"


async def test_audiences_that_are_configured_replace_the_addresses(trusting: Trusting) -> None:
    identity, token = trusting.offline(audience=["urn:inn"]), trusting.authority.token

    assert (await identity.caller(RequestCredentials(token(aud="urn:inn")))).name == "ann"
    assert await refused(identity, token(aud=SITE)) == "The access token is for another audience"


def test_a_site_without_an_address_is_known_by_those_of_its_machine() -> None:
    config = parse_config({"server": {"host": "::1", "port": 8123, "hosts": ["inn.local", "inn.lan:80"]}})

    assert {each for each in audiences(config, resources()) if each.endswith("/mcp")} == {
        "http://localhost:8123/mcp",
        "http://127.0.0.1:8123/mcp",
        "http://[::1]:8123/mcp",
        "http://inn.local:8123/mcp",
        "http://inn.lan:80/mcp",
    }
