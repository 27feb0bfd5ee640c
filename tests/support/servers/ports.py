"""Ports: loopback ports for servers that tests start a moment later.

The kernel chooses a port (bind to 0) from the range that it also gives to outgoing connections, so
another client may get the port before the server binds. The ports here are outside that range. Each
has a byte in a shared file, and a lock on the byte reserves the port for one process. The kernel
releases the locks when the process ends.
"""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

LOWEST, COUNT = 12_000, 18_000


def free_port() -> int:
    """Return a free loopback port, which no other test is given."""
    for port in itertools.islice(_candidates, COUNT):
        if _lock(port) and _unbound(port):
            return port
    raise AssertionError(f"no port of {LOWEST} to {LOWEST + COUNT} is free on 127.0.0.1")


def _in_turn() -> Iterator[int]:
    # Each process begins elsewhere, and gives no port twice before it has given them all.
    first = random.SystemRandom().randrange(COUNT)
    return itertools.cycle(LOWEST + (first + step) % COUNT for step in range(COUNT))


def _shared() -> IO[bytes]:
    return (Path(tempfile.gettempdir()) / f"gpuledger-test-ports-{os.getuid()}").open("a+b")


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _unbound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_candidates = _in_turn()
_locks = _shared()
