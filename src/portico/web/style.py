"""The frame of every page, and its security headers: a page loads only what this site serves."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from portico.protocols import footer_links
from portico.web.pictures import PictureHosts
from portico.web.words import ENGLISH, Words

ASSETS: Final = "/assets"
POLICY: Final = "content-security-policy"

_COMMON: Final = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
# Pictures come from this site, too, so that no other host learns who reads a page; others only where the site allows.
_PICTURES: Final = "img-src 'self' data:"
_CLOSED: Final = "base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
_APP_POLICY: Final = (
    f"default-src 'none'; script-src 'self'; style-src 'self'; {_PICTURES}; connect-src 'self'; {_CLOSED}; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

# For pages of content. Their scripts only switch between light and dark.
HEADERS: Final = {
    POLICY: f"default-src 'none'; style-src 'self'; script-src 'self'; {_PICTURES}; {_CLOSED}".format(forms="'none'"),
    **_COMMON,
}

# For pages that are applications. They connect to this site only, and cannot turn text into markup.
APP_HEADERS: Final = {POLICY: _APP_POLICY.format(forms="'none'"), **_COMMON}

# For pages of items. As above, with a form that opens the chat.
ITEM_HEADERS: Final = {POLICY: _APP_POLICY.format(forms="'self'"), **_COMMON}


def headers_with(headers: Mapping[str, str], hosts: PictureHosts) -> dict[str, str]:
    """Return the headers of a page that loads pictures from these hosts, too."""
    return {**headers, POLICY: headers[POLICY].replace(_PICTURES, f"{_PICTURES}{hosts.policy}")}


_RIGHT_TO_LEFT: Final = frozenset({"ar", "arc", "ckb", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"})

# For pages of content: style sheets, and the script with the modules that it imports.
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
    """Return a whole page. `body` and `head` are safe HTML; the title is text.

    `styles` and `modules` are assets. The first module runs; the others are preloaded for it.
    """
    sheets = "".join(f'<link rel="stylesheet" href="{ASSETS}/{name}">' for name in ("portico.css", *styles))
    first, others = modules[:1], modules[1:]
    ahead = "".join(f'<link rel="modulepreload" href="{ASSETS}/{name}">' for name in others)
    runs = "".join(f'<script type="module" src="{ASSETS}/{name}"></script>' for name in first)
    class_attribute = f' class="{escape(kind)}"' if kind else ""
    turned = ' dir="rtl"' if lang.partition("-")[0].lower() in _RIGHT_TO_LEFT else ""
    return (
        f'<!doctype html>\n<html lang="{escape(lang)}"{turned}><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="{ASSETS}/icon.svg">{sheets}'
        f'<script src="{ASSETS}/theme.js"></script>{ahead}{runs}{head}</head>\n'
        f"<body{class_attribute}>\n{body}\n</body></html>\n"
    )


def content_page(title: str, site: str, main: str, *, places: str = "", head: str = "", words: Words = ENGLISH) -> str:
    """Return a page of content with the masthead and footer of the site. `places` is safe HTML for the navigation."""
    chat = f'<a class="button quiet" href="/">{words.html("chat")}</a>'
    ways = f'<nav class="places"{words.mark} aria-label="{words.text("site")}">{chat}{places}</nav>'
    body = f"""{skip("main", words.html("skip"))}
{masthead(site, ways)}
<main id="main" tabindex="-1">
{main}
</main>
{footer(words)}"""
    return page(
        title, body, head=head, lang=words.language, styles=READ_STYLES, modules=READ_MODULES, kind="bare home read"
    )


def skip(id: str, inner: str) -> str:
    """Render a link for keyboard users to skip the masthead."""
    return f'<a class="skip" href="#{id}">{inner}</a>'


def masthead(site: str, places: str = "") -> str:
    """Render the top of a page. Scripts add their buttons there."""
    brand = f'<a class="brand" href="/"><bdi>{escape(site)}</bdi></a>'
    return f'<header class="masthead">{brand}{places}<div id="tools"></div></header>'


def footer(words: Words = ENGLISH) -> str:
    """Render the footer. It has its own `lang`, since its words may be in another language than the page."""
    links = "".join(
        f'<a href="{link.path}" title="{words.text(f"{link.word} for")}">{link.name or words.text(link.word)}</a>'
        for link in footer_links()
    )
    return f'<footer lang="{escape(words.own_language)}">{links}</footer>'
