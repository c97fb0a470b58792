"""Settings of MCP-AQL."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

Profile: TypeAlias = Literal["crude", "operate", "publish"]

# Variables of the environment that every server of MCP-AQL reads, and the settings that they replace.
ENVIRONMENT: Final[Mapping[str, str]] = {
    "MCP_AQL_ENDPOINT_MODE": "mode",
    "MCP_AQL_ENDPOINT_PROFILE": "profile",
    "MCP_AQL_TOOL_PREFIX": "prefix",
}


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the environment gives."""
    settings = {setting: environment[name] for name, setting in ENVIRONMENT.items() if environment.get(name)}
    if settings.get("mode") == "crude":
        settings["mode"] = "semantic"
    return settings


class AqlSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[aql]: MCP-AQL, over MCP and at /aql."""

    mode: Literal["semantic", "single", "all", "none"] = "all"  # which tools there are
    profile: Profile = "crude"  # how operations are spread over the tools of semantic mode
    prefix: Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,18}_$")] = "mcp_aql_"  # of the names of tools
    offers: Literal["all", "safety"] = "all"  # safety: only what watches over tools of other servers
    errors: bool = False  # whether what a caller can mend is told as an error of the tool
    strict: bool = True  # refuse unknown parameters; only for development it may be false
    request_bytes: Annotated[int, Meta(ge=65_536, le=10_485_760)] = 1_048_576
    response_bytes: Annotated[int, Meta(ge=1_048_576, le=104_857_600)] = 10_485_760
    string_bytes: Annotated[int, Meta(ge=65_536, le=10_485_760)] = 1_048_576
    array_elements: Annotated[int, Meta(ge=100, le=100_000)] = 10_000
    depth: Annotated[int, Meta(ge=8, le=64)] = 32
    page: Annotated[int, Meta(ge=1, le=1000)] = 20  # items of a page, when the caller does not say
    most: Annotated[int, Meta(ge=1, le=1000)] = 100  # items of a page, whatever the caller says
    batch: Annotated[int, Meta(ge=1, le=1000)] = 50  # operations of a batch
    on_confirmation: Literal["halt", "skip"] = "halt"  # what becomes of a batch when one of its operations must wait

    @property
    def single_tool(self) -> str:
        """The name of the tool that has every operation, where the mode offers it."""
        return self.prefix.removesuffix("_")

    @property
    def has_single_tool(self) -> bool:
        return self.mode in {"single", "all"} and self.offers == "all"
