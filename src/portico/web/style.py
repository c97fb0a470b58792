"""The frame of every page, and what browsers may do with it: nothing but what this site itself serves, and pictures."""

from collections.abc import Sequence
from html import escape
from typing import Final

ASSETS: Final = "/assets"
POLICY: Final = "content-security-policy"

_COMMON: Final = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
_CLOSED: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

# A page to be read. Its one script chooses light or dark.
HEADERS: Final = {
    POLICY: f"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' https:; {_CLOSED}",
    **_COMMON,
}

# A page that asks. It talks to this site alone, loads nothing from elsewhere, and never turns text into markup.
ASKING_HEADERS: Final = {
    POLICY: "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    f"{_CLOSED}; require-trusted-types-for 'script'; trusted-types 'none'",
    **_COMMON,
}


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
    return (
        f'<!doctype html>\n<html lang="{escape(lang)}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="{ASSETS}/icon.svg">{sheets}'
        f'<script src="{ASSETS}/theme.js"></script>{ahead}{runs}{head}</head>\n'
        f"<body{named}>\n{body}\n</body></html>\n"
    )
