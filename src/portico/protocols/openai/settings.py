"""Settings of the OpenAI-compatible protocol."""

from typing import Annotated

import msgspec
from msgspec import Meta


class OpenaiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[openai]: the site as a model, for clients of OpenAI's API."""

    enabled: bool = True  # whether it is served
    model: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "portico"  # the name of the model
