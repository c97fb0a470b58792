"""Who calls and how much they may: identity, API keys, OAuth, certificates (NIP), rate limits.

`identity.py` makes the Caller of a request, and `limits.py` counts what callers use. Whether a request may run
is decided in `safety/`.
"""
