"""Settings of A2A."""

import msgspec


class A2aSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[a2a]"""

    push: bool = True  # whether callers with a name may be told of their tasks at an address of theirs
