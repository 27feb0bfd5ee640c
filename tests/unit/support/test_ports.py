"""Ports that tests hand to servers."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.servers import ports

TESTS = Path(__file__).parents[2]
CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
HOLD = """
import sys
from support.servers import ports
ports._candidates = iter(range(int(sys.argv[1]), int(sys.argv[1]) + 20))
print(ports.free_port(), flush=True)
sys.stdin.read()
"""


def test_no_outgoing_connection_can_be_given_a_port_of_a_server() -> None:
    lowest = int(CLIENTS.read_text().split()[0])
    if lowest < ports.LOWEST + ports.COUNT:
        pytest.skip(f"this machine gives its clients all ports from {lowest} on")
    assert all(port < lowest for port in (ports.free_port() for _ in range(100)))


def test_a_process_gets_no_port_twice() -> None:
    given = [ports.free_port() for _ in range(500)]
    assert len(set(given)) == len(given)


def test_two_processes_that_begin_alike_get_different_ports() -> None:
    first = ports.free_port()
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(first)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        given = [int(holder.stdout.readline()) for holder in holders if holder.stdout]
    finally:
        for holder in holders:
            holder.communicate()
    assert len({first, *given}) == 4


def test_a_port_that_a_server_has_bound_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    free = ports.free_port()
    with socket.create_server(("127.0.0.1", free)):
        monkeypatch.setattr(ports, "_candidates", iter([free, free + 1, free + 2, free + 3]))
        assert ports.free_port() != free
