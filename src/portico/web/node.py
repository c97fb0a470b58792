"""The page of an NWP node, for people who come by."""

from collections.abc import Mapping, Sequence
from typing import Any


def node_page(site: str, name: str, manifest: Mapping[str, Any], nodes: Sequence[tuple[str, str, str]]) -> str:
    """What a node is and offers; `nodes` are all there are, by name, type and title."""
    return f"<!doctype html><title>{site}</title>{name}"
