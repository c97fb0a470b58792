"""Starts `portico serve` again and again, each time in a fork of a process that has imported it already.

Run as a script in the folder of a site. For each line on its standard input it kills the server before, starts the next
one, and prints its process id.
"""

import contextlib
import os
import signal
import sys
from importlib import import_module

MODULES = (
    *("apsw", "asyncpg", "uvicorn", "portico.server.http", "portico.server.assembly", "portico.site", "portico.cli"),
    *("portico.store.sqlite", "portico.store.postgres", "portico.protocols.mcp", "portico.protocols.a2a"),
)


def serve() -> None:
    """Never returns."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    sys.argv = ["portico", "serve"]
    try:
        import_module("portico.cli").main()
    finally:
        os._exit(1)


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main() -> None:
    for name in MODULES:
        with contextlib.suppress(ImportError):
            import_module(name)
    child = 0
    _say("ready")
    for _ in sys.stdin:
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            serve()
        _say(child)
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
