"""The page of the operator's desk. Useless without a key: all it shows it asks for with one."""

from portico.web.tools import tool_page

MODULES = ("desk.js", "dom.js", "charts.js", "desk-audit.js", "desk-parts.js", "desk-waiting.js", "desk-watch.js")


def desk_page(site: str) -> str:
    return tool_page("desk", "Desk", site, "What waits for a person, and how the site is doing.", MODULES)
