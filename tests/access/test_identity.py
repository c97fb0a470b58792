"""Who is asking."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from portico.access.identity import (
    ApiKey,
    CertifiedAgent,
    Identity,
    RequestCredentials,
    TokenHolder,
    allows,
    check_scope,
    key_digest,
    local_operator,
    make_key,
)
from portico.catalog import Danger, Kind, Trust
from portico.errors import ConfigError, Unauthenticated
from portico.requests import Caller, Warrant


def knowing(*keys: ApiKey) -> Identity:
    known = {key.digest: key for key in keys}

    async def find(digest: str) -> ApiKey | None:
        return known.get(digest)

    return Identity(find, frozenset({"ask"}))


async def test_without_credentials_a_caller_is_anonymous_and_told_apart_by_address() -> None:
    caller = await knowing().caller(RequestCredentials(address="10.0.0.1"))

    assert caller == Caller(scopes=frozenset({"ask"}), address="10.0.0.1")
    assert (caller.is_anonymous, caller.rate_key) == (True, "anonymous@10.0.0.1")


@pytest.mark.parametrize(
    ("address", "household"),
    [
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::1", "::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_of_ipv6_a_network_is_one_caller_and_of_ipv4_within_it_an_address(address: str, household: str) -> None:
    assert Caller(address=address).rate_key == f"anonymous@{household}"


async def test_a_key_gives_its_caller_what_the_key_allows() -> None:
    token, key = make_key("Ann", ["ask", "read:recipes"], Danger.REVERSIBLE, 30)

    caller = await knowing(key).caller(RequestCredentials(token, "10.0.0.1"))

    assert caller == Caller(f"key:{key.id}", "Ann", frozenset({"ask", "read:recipes"}), Danger.REVERSIBLE, "10.0.0.1")
    assert caller.rate_key == f"key:{key.id}"


@pytest.mark.parametrize("token", ["pk_wrong", "x", " ", "\ud800", "é"])
async def test_a_wrong_key_is_refused_and_not_taken_for_nobody(token: str) -> None:
    with pytest.raises(Unauthenticated):
        await knowing().caller(RequestCredentials(token))


async def test_an_expired_or_revoked_key_is_refused() -> None:
    now = datetime.now(UTC)
    expired, old = make_key("Ann", [], Danger.SAFE, 1, now - timedelta(days=2))
    revoked, gone = make_key("Bob", [], Danger.SAFE, None)
    identity = knowing(old, replace(gone, revoked=now))

    for token in (expired, revoked):
        with pytest.raises(Unauthenticated):
            await identity.caller(RequestCredentials(token))


def vouching(*holders: TokenHolder) -> Identity:
    """Takes the tokens 0.., 1.. and so on, each of one holder."""

    async def find(token: str) -> TokenHolder:
        return holders[int(token.partition(".")[0])]

    return replace(knowing(), find_holder=find)


def holder(subject: str, name: str = "Ann", issuer: str = "https://login.example") -> TokenHolder:
    return TokenHolder(issuer, subject, name, frozenset({"ask"}), Danger.REVERSIBLE)


async def test_the_holder_of_a_token_is_known_by_issuer_and_subject() -> None:
    identity = vouching(holder("ann", "Ann\n\x1b[2J"), holder("ann", issuer="https://elsewhere.example"))

    caller = await identity.caller(RequestCredentials("0..", "10.0.0.1"))
    other = await identity.caller(RequestCredentials("1.."))

    issuer = key_digest("https://login.example")[:12]
    assert caller == Caller(f"oauth:{issuer}:ann", "Ann??[2J", frozenset({"ask"}), Danger.REVERSIBLE, "10.0.0.1")
    assert (caller.is_anonymous, caller.is_operator) == (False, False)
    assert other.id != caller.id


async def test_any_subject_makes_an_id_of_its_own_that_is_short_and_plain() -> None:
    long = holder("x" * 1000, "n" * 1000)
    subjects = ["x" * 101, "x" * 102, "a\nb", "a\rb", "é", "\ud800", "~", "a b", long.id.rpartition(":")[2]]
    identity = vouching(long, *map(holder, subjects))

    callers = [await identity.caller(RequestCredentials(f"{number}..")) for number in range(len(subjects) + 1)]

    assert len({each.id for each in callers}) == len(callers)
    assert all(len(each.id) <= 120 and each.id.isascii() and each.id.isprintable() for each in callers)
    assert max(len(each.name) for each in callers) == 80


@pytest.mark.parametrize("token", ["pk_a.b.c", "0.0", "0.0.0.0", "0"])
async def test_what_has_not_the_form_of_a_token_is_taken_for_a_key(token: str) -> None:
    with pytest.raises(Unauthenticated, match="The API key is not valid"):
        await vouching(holder("ann")).caller(RequestCredentials(token))


async def test_without_an_authorization_server_a_token_is_a_wrong_key() -> None:
    with pytest.raises(Unauthenticated, match="The API key is not valid"):
        await knowing().caller(RequestCredentials("0.0.0"))


async def test_a_certificate_makes_its_agent_a_caller_with_a_warrant_and_a_name_alone_makes_nobody() -> None:
    warrant = Warrant(frozenset({"nwp:query"}), ("*",))

    async def find(ident: bytes, name: str) -> CertifiedAgent | None:
        return CertifiedAgent(f"urn:{name}", frozenset({"ask"}), Danger.REVERSIBLE, warrant) if ident else None

    identity = replace(knowing(), find_agent=find)
    shown = await identity.caller(RequestCredentials(address="10.0.0.1", certificate=b"{}", agent="ann"))
    named = await identity.caller(RequestCredentials(address="10.0.0.1", agent="ann"))

    assert shown == Caller("nip:urn:ann", "urn:ann", frozenset({"ask"}), Danger.REVERSIBLE, "10.0.0.1", warrant)
    assert named == await identity.caller(RequestCredentials(address="10.0.0.1"))


async def test_a_certificate_beside_a_key_is_refused_and_so_is_one_where_none_are_taken() -> None:
    token, key = make_key("Ann", [], Danger.SAFE, None)

    with pytest.raises(Unauthenticated, match="both a certificate and a key"):
        await knowing(key).caller(RequestCredentials(token, certificate=b"{}"))
    with pytest.raises(Unauthenticated, match="does not accept certificates"):
        await knowing(key).caller(RequestCredentials(certificate=b"{}"))
    assert (await knowing(key).caller(RequestCredentials(token, agent="urn:nps:agent:inn.example:ann"))).name == "Ann"


def test_a_key_is_stored_only_as_its_hash() -> None:
    token, key = make_key("Ann", [], Danger.SAFE, None)
    other, _ = make_key("Ann", [], Danger.SAFE, None)

    assert token not in repr(key)
    assert key.digest == key_digest(token)
    assert token != other


@pytest.mark.parametrize("scope", ["ask", "read:recipes", "execute:book_table", "*:*", "*:recipes", "delete:*"])
def test_a_scope_names_a_kind_and_a_target(scope: str) -> None:
    assert check_scope(scope) == scope


@pytest.mark.parametrize("scope", ["", "read", "read:", ":recipes", "write:recipes", "ask:recipes", "*"])
def test_what_is_no_scope_is_refused(scope: str) -> None:
    with pytest.raises(ConfigError):
        make_key("Ann", [scope], Danger.SAFE, None)


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        ({"read:recipes"}, True),
        ({"read:*"}, True),
        ({"*:recipes"}, True),
        ({"*:*"}, True),
        ({"read:list_recipes"}, True),
        ({"update:recipes"}, False),
        ({"read:news"}, False),
        ({"ask"}, False),
        (set(), False),
    ],
    ids=str,
)
def test_a_scope_covers_a_kind_of_work_on_a_name(scopes: set[str], allowed: bool) -> None:
    assert allows(frozenset(scopes), Kind.READ, "recipes", "list_recipes") is allowed


def test_a_scope_on_nothing_in_particular_does_not_open_everything() -> None:
    assert not allows(frozenset({"read:"}), Kind.READ, "")
    assert not allows(frozenset({"read:recipes"}), Kind.READ, "")


def test_whoever_sits_at_the_machine_may_do_what_is_not_forbidden_to_all() -> None:
    scopes = frozenset({"ask", "approve", "*:*"})

    assert local_operator() == Caller("operator:operator", "operator", scopes, Danger.DANGEROUS, trust=Trust.CERTIFIED)
