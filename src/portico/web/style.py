"""The frame of every page, and what browsers may do with it: nothing but what this site itself serves."""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from portico.web.words import ENGLISH, Words

ASSETS: Final = "/assets"
POLICY: Final = "content-security-policy"

_COMMON: Final = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
# Pictures of items are of this site, as everything is: a page tells no other host who reads it.
_PICTURES: Final = "img-src 'self' data:"
_CLOSED: Final = "base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
_ASKING: Final = (
    f"default-src 'none'; script-src 'self'; style-src 'self'; {_PICTURES}; connect-src 'self'; {_CLOSED}; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

# A page to be read. Its scripts choose light or dark.
HEADERS: Final = {
    POLICY: f"default-src 'none'; style-src 'self'; script-src 'self'; {_PICTURES}; {_CLOSED}".format(forms="'none'"),
    **_COMMON,
}

# A page that asks. It talks to this site alone, loads nothing from elsewhere, and never turns text into markup.
ASKING_HEADERS: Final = {POLICY: _ASKING.format(forms="'none'"), **_COMMON}

# A page of items. What can be done with them is done as on a page that asks; its form leads there.
ITEM_HEADERS: Final = {POLICY: _ASKING.format(forms="'self'"), **_COMMON}


class Door(NamedTuple):
    """What tells of the site."""

    path: str
    word: str
    name: str = ""  # if it is the same in every language


DOORS: Final = (
    Door("/docs", "interface"),
    Door("/openapi.json", "openapi", "OpenAPI"),
    Door("/inspect", "inspector"),
    Door("/llms.txt", "llms", "llms.txt"),
    Door("/nwp/site", "nwp", "NWP"),
    Door("/sitemap.xml", "sitemap"),
)
_RIGHT_TO_LEFT: Final = frozenset({"ar", "arc", "ckb", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"})

# Of a page to be read: its style sheets, its script, and those that it needs.
READ_STYLES: Final = ("chat.css", "item.css")
READ_MODULES: Final = ("page.js", "dom.js", "words.js")


def page(
    title: str,
    body: str,
    *,
    head: str = "",
    lang: str = "en",
    styles: Sequence[str] = (),
    modules: Sequence[str] = (),
    kind: str = "",
) -> str:
    """A whole page. `body` and `head` are HTML that is safe already; the title is text.

    `styles` and `modules` are assets: the first module runs, and the others are those that it will ask for.
    """
    sheets = "".join(f'<link rel="stylesheet" href="{ASSETS}/{name}">' for name in ("portico.css", *styles))
    first, others = modules[:1], modules[1:]
    ahead = "".join(f'<link rel="modulepreload" href="{ASSETS}/{name}">' for name in others)
    runs = "".join(f'<script type="module" src="{ASSETS}/{name}"></script>' for name in first)
    named = f' class="{escape(kind)}"' if kind else ""
    turned = ' dir="rtl"' if lang.partition("-")[0].lower() in _RIGHT_TO_LEFT else ""
    return (
        f'<!doctype html>\n<html lang="{escape(lang)}"{turned}><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="{ASSETS}/icon.svg">{sheets}'
        f'<script src="{ASSETS}/theme.js"></script>{ahead}{runs}{head}</head>\n'
        f"<body{named}>\n{body}\n</body></html>\n"
    )


def reading_page(title: str, site: str, main: str, *, places: str = "", head: str = "", words: Words = ENGLISH) -> str:
    """A page to be read, with the same top and bottom as the chat. `places` is HTML: where else to go."""
    chat = f'<a class="button quiet" href="/">{words.said("chat")}</a>'
    ways = f'<nav class="places"{words.mark} aria-label="{words.text("site")}">{chat}{places}</nav>'
    body = f"""{skip("main", words.said("skip"))}
{masthead(site, ways)}
<main id="main" tabindex="-1">
{main}
</main>
{doors(words)}"""
    return page(
        title, body, head=head, lang=words.language, styles=READ_STYLES, modules=READ_MODULES, kind="bare home read"
    )


def skip(id: str, inner: str) -> str:
    """For those who go by keyboard: past the top of the page."""
    return f'<a class="skip" href="#{id}">{inner}</a>'


def masthead(site: str, places: str = "") -> str:
    """The top of a page. Its scripts put their tools there."""
    brand = f'<a class="brand" href="/"><bdi>{escape(site)}</bdi></a>'
    return f'<header class="masthead">{brand}{places}<div id="tools"></div></header>'


def doors(words: Words = ENGLISH) -> str:
    """The bottom of a page: what tells of the site. Says its language, which may not be that of the page."""
    links = "".join(
        f'<a href="{each.path}" title="{words.text(f"{each.word} for")}">{each.name or words.text(each.word)}</a>'
        for each in DOORS
    )
    return f'<footer lang="{escape(words.spoken)}">{links}</footer>'
