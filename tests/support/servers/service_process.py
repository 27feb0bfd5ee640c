"""Service process: `gpuledger serve` without a cluster, and reviews that are posted to it."""

import contextlib
import json
import os
import signal
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx2
from support.builders.admission_reviews import FIXTURES
from support.harness.command_line import COMMAND, gpuledger
from support.servers.ports import free_port

READY_SECONDS = 60.0
STOP_SECONDS = 30.0
"""Kubernetes' default grace period for the end of a pod."""

VALIDATE = "/admission/validate"


class ServiceProcess:
    """One service on one store; `client` posts to it."""

    def __init__(self, store: Path, *options: str) -> None:
        self.store = store
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.store / "tls" / "ca.crt"))

    def client(self, **more: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, verify=self.tls(), timeout=20.0, **more)

    def start(self, *, ready: bool = True) -> None:
        self.store.mkdir(parents=True, exist_ok=True)
        with (self.store / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(str(COMMAND), "serve", "--no-kubernetes"),
                    f"--store-dir={self.store}",
                    f"--listen=127.0.0.1:{self.port}",
                    *self.options,
                ],
                stdout=log,
                stderr=log,
                env=os.environ,
            )
        if ready:
            self.wait_for("ledger", ok=True)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def wait_for(self, check: str, *, ok: bool) -> str:
        """Wait until a check of readiness is `ok` or not; return its reason."""
        until = time.monotonic() + READY_SECONDS
        last: Any = None
        while time.monotonic() < until:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            with contextlib.suppress(httpx2.HTTPError, OSError, json.JSONDecodeError):
                last = httpx2.get(f"{self.url}/readyz", verify=self.tls(), timeout=10.0).json()
                readiness = next(entry for entry in last["checks"] if entry["name"] == check)
                if readiness["ok"] is ok:
                    return str(readiness["reason"])
            time.sleep(0.05)
        log = (self.store / "service.log").read_text(errors="replace")[-2_000:]
        raise AssertionError(f"{check} was never {ok}: {last}\n{log}")


@contextlib.contextmanager
def running_service(store: Path, *options: str) -> Iterator[ServiceProcess]:
    """A service that is ready, and ended after the block."""
    service = ServiceProcess(store, *options)
    service.start()
    try:
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.kill()


def recorded_creation() -> dict[str, Any]:
    """Return the validating review of a recorded creation of a pod with one card and 8000 MiB."""
    calls = json.loads((FIXTURES / "pod-create.json").read_text())["calls"]
    return next(call["review"] for call in calls if call["webhook"] == "validate")


_TEMPLATE = recorded_creation()


def creation(name: str, *, namespace: str = "team", uid: str = "") -> dict[str, Any]:
    """Return the recorded creation as that of another pod."""
    review = deepcopy(_TEMPLATE)
    request = review["request"]
    request["uid"] = str(uuid.uuid4())
    request["name"], request["namespace"] = name, namespace
    request["object"]["metadata"] |= {
        "name": name,
        "namespace": namespace,
        "uid": uid or str(uuid.uuid4()),
    }
    return review


def set_quota(store: Path, memory: int, namespace: str = "team") -> None:
    """Limit a namespace to so many MiB with the command line."""
    done = gpuledger(
        "quota", "set", "-n", namespace, "main", f"limits.nvidia.com/gpumem={memory}", store=store
    )
    assert done.status == 0, done


def held_uids(store: Path) -> set[str]:
    """Return the uids that have an open hold, by the command line."""
    return {hold["uid"] for hold in gpuledger("holds", "-o", "json", store=store).json}


def used(store: Path) -> int:
    """Return the MiB that namespace team uses, by the command line."""
    shown = gpuledger("usage", "-n", "team", "-o", "json", store=store).json
    return int(shown[0]["used"])


async def post(client: httpx2.AsyncClient, review: dict[str, Any]) -> dict[str, Any]:
    """Post a review and return the response."""
    answer = await client.post(VALIDATE, json=review)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()["response"]
    return response


def ledger_problem(service: ServiceProcess) -> str:
    """Wait until the service reports why it cannot decide; return the reason."""
    reason = service.wait_for("ledger", ok=False)
    while "has not been opened yet" in reason:
        reason = service.wait_for("ledger", ok=False)
    return reason
