"""The pages people see. Everything shown is escaped; nothing here decides anything."""

from portico.web.home import home_page
from portico.web.style import ASKING_HEADERS, HEADERS, page

__all__ = ["ASKING_HEADERS", "HEADERS", "home_page", "page"]
