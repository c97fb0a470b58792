"""A process that has Portico imported and forks for each command, so that a hundred commands take seconds.

Reads one JSON request per line: arguments, folder, environment and where output goes. Answers with the exit code.
Each command runs `portico.cli.main` in a process of its own, as the installed script does.
"""

import contextlib
import io
import json
import os
import signal
import sys
import traceback

import portico.cli
import portico.cli.conversation
import portico.cli.query_nwp
import portico.cli.site_check
import portico.sources.pdf
import portico.sources.sql
import portico.store.copying
import portico.store.postgres
import portico.store.sqlite

LONGEST_SECONDS = 120


def run(request: dict) -> None:
    """Become the command. Never returns."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.alarm(LONGEST_SECONDS)  # a command that hangs ends as a failure of its test, not of the suite
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    sys.argv = ["portico", *request["args"]]
    code = 0
    try:
        portico.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - shown as the interpreter would show it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# Reading a command line imports more than the command line's module does.
with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
    portico.cli.app(["query", "anything", "--limit", "many"])

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(json.loads(line))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.stdout.write(f"{code}\n")
    sys.stdout.flush()
