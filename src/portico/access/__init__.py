"""Who calls and how much they may: identity, API keys, OAuth, certificates (NIP), rate limits."""
