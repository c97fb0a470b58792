"""The page that puts one question through every protocol, and shows what went over the wire."""

from portico.web.tools import tool_page

MODULES = ("inspect.js", "dom.js", "desk-parts.js")


def inspect_page(site: str, chat: str = "/chat") -> str:
    """`chat` is where the site has its chat."""
    about = "One question through every protocol, side by side."
    return tool_page("inspect", "Inspector", site, about, MODULES, {"chat": chat})
