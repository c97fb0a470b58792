"""Pages that are programs: an empty frame, and the scripts that fill it. They hold no items."""

from collections.abc import Mapping, Sequence
from html import escape

from portico.web.item import embedded
from portico.web.style import page

_HEAD = '<meta name="robots" content="noindex">'


def tool_page(
    name: str, title: str, site: str, about: str, modules: Sequence[str], told: Mapping[str, str] | None = None
) -> str:
    """A page with a style sheet of its own name. The title, the site and what it is about are text.

    `told` is for the scripts.
    """
    data = f'<script type="application/json" id="portico-data">{embedded(told)}</script>' if told else ""
    body = f"""<a class="skip" href="#main">Skip to the content</a>
<header class="top"><p class="where grow"><a href="/"><bdi>{escape(site)}</bdi></a></p>
<div id="tools" class="row"></div></header>
<main id="main" tabindex="-1"><h1>{escape(title)}</h1><p class="lead">{escape(about)}</p>
<noscript><p class="note warn">This page needs JavaScript.</p></noscript><div id="app"></div></main>{data}"""
    return page(f"{title} · {site}", body, head=_HEAD, styles=[f"{name}.css"], modules=modules, kind=name)
