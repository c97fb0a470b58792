"""Who is asking."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from portico.calls import Caller
from portico.catalog import Danger, Kind
from portico.errors import ConfigError, Unauthenticated
from portico.identity import Credentials, Identity, Key, allows, check_scope, key_digest, local_operator, make_key


def knowing(*keys: Key) -> Identity:
    known = {key.digest: key for key in keys}

    async def find(digest: str) -> Key | None:
        return known.get(digest)

    return Identity(find, frozenset({"ask"}))


async def test_without_credentials_a_caller_is_anonymous_and_told_apart_by_address() -> None:
    caller = await knowing().caller(Credentials(address="10.0.0.1"))

    assert caller == Caller(scopes=frozenset({"ask"}), address="10.0.0.1")
    assert (caller.is_anonymous, caller.rate_key) == (True, "anonymous@10.0.0.1")


async def test_a_key_gives_its_caller_what_the_key_allows() -> None:
    token, key = make_key("Ann", ["ask", "read:recipes"], Danger.REVERSIBLE, 30)

    caller = await knowing(key).caller(Credentials(token, "10.0.0.1"))

    assert caller == Caller(f"key:{key.id}", "Ann", frozenset({"ask", "read:recipes"}), Danger.REVERSIBLE, "10.0.0.1")
    assert caller.rate_key == f"key:{key.id}"


@pytest.mark.parametrize("token", ["pk_wrong", "x", " ", "\ud800", "é"])
async def test_a_wrong_key_is_refused_and_not_taken_for_nobody(token: str) -> None:
    with pytest.raises(Unauthenticated):
        await knowing().caller(Credentials(token))


async def test_an_expired_or_revoked_key_is_refused() -> None:
    now = datetime.now(UTC)
    expired, old = make_key("Ann", [], Danger.SAFE, 1, now - timedelta(days=2))
    revoked, gone = make_key("Bob", [], Danger.SAFE, None)
    identity = knowing(old, replace(gone, revoked=now))

    for token in (expired, revoked):
        with pytest.raises(Unauthenticated):
            await identity.caller(Credentials(token))


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
    assert local_operator() == Caller("operator:operator", "operator", frozenset({"ask", "*:*"}), Danger.DANGEROUS)
