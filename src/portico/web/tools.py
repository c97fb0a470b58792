"""The desk and the inspector: pages whose scripts load all that they show."""

from collections.abc import Mapping, Sequence
from html import escape

from portico.web.item import script_json
from portico.web.style import page

_HEAD = '<meta name="robots" content="noindex">'


def tool_page(
    name: str, title: str, site: str, about: str, modules: Sequence[str], data: Mapping[str, str] | None = None
) -> str:
    """Return a page with the style sheet of its name. `data` is for its scripts; the other arguments are plain text."""
    script = f'<script type="application/json" id="portico-data">{script_json(data)}</script>' if data else ""
    body = f"""<a class="skip" href="#main">Skip to the content</a>
<header class="top"><p class="where grow"><a href="/"><bdi>{escape(site)}</bdi></a></p>
<div id="tools" class="row"></div></header>
<main id="main" tabindex="-1"><h1>{escape(title)}</h1><p class="lead">{escape(about)}</p>
<noscript><p class="note warn">This page needs JavaScript.</p></noscript><div id="app"></div></main>{script}"""
    return page(f"{title} · {site}", body, head=_HEAD, styles=[f"{name}.css"], modules=modules, kind=name)


def desk_page(site: str) -> str:
    """Return the operator's page. All that it shows, its scripts load with an API key."""
    modules = (
        *("desk.js", "dom.js", "charts.js"),
        *("desk-audit.js", "desk-parts.js", "desk-waiting.js", "desk-watch.js"),
    )
    return tool_page("desk", "Desk", site, "Approvals and site health.", modules)


def inspect_page(site: str, chat: str = "/chat") -> str:
    """Return the page that sends one question over every protocol and shows the traffic. `chat` is the chat's path."""
    about = "Compare the answers of every protocol to one question."
    return tool_page("inspect", "Inspector", site, about, ("inspect.js", "dom.js", "desk-parts.js"), {"chat": chat})
