"""The pages people see. Everything shown is escaped; nothing here decides anything."""

from portico.web.home import home_page
from portico.web.style import HEADERS, STYLE, page

__all__ = ["HEADERS", "STYLE", "home_page", "page"]
