"""Versions as pairs of whole numbers: 0.10 is later than 0.4."""

import re

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.\d{1,6})*\Z", re.ASCII)


def pair(version: str) -> tuple[int, int] | None:
    """The numbers of a version; None for what is none."""
    found = _VERSION.match(version.strip())
    return (int(found[1]), int(found[2])) if found else None


def is_older(version: str, than: str) -> bool:
    """Whether a version comes before another; what cannot be read is older than anything."""
    oldest = pair(than)
    return oldest is not None and (pair(version) or (-1, -1)) < oldest
