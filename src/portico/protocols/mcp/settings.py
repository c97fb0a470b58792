"""Settings of MCP."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[mcp]"""

    operations: Literal["none", "own", "all"] = "none"  # that are tools beside ask and await; own: the site's own
    sessions: Annotated[int, Meta(ge=1)] = 1000  # of clients that open one, at the same time
    idle: Annotated[float, Meta(gt=0)] = 1800.0  # seconds until an unused session ends
