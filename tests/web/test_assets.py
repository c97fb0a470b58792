"""The scripts and style sheets of pages, and the front page that they bring to life."""

import re
from collections.abc import Iterator

import httpx
import msgspec
import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.protocols.conftest import Inn, asking

from portico.server.assembly import Parts
from portico.web.assets import assets
from portico.web.home import MODULES
from portico.web.tools import inspect_page

MOST = 150_000  # bytes of the scripts and style sheets of one page
SCRIPTS = sorted(name for name in assets() if name.endswith(".js"))
IMPORT = re.compile(r"""^import .*? from "\./([^"]+)";$""", re.MULTILINE | re.DOTALL)


def written(name: str) -> str:
    return assets()[name].decode()


@pytest.fixture
async def client(parts: Parts):
    async with asking(parts) as client:
        yield client


async def test_an_asset_is_served_to_pages_anywhere_and_not_sent_twice(client: httpx.AsyncClient) -> None:
    kinds = {"dom.js": "text/javascript", "portico.css": "text/css", "icon.svg": "image/svg+xml"}
    answers = {name: await client.get(f"/assets/{name}") for name in kinds}
    again = [
        await client.get(f"/assets/{name}", headers={"if-none-match": answer.headers["etag"]})
        for name, answer in answers.items()
    ]

    for name, answer in answers.items():
        assert (answer.status_code, answer.content) == (200, assets()[name])
        assert answer.headers["content-type"].partition(";")[0] == kinds[name]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert [(each.status_code, each.content) for each in again] == [(304, b"")] * 3


async def test_the_embed_has_an_address_of_its_own(client: httpx.AsyncClient) -> None:
    answer = await client.get("/embed.js")

    assert (answer.status_code, answer.content) == (200, assets()["embed.js"])
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


async def test_nothing_else_is_served(client: httpx.AsyncClient) -> None:
    names = ["nothing.js", "..%2Fstyle.py", "%2Fetc%2Fpasswd", "assets.py", "%00"]

    assert [(await client.get(f"/assets/{name}")).status_code for name in names] == [404] * len(names)


async def test_a_page_elsewhere_asks_only_if_its_origin_is_allowed(inn: Inn) -> None:
    async with inn(server={"origins": ["https://shop.example"]}) as parts, asking(parts) as client:
        told = {
            origin: (await client.post("/ask", json={"query": {"text": "room"}}, headers={"origin": origin})).headers
            for origin in ("https://shop.example", "https://evil.example")
        }

    assert told["https://shop.example"]["access-control-allow-origin"] == "https://shop.example"
    assert "access-control-allow-origin" not in told["https://evil.example"]


# What the files hold


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_markup_or_code_of_text_or_reaches_elsewhere(name: str) -> None:
    text = re.sub(r"^\s*(//|\*|/\*).*$", "", written(name), flags=re.MULTILINE)

    unsafe = r"\.(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc\s*=|\.cssText"
    assert re.findall(unsafe, text) == []
    assert set(re.findall(r"https?://[\w.-]+", text)) <= {"http://www.w3.org"}


def needed(name: str) -> Iterator[str]:
    """A module, and all that it imports."""
    yield name
    for other in IMPORT.findall(written(name)):
        yield from needed(other)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_import_is_of_an_asset(name: str) -> None:
    assert set(needed(name)) <= set(SCRIPTS)


def test_the_front_page_asks_ahead_for_every_module_and_weighs_little() -> None:
    assert set(MODULES) == set(needed(MODULES[0]))
    assert sum(len(assets()[name]) for name in (*MODULES, "theme.js", "portico.css", "chat.css")) < MOST


def test_every_icon_is_drawn_somewhere() -> None:
    drawn = re.search(r"const ICONS = \{\n(.*?)^\};$", written("dom.js"), re.MULTILINE | re.DOTALL)
    assert drawn
    used = "".join(written(name) for name in SCRIPTS).replace(drawn[0], "")
    assert [name for name in re.findall(r"^  (\w+):", drawn[1], re.MULTILINE) if f'"{name}"' not in used] == []


# The front page


async def test_the_front_page_runs_its_own_scripts_and_talks_to_its_own_site(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    page = LexborHTMLParser(answer.text)

    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    loaded = [each.attributes.get("src") or each.attributes["href"] for each in page.css("link, script[src]")]
    assert all([(await client.get(path)).status_code == 200 for path in loaded])
    assert [each.attributes.get("type") for each in page.css("script:not([src])")] == ["application/json"]
    assert not page.css("style, [style], [onclick], form")


async def test_the_chat_is_told_what_there_is_whatever_it_is_called(inn: Inn) -> None:
    hostile = "</script><script>alert(1)</script>\u2028"
    said = {"site": {"name": hostile}, "collections": {"rooms": {"title": hostile}}, "chat": {"path": "/talk"}}
    async with inn(**said) as parts, asking(parts) as client:
        page = LexborHTMLParser((await client.get("/")).text)

    told = msgspec.json.decode(page.css_first("#portico-data").text())
    assert (told["site"], told["collections"][0]["title"]) == (hostile, hostile)
    assert (told["collections"][0]["name"], told["language"], told["chat"]) == ("rooms", "en", "/talk")
    assert len(page.css("script:not([src])")) == 1


def test_the_inspector_is_told_where_the_chat_is() -> None:
    page = LexborHTMLParser(inspect_page("</script>", "/talk"))

    assert msgspec.json.decode(page.css_first("#portico-data").text()) == {"chat": "/talk"}
