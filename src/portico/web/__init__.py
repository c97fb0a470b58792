"""The pages for people. They escape all that they show, and check no rights."""

from portico.web.home import home_page
from portico.web.style import APP_HEADERS, HEADERS, page

__all__ = ["APP_HEADERS", "HEADERS", "home_page", "page"]
