"""Settings of the AI Chat Protocol."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ChatSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[chat]: the AI Chat Protocol."""

    path: Annotated[str, Meta(pattern=r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$")] = "/chat"  # /stream is below it
    errors: Literal["text", "object"] = "text"  # how errors are told; objects have a code
    keep: bool = True  # whether conversations of callers with a name are stored
    files: Annotated[int, Meta(ge=0, le=100)] = 5  # that may come with a question
    file_bytes: Annotated[int, Meta(ge=1, le=100_000_000)] = 2_000_000  # of one file
    azure: bool = False  # whether there are routes that older front ends of Azure samples expect
