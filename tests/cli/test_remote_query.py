"""`portico query --over nwp`: a server says what the store says."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Done, Portico
from tests.conformance.requirements import requirement
from tests.protocols.nwp.conftest import opened_inn, serving
from tests.protocols.nwp.conftest import tls_files as certificate

from portico.store.records import Put

CHEAP = ("--where", '{"$or": [{"beds": 6}, {"price": {"$between": [40, 50]}}]}', "--order", "-price")
QUERIES = (
    ("--limit", "2", "--fields", "price"),
    ("--aggregate", "count as n", "--aggregate", "max(price)", "--group-by", "beds", "--having", '{"n": 1}'),
)


def same(done: Done) -> Any:
    """What was found, without what a protocol has its own of: versions and cursors."""
    found = done.json
    rows = [{k: v for k, v in row.items() if k != "_version"} for row in found.pop("items", found.pop("rows", []))]
    return {**found, "found": rows, "cursor": bool(found["cursor"])}


@requirement("nwp:clients:command")
async def test_a_server_answers_a_query_as_its_store_does(portico: Portico, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/inn.db"
    (tmp_path / "none.json").write_text(json.dumps({"nid": "urn:nps:agent:nobody:x"}))
    async with opened_inn(tmp_path, store={"url": store}) as parts, serving(parts) as ports:
        run = partial(asyncio.to_thread, portico, "query", "rooms")
        http = ("--over", "nwp", "--url", f"http://127.0.0.1:{ports.http}")
        native = ("--over", "nwp-native", "--url", f"nwp://127.0.0.1:{ports.native}")
        for asked in QUERIES:
            here = same(await run(*asked, "--store", store, "--json"))
            assert same(await run(*asked, *http, "--json")) == here
        tables = [await run(*CHEAP, *way) for way in (("--store", store), http, native)]
        first = (await run("--limit", "2", *http, "--json")).json
        rest = (await run("--limit", "2", "--cursor", first["cursor"], *http, "--json")).json
        unknown = await run("--where", '{"beans": 1}', *http)
        nobody = await run("--ident", tmp_path / "none.json", *native)
        no_node = await asyncio.to_thread(portico, "query", "spoons", *http)
        agent = ("keys", "agent", "ann", "--scope", "ask", "--store", store)
        issued = await asyncio.to_thread(portico, *agent)
        may_not = await run("--ident", "ann.json", *http)
        not_native = await run("--over", "nwp-native", "--url", f"nwp://127.0.0.1:{ports.http}")
    gone = await run(*http)

    assert [table.out for table in tables] == [tables[0].out] * 3
    assert [table.err for table in tables] == ["2 of 2\n"] * 3
    assert [item["id"] for item in first["items"] + rest["items"]] == ["attic", "cellar", "garden"]
    assert (first["total"], rest["total"], rest["cursor"]) == (3, 3, None)
    assert (unknown.code, "rooms has no field 'beans'" in unknown.err) == (2, True)
    assert [each.code for each in (nobody, no_node, gone, not_native)] == [4, 3, 6, 6]
    assert "This port serves HTTP only" in not_native.err
    assert (issued.code, may_not.code) == (0, 4)
    assert "The certificate of 'urn:nps:agent:localhost:ann' has no scope read:rooms" in may_not.err
    assert "portico keys" not in may_not.err  # a refusal does not say how to get more rights


async def test_a_limit_is_reached_over_as_many_pages_as_the_server_needs(portico: Portico, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/inn.db"
    beds = [Put(f"bed-{number:02}", {"name": "x" * 400, "beds": number}) for number in range(20)]
    limits = {"page_bytes": 2000}
    async with opened_inn(tmp_path, store={"url": store}, limits=limits) as parts:
        await parts.store.items.write("rooms", beds)
        async with serving(parts) as ports:
            run = partial(asyncio.to_thread, portico, "query", "rooms", "--order", "name", "--json")
            ways = (
                ("--over", "nwp", "--url", f"http://127.0.0.1:{ports.http}"),
                ("--over", "nwp-native", "--url", f"nwp://127.0.0.1:{ports.native}"),
            )
            queries = (("--limit", "15"), ("--limit", "100"), ("--limit", "100", "--group-by", "beds,name"))
            for asked in queries:
                here = same(await run(*asked, "--store", store))
                assert [same(await run(*asked, *way)) for way in ways] == [here, here], asked
            first = (await run("--limit", "15", *ways[0])).json
            rest = (await run("--limit", "15", "--cursor", first["cursor"], *ways[0])).json

    assert len({row["id"] for row in (*first["items"], *rest["items"])}) == 23
    assert (len(first["items"]), len(rest["items"]), rest["cursor"]) == (15, 8, None)


async def test_who_has_to_show_a_certificate_is_told_how(portico: Portico, tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp={"auth": "nip-cert"}) as parts, serving(parts) as ports:
        for way in (("nwp", f"http://127.0.0.1:{ports.http}"), ("nwp-native", f"nwp://127.0.0.1:{ports.native}")):
            done = await asyncio.to_thread(portico, "query", "rooms", "--over", way[0], "--url", way[1])
            assert (done.code, "--ident FILE" in done.err) == (4, True)


async def test_a_server_is_trusted_by_its_certificate(portico: Portico, tmp_path: Path) -> None:
    async with opened_inn(tmp_path, nwp=certificate(tmp_path)) as parts, serving(parts) as ports:
        run = partial(asyncio.to_thread, portico, "query", "rooms", "--fields", "id", "--json")
        native = ("--over", "nwp-native", "--url", f"nwps://localhost:{ports.native}")
        https = ("--over", "nwp", "--url", f"https://localhost:{ports.native}")
        distrusted = [await run(*way) for way in (native, https)]
        trusted = [await run(*way, "--ca", "inn.pem") for way in (native, https)]

    assert [len(each.json["items"]) for each in trusted] == [3, 3]
    for each in distrusted:
        assert (each.code, "The server's certificate is not trusted: self-signed" in each.err) == (6, True)
        assert "--ca FILE" in each.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--over", "nwp"), "--over nwp needs the address of a server"),
        (("--over", "nwp-native", "--url", "http://127.0.0.1:1"), "http://127.0.0.1:1 is not a native address"),
        (("--url", "http://127.0.0.1:1"), "Add --over nwp."),
        (("--ident", "ann.json"), "Add --over nwp --url http://127.0.0.1:8000."),
        (("--over", "nwp", "--url", "http://127.0.0.1:1", "--text", "soup"), "NWP has no text search"),
        (("--over", "nwp-native", "--url", "nwp://127.0.0.1:1", "--api-key", "k"), "Use a certificate with --ident"),
        (("--over", "nwp", "--url", "http://127.0.0.1:1", "--ident", "nothing.json"), "nothing.json cannot be read"),
        (("--over", "nwp", "--url", "https://127.0.0.1:1", "--ca", "nothing.pem"), "--ca nothing.pem cannot be used"),
        (("--over", "nwp-native", "--url", "nwp://127.0.0.1:1", "--ca", "x.pem"), "Write --url nwps://"),
        (("--over", "nwp", "--where", "price<5"), """'{"price": {"$lt": 5}}'"""),
    ],
)
def test_what_cannot_be_asked_is_said_before_anybody_is(portico: Portico, args: tuple[str, ...], says: str) -> None:
    done = portico("query", "rooms", *args)

    assert (done.code, done.out) == (2, "")
    assert says in done.err
