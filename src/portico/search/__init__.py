"""Finds items: the query cache, the finder over index and store, and the index in memory."""
