"""The page that puts one question through every protocol, and shows what went over the wire."""

from portico.web.tools import tool_page

MODULES = ("inspect.js", "dom.js", "desk-parts.js")


def inspect_page(site: str) -> str:
    return tool_page("inspect", "Inspector", site, "One question through every protocol, side by side.", MODULES)
