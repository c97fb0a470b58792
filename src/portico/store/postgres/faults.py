"""Translates faults of the database into errors for callers and operators."""

from collections.abc import Generator
from contextlib import contextmanager

import asyncpg

from portico.errors import ConfigError, InvalidQuery, SiteError, TimedOut, TooLarge, Unavailable, Unsupported
from portico.store.health import StoreFault

# A connection that is cut between two messages leaves the driver in a state of its own.
FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Disconnected(StoreFault):
    """The connection broke while it was used. Recorded if the next one does not work either."""


def too_slow() -> TimedOut:
    return TimedOut("The query took too long", hint="Narrow it with a filter, or ask for less.")


@contextmanager
def translate_faults() -> Generator[None]:
    """Raise a fault of the database as an error that a caller of the site may see."""
    try:
        yield
    except FAULTS as error:
        raise _explain(error) from error


@contextmanager
def translate_opening_faults() -> Generator[None]:
    """Raise a fault as an error for the operator who opens the store. It may name the address, never the password."""
    try:
        yield
    except asyncpg.PostgresError as error:
        raise _explain_url(error) or _explain(error) from error
    except (ValueError, OverflowError) as error:
        raise ConfigError("The URL of the store cannot be used", hint=URL_HINT) from error
    except (OSError, TimeoutError) as error:
        reason = str(error) or "it does not answer"
        raise Unavailable(f"The database cannot be reached: {reason}", hint="Is it running? Check the URL.") from error


_HINT = "It is tried again with the next request; `portico check` says more."
URL_HINT = "Write postgresql://user@host:5432/database?schema=name, and a password with %40 for @ and %2F for /."


def _explain_url(error: asyncpg.PostgresError) -> ConfigError | None:
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return ConfigError("The database refuses this user", hint="Check user and password in the store's URL.")
        case asyncpg.InvalidCatalogNameError():
            return ConfigError(f"The database does not exist: {error}", hint="Make it with createdb.")
        case asyncpg.InsufficientPrivilegeError():
            return ConfigError(f"The database does not allow this: {error}", hint="Check the user's rights.")
        case asyncpg.CantChangeRuntimeParamError() | asyncpg.UndefinedObjectError():
            return ConfigError(f"The database does not know a setting of the URL: {error}", hint=URL_HINT)
        case asyncpg.InvalidParameterValueError():
            return ConfigError(f"The database does not take a setting of the URL: {error}", hint=URL_HINT)
        case _:
            return None


def _explain(error: Exception) -> SiteError:  # noqa: PLR0912 - a table
    match error:
        case asyncpg.QueryCanceledError():
            return too_slow()
        case asyncpg.LockNotAvailableError() | asyncpg.DeadlockDetectedError() | asyncpg.SerializationError():
            return Unavailable("Another write is in the way", hint="Try again.")
        case asyncpg.DiskFullError():
            return StoreFault("The database's disk is full", hint="Free some space; nothing was written.")
        case asyncpg.PostgresIOError() | asyncpg.UndefinedFileError():
            hint = "Check the disk of the database, and its log."
            return StoreFault("The database cannot read or write its files", hint=hint, is_damage=True)
        case asyncpg.DataCorruptedError() | asyncpg.IndexCorruptedError():
            hint = "Look into its log, and restore a backup."
            return StoreFault("The database is damaged", hint=hint, is_damage=True)
        case asyncpg.TooManyConnectionsError():
            return StoreFault("The database takes no more connections", hint="Lower store.pool, or allow it more.")
        case asyncpg.OutOfMemoryError():
            return StoreFault("The database is out of memory", hint="Look into its log.")
        case asyncpg.ReadOnlySQLTransactionError():
            return StoreFault("The database is read-only at present", hint="Is this a standby?")
        case asyncpg.NumericValueOutOfRangeError():
            return InvalidQuery(f"The query cannot be computed: {error}")
        case asyncpg.CannotConnectNowError() | asyncpg.AdminShutdownError() | asyncpg.CrashShutdownError():
            return Disconnected("The database is starting or stopping", hint=_HINT)
        case asyncpg.PostgresConnectionError() | asyncpg.IdleInTransactionSessionTimeoutError():
            return Disconnected("The connection to the database was lost", hint=_HINT)
        case asyncpg.ProgramLimitExceededError():
            return TooLarge(f"This is more than the database can hold: {error}")
        case asyncpg.DataError():
            return InvalidQuery("A value is none that the database can use")
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedColumnError():
            return StoreFault("The store is not whole", hint="`portico check` looks it over.", is_damage=True)
        case asyncpg.PostgresError():
            return Unsupported(f"The store cannot do this: {error}")
        case asyncpg.InterfaceError() if "connection" not in str(error):
            return Unsupported(f"The store cannot do this: {error}")
        case _:
            return Disconnected("The database cannot be reached", hint=_HINT)
