"""Addresses that may end with a slash."""

from typing import Any

from starlette.routing import Route


class Slashed(Route):
    """An address that may end with a slash. Clients are not sent elsewhere: not all of them follow."""

    def __init__(self, path: str, endpoint: Any, *methods: str) -> None:
        super().__init__(path, endpoint, methods=methods)

    def matches(self, scope: Any) -> Any:
        said = scope["path"]
        plain = {**scope, "path": said.removesuffix("/")} if said != "/" else scope
        return super().matches(plain)
