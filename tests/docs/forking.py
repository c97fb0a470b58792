"""The command `portico` without its start. A process that has loaded Portico once forks for every command.

This file is that process, as a program: `forking.py SOCKET`. It ends when its standard input does. A command is a
small script that hands over its arguments, folder, environment and streams, and ends as the fork has ended.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

LOADED = (
    "portico.cli",
    "portico.cli.site_check",
    "portico.cli.conversation",
    "portico.store.copying",
    "portico.server.http",
    "portico.sources.ingest",
    "portico.cli.query_nwp",
    "portico.sources.sql",
    "portico.store.postgres",
    "portico.store.sqlite",
)
COMMAND = """#!{python} -IS
import json, os, signal, socket, sys

with socket.socket(socket.AF_UNIX) as plug:
    plug.connect({path!r})
    said = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(plug, [len(said).to_bytes(4, "big")], [0, 1, 2])
    plug.sendall(said)
    fork = int.from_bytes(plug.recv(4), "big")
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: os.kill(fork, number))
    code = plug.recv(1)
sys.exit(code[0] if code else "there was nobody to run it")
"""


@contextmanager
def forking(environment: dict[str, str]) -> Iterator[Path]:
    """A folder with the command. The console of all forks is made with this environment."""
    with tempfile.TemporaryDirectory(prefix="portico-") as folder:
        path, command = os.path.join(folder, "plug"), Path(folder, "portico")
        command.write_text(COMMAND.format(python=sys.executable, path=path), "utf-8")
        command.chmod(0o755)
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, __file__, path], env=environment, stdin=pipe, stdout=pipe) as process:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == b"open\n"
            yield command.parent
            process.stdin.close()


def serve(path: str) -> None:
    for name in LOADED:
        importlib.import_module(name)
    # Reading a command line imports more than the command line's module does.
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        importlib.import_module("portico.cli").app(["query", "anything", "--limit", "many"])
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for a command
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as news:
        listener.bind(path)
        listener.listen()
        news.register(listener, selectors.EVENT_READ)
        news.register(0, selectors.EVENT_READ)
        os.write(1, b"open\n")
        while all(key.fileobj is listener for key, _ in news.select()):
            plug, _ = listener.accept()
            with plug:
                if os.fork() == 0:
                    listener.close()
                    run(plug)


def run(plug: socket.socket) -> NoReturn:
    """Run one command, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(plug, 4, 3)
    with plug.makefile("rb") as rest:
        arguments, folder, environment = json.loads(rest.read(int.from_bytes(size, "big")))
    fork = os.fork()
    if fork == 0:
        plug.close()
        become(arguments, folder, environment, streams)
    for each in streams:
        os.close(each)
    plug.sendall(fork.to_bytes(4, "big"))
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    plug.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def become(arguments: list[str], folder: str, environment: dict[str, str], streams: Sequence[int]) -> NoReturn:
    """Go on as the command itself, to the end of the process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    sys.exit(importlib.import_module("portico.cli").main())


if __name__ == "__main__":
    serve(sys.argv[1])
