"""Permissive webhook: the baseline, which reads a pod and allows it, on the service's own stack."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Route
from support.servers.ports import free_port

from ledger.runtime.http import http_server
from ledger.runtime.tls import certificate_reload
from tests.bench.harness.bench_service import MeasuredProcess
from tests.bench.harness.fresh_process import MeasuringProcess, start, wait_for_go
from webhook.api.admission_review import (
    MUTATE_PATH,
    VALIDATE_PATH,
    AdmissionResponse,
    AnsweredAdmissionReview,
    decode,
    required_pod,
)
from webhook.app import endpoint
from webhook.context.admission_settings import AdmissionSettings

HOST: Final = "127.0.0.1"


class PermissiveWebhook:
    """Reads the pod and allows it."""

    def __init__(self) -> None:
        self.answered = 0

    async def answer(self, body: bytes, until: float) -> AnsweredAdmissionReview:
        request = decode(body)
        required_pod(request, "object")
        self.answered += 1
        return AnsweredAdmissionReview(response=AdmissionResponse(request.uid, True))


class PermissiveProcess(MeasuredProcess):
    """The process that allows everything."""

    def __init__(self, running: MeasuringProcess, address: str) -> None:
        super().__init__(running.pid, address)
        self._running = running
        self.answered = 0

    def end(self) -> None:
        """End it; `answered` is then how many reviews it has answered."""
        self._running.go()
        self.answered = int(self._running.result()["answered"])


async def answer_allowed(store: str, port: int) -> dict[str, float]:
    """Serve with the certificates of a store until `wait_for_go` returns."""
    handler = PermissiveWebhook()
    paths = (MUTATE_PATH, VALIDATE_PATH)
    app = Starlette(routes=[Route(path, endpoint(handler, AdmissionSettings())) for path in paths])
    secured = certificate_reload.Tls(certificate_reload.own(Path(store, "tls"), (HOST,)))
    stop = asyncio.Event()
    listener = http_server.bind(f"{HOST}:{port}")
    task = asyncio.create_task(http_server.serve(app, listener, stop, tls=secured))
    await wait_for_go()
    stop.set()
    await task
    return {"computed": time.process_time(), "answered": handler.answered}


@contextmanager
def permissive_webhook(store: Path) -> Iterator[PermissiveProcess]:
    """Serve for the block."""
    port = free_port()
    floor = PermissiveProcess(
        running := start(answer_allowed, store=str(store), port=port), f"{HOST}:{port}"
    )
    running.wait_ready()
    try:
        yield floor
    finally:
        floor.end()
