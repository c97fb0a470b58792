"""`portico keys authority`, `node` and `agent`."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from tests.cli.conftest import Portico
from tests.conformance.requirements import requirement

from portico.access.nip import canonical_body, render_key, verify_signature

SITE = """
[server]
url = "https://inn.example"
[search]
embedder = "none:"
[nwp]
capabilities = ["inn"]
[collections.rooms]
"""


@pytest.fixture
def inn(portico: Portico, tmp_path: Path) -> Portico:
    (tmp_path / "portico.toml").write_text(SITE)
    return portico


def test_an_agent_gets_a_certificate_and_a_key_that_only_its_owner_can_read(inn: Portico, tmp_path: Path) -> None:
    done = inn(
        *("keys", "agent", "ann", "--capability", "nwp:query", "--node", "nwp://inn.example/rooms"),
        *("--action", "rooms:book", "--budget", "500", "--scope", "read:rooms", "--danger", "reversible"),
        *("--days", "7", "--out", "agents"),
    )
    authority = inn("keys", "authority", "--json").json
    listed = inn("keys", "list", "--json").json

    assert done.code == 0, done.err
    [line] = (tmp_path / "agents" / "ann.json").read_text().splitlines()
    certificate = json.loads(line)
    key = tmp_path / "agents" / "ann.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert render_key(load_pem_private_key(key.read_bytes(), None).public_key()) == certificate["pub_key"]
    assert verify_signature(authority["public_key"], canonical_body(certificate), certificate["signature"])
    assert {name: certificate[name] for name in ("nid", "issued_by", "capabilities", "scope")} == {
        "nid": "urn:nps:agent:inn.example:ann",
        "issued_by": authority["nid"],
        "capabilities": ["nwp:query"],
        "scope": {"nodes": ["nwp://inn.example/rooms"], "actions": ["rooms:book"], "max_token_budget": 500},
    }
    assert [(each["name"], each["scopes"], each["danger"]) for each in listed] == [
        (certificate["nid"], ["read:rooms"], "reversible")
    ]
    assert certificate["serial"] == f"0x{listed[0]['id']}"
    assert f"portico keys revoke {listed[0]['id']}" in done.err
    assert inn("keys", "revoke", certificate["serial"]).code == 0
    assert inn("keys", "list", "--json").json[0]["revoked"]


@requirement("nwp:identity:renewal")
def test_a_certificate_is_renewed_in_its_place(inn: Portico, tmp_path: Path) -> None:
    inn("keys", "agent", "ann", "--days", "3")
    file = tmp_path / "ann.json"
    old = json.loads(file.read_text())

    done = inn("keys", "renew", "ann.json")
    again = inn("keys", "renew", "ann.json", "--out", "newer.json")

    new, newer = json.loads(file.read_text()), json.loads((tmp_path / "newer.json").read_text())
    assert inn("keys", "revoke", newer["serial"]).code == 0  # and with it those that it took the place of

    assert (done.code, again.code, file.stat().st_mode & 0o777) == (0, 0, 0o600)
    assert len({each["serial"] for each in (old, new, newer)}) == 3
    assert old["pub_key"] == new["pub_key"] == newer["pub_key"]
    assert sorted(path.name for path in tmp_path.glob("*ann*")) == ["ann.json", "ann.key"]
    assert all(each["revoked"] for each in inn("keys", "list", "--json").json)


def test_one_that_was_renewed_can_be_ended_by_itself(inn: Portico, tmp_path: Path) -> None:
    inn("keys", "agent", "ann", "--days", "3")
    old = json.loads((tmp_path / "ann.json").read_text())["serial"].removeprefix("0x")
    inn("keys", "renew", "ann.json")

    ended = inn("keys", "revoke", old)

    assert (ended.code, ended.err) == (0, f"Certificate {old} is revoked.\n")
    assert {each["id"]: bool(each["revoked"]) for each in inn("keys", "list", "--json").json}[old]
    assert sum(bool(each["revoked"]) for each in inn("keys", "list", "--json").json) == 1


def test_what_cannot_be_renewed_stays_as_it_is(inn: Portico, tmp_path: Path) -> None:
    inn("keys", "agent", "ann")
    before = (tmp_path / "ann.json").read_text()

    early, missing = inn("keys", "renew", "ann.json"), inn("keys", "renew", "bob.json")
    inn("keys", "agent", "cid", "--days", "1")
    (tmp_path / "file").touch()
    unwritten = inn("keys", "renew", "cid.json", "--out", "file/cid.json")
    printed = inn("keys", "renew", "cid.json", "--json").json

    assert (early.code, missing.code, unwritten.code) == (2, 2, 2)
    assert printed["certificate"]["serial"] != json.loads((tmp_path / "cid.json").read_text())["serial"]
    assert [path.name for path in tmp_path.glob(".*.new")] == []
    assert "in its last 7 days" in early.err
    assert (tmp_path / "ann.json").read_text() == before
    assert len(inn("keys", "list", "--json").json) == 3


def test_nothing_is_issued_over_another_certificate(inn: Portico, tmp_path: Path) -> None:
    (tmp_path / "ann.key").write_text("precious")

    done = inn("keys", "agent", "ann")

    assert (done.code, (tmp_path / "ann.key").read_text()) == (5, "precious")
    assert inn("keys", "list", "--json").json == []


def test_an_agent_may_bring_its_own_key_and_get_json(inn: Portico, tmp_path: Path) -> None:
    node = inn("keys", "node", "rooms", "--json").json
    made = inn("keys", "agent", "ann", "--public-key", node["pub_key"], "--json").json

    assert made.keys() == {"id", "certificate"}
    assert made["certificate"]["pub_key"] == node["pub_key"]
    assert inn("keys", "agent", "bob", "--json").json["private_key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert [path.name for path in tmp_path.glob("*.key")] == []


def test_a_node_has_a_certificate_that_can_be_handed_out(inn: Portico, tmp_path: Path) -> None:
    done = inn("keys", "node", "--out", "node.json")
    shown = inn("keys", "node", "--json").json

    assert done.code == 0, done.err
    assert shown == json.loads((tmp_path / "node.json").read_text())
    assert (shown["nid"], shown["issued_by"]) == ("urn:nps:node:inn.example:site", "urn:nps:org:inn.example")
    assert all(each in done.out for each in (shown["nid"], shown["pub_key"], shown["expires_at"]))


def test_a_node_that_is_not_there_has_no_certificate(inn: Portico) -> None:
    done = inn("keys", "node", "roms")

    assert done.code == 3
    assert "Known nodes: rooms, rooms-operations" in done.err


def test_capabilities_of_another_family_and_all_forms_of_addresses_are_certified(inn: Portico) -> None:
    nodes = ["*", "nwp://inn.example", "nwp://inn.example:17433/rooms/*", "https://inn.example/nwp/rooms"]
    said = [option for node in nodes for option in ("--node", node)]

    made = inn("keys", "agent", "ann", "--capability", "inn", "--capability", "inn:cook", *said, "--json").json

    assert made["certificate"]["capabilities"] == ["inn", "inn:cook"]
    assert made["certificate"]["scope"] == {"nodes": nodes}


def test_the_authority_says_how_others_come_to_trust_it(inn: Portico) -> None:
    done = inn("keys", "authority")
    other = inn("keys", "authority", "--store", "sqlite:///s.db", "--site", "portico.toml")

    assert "urn:nps:org:inn.example" in done.out
    assert 'issuers = ["https://inn.example"]' in done.err
    assert other.out != done.out  # another store, another key


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("a/b",), "cannot be part of a NID"),
        (("ann", "--days", "400"), "cannot be valid for"),
        (("ann", "--danger", "forbidden"), "is not a danger"),
        (("ann", "--scope", "write:rooms"), "is not a scope"),
        (("ann", "--public-key", "rsa:x"), "is not a public key"),
        (("ann", "--budget", "0"), "--budget"),
        (("ann", "--capability", "nwp:qeury"), "Did you mean nwp:query"),
        (("ann", "--capability", "nop:cook"), "is not a capability"),
        (("ann", "--node", "rooms"), "'rooms' is not the address of a node"),
        (("ann", "--node", "ftp://inn.example/rooms"), "is not the address of a node"),
        (("ann", "--node", "nwp://*.example"), "is not the address of a node"),
    ],
)
def test_a_certificate_that_makes_no_sense_is_not_made(
    inn: Portico, tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    done = inn("keys", "agent", *args)

    assert done.code == 2
    assert says in done.err
    assert [path.name for path in tmp_path.glob("*.json")] == []
