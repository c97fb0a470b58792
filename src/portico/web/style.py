"""How pages look, and what browsers may do with them. A page runs nothing and loads nothing but pictures."""

import base64
import hashlib
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1f2d3d; --faint: #5b6876; --sea: #1f6180; --sand: #f8f4ea; --paper: #fffdf7;
  --line: #d9cfb8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e4d8; --faint: #a3adb6; --sea: #8cc3dc; --sand: #16202b; --paper: #1c2834; --line: #33424f } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 56rem; padding: 2.5rem 1.5rem 4rem; background: var(--sand); color: var(--ink);
  font: 17px/1.55 system-ui, sans-serif; overflow-wrap: anywhere }
@media (max-width: 30rem) { body { padding: 1.25rem 1rem 3rem; font-size: 16px } }
h1 { font-size: clamp(1.6rem, 5vw, 2.3rem); line-height: 1.2; margin: 0 0 .4rem; text-wrap: balance }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .4rem }
p { margin: .5rem 0 } ul, ol { padding-inline-start: 1.4rem } li { margin: .25rem 0 }
a { color: var(--sea); text-underline-offset: .15em }
code, pre { font: .9em ui-monospace, monospace } code { color: var(--sea) }
pre { overflow-x: auto; padding: .8rem 1rem; background: var(--paper); border: 1px solid var(--line);
  border-radius: .4rem; overflow-wrap: normal }
table { border-collapse: collapse; width: 100% }
td, th { text-align: start; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: break-word }
th { color: var(--faint); font-weight: 500; font-size: .9em }
td.number, th.number { text-align: end; font-variant-numeric: tabular-nums; padding-inline-end: 0 }
nav.trail { font-size: .9rem; color: var(--faint); margin-bottom: 1.4rem }
nav.trail span { margin: 0 .4em }
footer { margin-top: 3rem; padding-top: .9rem; border-top: 1px solid var(--line); font-size: .9rem;
  color: var(--faint) }
footer a { margin-inline-end: 1rem }
.faint { color: var(--faint) } .lead { font-size: 1.1rem }
.text { white-space: pre-line }
.kind { color: var(--faint); font-size: .85rem; letter-spacing: .04em; margin: 0 0 .3rem }
.picture { float: inline-end; width: min(20rem, 42%); margin: .3rem 0 1rem 1.6rem; border-radius: .5rem;
  border: 1px solid var(--line); height: auto; background: var(--paper) }
@media (max-width: 38rem) { .picture { float: none; display: block; width: 100%; margin: .8rem 0 } }
dl { margin: 1rem 0; display: grid; grid-template-columns: minmax(7rem, 11rem) minmax(0, 1fr) }
dl > dt { color: var(--faint); padding: .4rem 1.2rem .4rem 0; border-top: 1px solid var(--line) }
dl > dd { margin: 0; padding: .4rem 0; border-top: 1px solid var(--line); min-width: 0 }
dd > ul, dd > ol, dd > dl { margin: 0 }
dd > dl > :is(dt, dd):nth-of-type(1) { border-top: 0; padding-top: 0 }
dd dl, li dl { grid-template-columns: minmax(5rem, 8rem) minmax(0, 1fr) } li > dl { margin: 0 0 .6rem }
@media (max-width: 30rem) { dl, dd dl, li dl { grid-template-columns: minmax(0, 1fr) }
  dl > dt { padding-bottom: 0 } dl > dd { border-top: 0; padding-top: 0 }
  dd > dl, li > dl { border-inline-start: 2px solid var(--line); padding-inline-start: .8rem } }
.facts { clear: none; overflow: hidden }
.list { list-style: none; padding: 0 } .list li { padding: .7rem 0; border-top: 1px solid var(--line); margin: 0 }
.list p { margin: .15rem 0 0; color: var(--faint); font-size: .95em }
"""

_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src 'self' https:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def page(title: str, body: str, *, head: str = "", lang: str = "en") -> str:
    """A whole page. `body` and `head` are HTML that is safe already; the title is text."""
    return (
        f'<!doctype html>\n<html lang="{escape(lang)}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
