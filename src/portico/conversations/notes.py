"""Notes: small values with a lifetime, which every process of the site can read. Knows nothing of their contents."""

from datetime import UTC, datetime, timedelta

from portico.requests import Caller
from portico.store import Store

NOTES_PER_MINUTE = 120  # that one caller may set


class Notes:
    """Values of callers, each seen by its caller alone, and values of the site itself."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(self, name: str, value: bytes, caller: Caller, hours: float = 1) -> bool:
        """Store a value for a caller, in place of one of the same name.

        Return False, and store nothing, if the caller's allowance for notes is used up.
        """
        is_metered = await self._take(caller)
        if is_metered:
            await self._store.notes.set(_key(name, caller), value, _from_now(hours))
        return is_metered

    async def get(self, name: str, caller: Caller) -> bytes | None:
        """Return a value that was stored for this caller."""
        return await self._store.notes.get(_key(name, caller))

    async def claim(self, name: str, digest: str, caller: Caller, hours: float) -> bool:
        """Let a name of this caller stand for one thing, by its digest. False if it stands for another already."""
        keys, key = self._store.idempotency, _key(name, caller)
        is_metered = await self._take(caller)
        record = await (keys.reserve(key, digest, _from_now(hours)) if is_metered else keys.get(key))
        return record is None or record.digest == digest

    async def set_for_site(self, name: str, value: bytes, days: float) -> None:
        """Store a value for the site itself, in place of one of the same name."""
        await self._store.notes.set(f"site\n{name}", value, _from_now(24 * days))

    async def get_for_site(self, name: str) -> bytes | None:
        return await self._store.notes.get(f"site\n{name}")

    async def _take(self, caller: Caller) -> bool:
        meter = await self._store.meters.take(f"notes\n{caller.rate_key}", NOTES_PER_MINUTE)
        return meter.granted > 0


def _from_now(hours: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def _key(name: str, caller: Caller) -> str:
    return f"{caller.storage_key}\n\nnote\n{name}"
