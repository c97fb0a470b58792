"""Ports for servers that begin to listen a while after they got theirs."""

import itertools
import os
import random
import socket

COUNT = 2_000  # for each process of the suite
PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
FIRST = 20_000 + PROCESS * COUNT  # below what systems hand out, so that nobody is given one of these meanwhile
CANDIDATES = itertools.cycle(random.sample(range(FIRST, FIRST + COUNT), COUNT))


def free_port() -> int:
    """A port on loopback that nobody listens on, and that is not chosen again soon."""
    return next(port for port in itertools.islice(CANDIDATES, COUNT) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
