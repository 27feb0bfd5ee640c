"""Bench service: `gpuledger serve` as a process, and the time until it is ready."""

import contextlib
import http.client
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from support.servers.ports import free_port

from tests.bench.harness import processor_stopwatch
from tests.bench.harness.ledgers import CLUSTER

READY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 15.0

_UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""Where this is set, every start of the service would compile all it imports again."""


class MeasuredProcess:
    """A process that serves at `address`, HOST:PORT."""

    def __init__(self, pid: int, address: str) -> None:
        self.address = address
        self._pid = pid

    def computed(self) -> float:
        """Return the seconds that the process computed so far, without its children."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class BenchService(MeasuredProcess):
    """`gpuledger serve` as a process."""

    def __init__(self, store: Path, *, by_processor: bool = False) -> None:
        """Start it on a store; `by_processor`: its writer measures blocks in processor time."""
        module = processor_stopwatch.__name__ if by_processor else "gpuledger"
        address = f"127.0.0.1:{free_port()}"
        self.started = time.perf_counter()
        self._authority = store / "tls" / "ca.crt"
        self._log = (store / "service.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", module, "serve", "--no-kubernetes"),
                *("--store-dir", str(store), "--listen", address, "--cluster", CLUSTER),
            ],
            stdout=self._log,
            stderr=self._log,
            env={name: text for name, text in os.environ.items() if name != _UNCOMPILED},
        )
        super().__init__(self._process.pid, address)

    def wait_ready(self) -> float:
        """Return the seconds from the start of the process to its first answer that it is ready."""
        until = self.started + READY_SECONDS_MAX
        while time.perf_counter() < until:
            assert self._process.poll() is None, Path(self._log.name).read_text()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._get("/readyz")[0] == 200:
                    return time.perf_counter() - self.started
            time.sleep(0.01)
        raise AssertionError(f"not ready in {READY_SECONDS_MAX:g} s: {self._get('/readyz')}")

    def metric(self, name: str) -> float:
        """Return one of the service's metrics, without labels."""
        for line in self._get("/metrics")[1].decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"there is no metric {name}")

    def stop(self) -> None:
        """End the process, by force when it does not."""
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _get(self, path: str) -> tuple[int, bytes]:
        host, _, port = self.address.rpartition(":")
        context = ssl.create_default_context(cafile=str(self._authority))
        connection = http.client.HTTPSConnection(host, int(port), timeout=5, context=context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextlib.contextmanager
def serving(store: Path, *, by_processor: bool = False) -> Iterator[BenchService]:
    """Serve a store for the block, from the moment it is ready; see `BenchService`."""
    service = BenchService(store, by_processor=by_processor)
    try:
        service.wait_ready()
        yield service
    finally:
        service.stop()
