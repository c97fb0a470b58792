"""Who is calling behind a proxy: what a trusted proxy says counts, and what anybody else says does not."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.protocols.conftest import Inn, inn, listening  # noqa: F401 - a fixture
from tests.server.conftest import ENVIRONMENT, SCRIPT
from tests.server.test_flood import CROWD, exchange
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from portico.errors import ConfigError
from portico.protocols import parse_config
from portico.server.assembly import Parts
from portico.server.http import application

PROXY, OTHER_PROXY, VISITOR, SECOND = "10.0.0.5", "10.1.2.3", "203.0.113.9", "198.51.100.7"
TRUSTED = {"trusted_proxies": [PROXY, "10.1.0.0/16", "2001:db8:1::/48"]}
Headers = Mapping[str, str] | Sequence[tuple[str, str]]


async def rooms(parts: Parts, peer: str | None, headers: Headers = ()) -> int:
    """The status of a request from this peer that costs one of its allowance."""
    return (await get(parts, peer, headers, "/operations")).status_code


async def get(parts: Parts, peer: str | None, headers: Headers, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(application(parts), client=(peer, 4711) if peer else None)
    async with httpx.AsyncClient(transport=transport, base_url="http://inn.example") as client:
        return await client.get(path, headers=headers)


async def allowance_is_shared(parts: Parts, first: tuple[str, Headers], second: tuple[str, Headers]) -> bool:
    """Whether two requests count for one caller: on a site that lets every caller ask once a minute."""
    assert await rooms(parts, *first) == 200
    return await rooms(parts, *second) == 429


def once(**server: Any) -> dict[str, Any]:
    return {"limits": {"anonymous_per_minute": 1}, "server": server}


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
@pytest.mark.parametrize("server", [{}, TRUSTED], ids=["none", "others"])
async def test_what_an_untrusted_peer_says_is_ignored(inn: Inn, header: str, server: dict[str, Any]) -> None:  # noqa: F811
    said = [{header: f"{'for=' if header == 'forwarded' else ''}{address}"} for address in (VISITOR, SECOND)]
    async with inn(**once(**server)) as parts:
        assert await allowance_is_shared(parts, ("127.0.0.1", said[0]), ("127.0.0.1", said[1]))


async def test_a_caller_on_loopback_does_not_choose_its_bucket(
    inn: Inn,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over a real server: the one underneath believes loopback by itself, and reads the environment."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    async with inn(**once()) as parts, listening(parts) as port, httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/operations"
        answers = [await client.get(url, headers={"x-forwarded-for": address}) for address in (VISITOR, SECOND)]

    assert [answer.status_code for answer in answers] == [200, 429]


async def test_visitors_behind_a_trusted_proxy_have_allowances_of_their_own(inn: Inn) -> None:  # noqa: F811
    async with inn(**once(**TRUSTED)) as parts:
        first, second = {"x-forwarded-for": VISITOR}, {"x-forwarded-for": SECOND}
        assert not await allowance_is_shared(parts, (PROXY, first), (PROXY, second))
        assert await rooms(parts, PROXY, first) == 429
        assert await rooms(parts, OTHER_PROXY, second) == 429, "another proxy forwards the same visitor"
        assert await rooms(parts, VISITOR) == 429, "the visitor comes by itself"


SAME_VISITOR: dict[str, Headers] = {
    "what the visitor made up": {"x-forwarded-for": f"1.1.1.1, {VISITOR}"},
    "nothing that is an address": {"x-forwarded-for": f"nonsense, <b>, {VISITOR}"},
    "much that was made up": {"x-forwarded-for": f"{SECOND}," * 4000 + VISITOR},
    "two proxies": {"x-forwarded-for": f"{VISITOR}, {OTHER_PROXY}"},
    "two proxies, and what was made up": {"x-forwarded-for": f"9.9.9.9, {VISITOR}, {OTHER_PROXY}"},
    "two lines": [("x-forwarded-for", "9.9.9.9"), ("x-forwarded-for", VISITOR)],
    "a port": {"x-forwarded-for": f"{VISITOR}:4711"},
    "an IPv6 form": {"x-forwarded-for": f"::ffff:{VISITOR}"},
    "forwarded": {"forwarded": f"for={VISITOR}"},
    "forwarded, quoted": {"forwarded": f'for=1.1.1.1;proto=https, For="{VISITOR}:4711";by="a,b;c"'},
    "forwarded, two lines": [("forwarded", "for=9.9.9.9"), ("forwarded", f"for={VISITOR};proto=http")],
    "forwarded through IPv6": {"forwarded": f'for={VISITOR}, for="[2001:db8:1::7]:80"'},
    "both, alike": {"forwarded": f"for={VISITOR}", "x-forwarded-for": VISITOR},
}


@pytest.mark.parametrize("headers", SAME_VISITOR.values(), ids=SAME_VISITOR)
async def test_the_last_hop_that_is_no_trusted_proxy_is_the_visitor(inn: Inn, headers: Headers) -> None:  # noqa: F811
    async with inn(**once(**TRUSTED)) as parts:
        assert await allowance_is_shared(parts, (VISITOR, {}), (PROXY, headers))


FOR_THE_PROXY: dict[str, Headers] = {
    "nothing": {},
    "empty": {"x-forwarded-for": ""},
    "no address": {"x-forwarded-for": "nonsense"},
    "no address last": {"x-forwarded-for": f"{VISITOR}, unknown"},
    "a name": {"forwarded": "for=_hidden"},
    "unknown": {"forwarded": "for=unknown"},
    "malformed": {"forwarded": f'for="{VISITOR}'},
    "without for": {"forwarded": "proto=https"},
    "both, and not alike": {"forwarded": f"for={VISITOR}", "x-forwarded-for": SECOND},
    "another header": {"x-real-ip": VISITOR},
    "a long one": {"x-forwarded-for": "," * 50_000},
    "a long standard one": {"forwarded": f"for={PROXY}," * 3000 + f"for={VISITOR}"},
    "no text": {"forwarded": "for=" + "\xe4" * 100},
}


@pytest.mark.parametrize("headers", FOR_THE_PROXY.values(), ids=FOR_THE_PROXY)
async def test_a_request_without_a_believable_visitor_is_the_proxys_own(inn: Inn, headers: Headers) -> None:  # noqa: F811
    async with inn(**once(**TRUSTED)) as parts:
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in dict(headers).items()]
        assert await allowance_is_shared(parts, (PROXY, {}), (PROXY, encoded))
        assert await rooms(parts, VISITOR) == 200
        assert await rooms(parts, SECOND) == 200


async def test_neighbours_of_an_ipv6_network_are_one_visitor(inn: Inn) -> None:  # noqa: F811
    async with inn(**once(**TRUSTED)) as parts:
        first, second = ({"x-forwarded-for": f"2001:db8:9::{n}"} for n in (1, 2))
        assert await allowance_is_shared(parts, (PROXY, first), ("2001:db8:1::7", second))


async def test_a_peer_without_an_address_is_not_trusted(inn: Inn) -> None:  # noqa: F811
    async with inn(**once(trusted_proxies=["0.0.0.0/0", "::/0"])) as parts:
        said = [{"x-forwarded-for": address} for address in (VISITOR, SECOND)]
        assert [await rooms(parts, None, headers) for headers in said] == [200, 429]


SCHEMES_AND_HOSTS: dict[str, tuple[Headers, str]] = {
    "both": ({"x-forwarded-proto": "https", "x-forwarded-host": "shop.example"}, "https://shop.example"),
    "a port": ({"x-forwarded-proto": "https", "x-forwarded-host": "shop.example:8443"}, "https://shop.example:8443"),
    "scheme alone": ({"x-forwarded-proto": "HTTPS"}, "https://inn.example"),
    "host alone": ({"x-forwarded-host": "shop.example"}, "http://shop.example"),
    "no scheme": ({"x-forwarded-proto": "javascript", "x-forwarded-host": "shop.example"}, "http://shop.example"),
    "no host": ({"x-forwarded-proto": "https", "x-forwarded-host": "a/b@c"}, "https://inn.example"),
    "what was made up": (
        {"x-forwarded-proto": "http, https", "x-forwarded-host": "evil.example, shop.example"},
        "https://shop.example",
    ),
}


@pytest.mark.parametrize(("headers", "base"), SCHEMES_AND_HOSTS.values(), ids=SCHEMES_AND_HOSTS)
async def test_links_name_the_scheme_and_host_that_a_trusted_proxy_was_asked_for(
    inn: Inn,  # noqa: F811
    headers: dict[str, str],
    base: str,
) -> None:
    async with inn(server=TRUSTED) as parts:
        forwarded = {**headers, "x-forwarded-for": VISITOR}
        believed = await get(parts, PROXY, forwarded, "/robots.txt")
        ignored = await get(parts, VISITOR, forwarded, "/robots.txt")

    assert f"{base}/sitemap.xml" in believed.text
    assert "http://inn.example/sitemap.xml" in ignored.text


async def test_a_chain_of_proxies_tells_of_the_request_that_the_visitor_made(inn: Inn) -> None:  # noqa: F811
    async with inn(server=TRUSTED) as parts:
        by_x = {
            "x-forwarded-for": f"{VISITOR}, {OTHER_PROXY}",
            "x-forwarded-proto": "https, http",
            "x-forwarded-host": "shop.example, inside.example",
        }
        standard = f'for={VISITOR};proto=https;host="shop.example", for={OTHER_PROXY};proto=http;host=inside.example'
        pages = [await get(parts, PROXY, headers, "/robots.txt") for headers in (by_x, {"forwarded": standard})]

    assert ["https://shop.example/sitemap.xml" in page.text for page in pages] == [True, True]


async def test_websockets_are_counted_by_visitor_and_not_by_proxy(inn: Inn) -> None:  # noqa: F811
    limits = {"connections_per_address": 2, "websockets_per_address": 1}
    async with inn(limits=limits, server={"trusted_proxies": [CROWD]}) as parts, listening(parts) as port:
        url = f"ws://{CROWD}:{port}/ask"
        visitors = [{"x-forwarded-for": f"203.0.113.{number}"} for number in range(4)]
        sockets = [await connect(url, additional_headers=visitor) for visitor in visitors]
        with pytest.raises(InvalidStatus) as refusal:
            await connect(url, additional_headers=visitors[0])
        await sockets[1].send(json.dumps({"query": {"text": "attic"}}))
        assert "results" in json.loads(await sockets[1].recv())
        for socket in sockets:
            await socket.close()

    assert refusal.value.response.status_code == 429


@pytest.mark.parametrize(
    ("visitor", "other", "statuses"),
    [
        (VISITOR, SECOND, [429, 200]),
        ("2001:db8:9::1", "2001:db8:9:1::1", [429, 200]),
        ("2001:db8:9::1", "2001:db8:9::2", [429, 429]),
    ],
    ids=["IPv4", "IPv6", "one network of IPv6"],
)
async def test_streams_are_counted_by_visitor_and_not_by_proxy(
    inn: Inn,  # noqa: F811
    visitor: str,
    other: str,
    statuses: list[int],
) -> None:
    first, second = {"x-forwarded-for": visitor}, {"x-forwarded-for": other}
    subscribe, events = {"action": "subscribe", "stream_id": "s-1"}, {**first, "accept": "text/event-stream"}
    async with (
        inn(limits={"streams_per_address": 1}, server={"trusted_proxies": [CROWD]}) as parts,
        listening(parts) as port,
        httpx.AsyncClient(base_url=f"http://{CROWD}:{port}") as client,
        client.stream("POST", "/nwp/rooms/subscribe", json=subscribe, headers=events) as stream,
    ):
        assert stream.status_code == 200
        asked = {"query": {"text": "attic"}, "prefer": {"streaming": True}}
        answers = [await client.post("/ask", json=asked, headers=headers) for headers in (first, second)]

    assert [answer.status_code for answer in answers] == statuses


async def test_requests_of_one_visitor_do_not_use_up_the_connections_of_a_proxy(inn: Inn) -> None:  # noqa: F811
    first, second = {"x-forwarded-for": VISITOR}, {"x-forwarded-for": SECOND}
    subscribe, events = {"action": "subscribe", "stream_id": "s-1"}, {**first, "accept": "text/event-stream"}
    async with (
        inn(limits={"connections_per_address": 1}, server={"trusted_proxies": [CROWD]}) as parts,
        listening(parts) as port,
        httpx.AsyncClient(base_url=f"http://{CROWD}:{port}") as client,
        client.stream("POST", "/nwp/rooms/subscribe", json=subscribe, headers=events) as stream,
    ):
        assert stream.status_code == 200
        asked = [(path, headers) for path in ("/operations", "/healthz") for headers in (first, second)]
        answers = [await client.get(path, headers=headers) for path, headers in asked]

    assert [answer.status_code for answer in answers] == [429, 200, 200, 200]
    assert answers[0].headers["retry-after"]


async def test_a_short_question_over_a_trusted_proxy_counts_for_its_visitor(inn: Inn) -> None:  # noqa: F811
    """Also when it comes again to the letter, and is answered without much ado."""
    question = b"POST /nwp/rooms/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
    said = [b"x-forwarded-for: 203.0.113.%d\r\n" % number for number in (1, 2)]
    async with inn(**once(trusted_proxies=[CROWD])) as parts, listening(parts) as port:
        asked = question + said[0] + b"\r\n{}"
        other = question + said[1] + b"connection: close\r\n\r\n{}"
        answer = await exchange(port, asked + asked + other, CROWD)

    assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"429", b"200"]


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_site_with_a_malformed_network_is_neither_served_nor_found_well(tmp_path: Path, command: str) -> None:
    (tmp_path / "portico.toml").write_text('[server]\ntrusted_proxies = ["10.0.0.0/33"]\n')

    ended = subprocess.run(
        [SCRIPT, command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 2
    assert "server.trusted_proxies: '10.0.0.0/33' is neither an address nor a network" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["10.0.0.1/8", "10.0.0.0/33", "proxy.example", "", "10.0.0", "*"])
def test_a_malformed_network_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_config({"server": {"trusted_proxies": ["10.0.0.5", name]}})

    assert "server.trusted_proxies" in str(refusal.value)
    assert repr(name) in str(refusal.value)
    assert "10.0.0.0/8" in str(refusal.value)
