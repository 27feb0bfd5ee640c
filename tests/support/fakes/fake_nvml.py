"""A fake of NVML that a test controls."""

import queue

from vgpu_native.nvml.nvml_port import DriverProcess, Gpu, Load, NvmlError, Xid

GIB = 1024**3


def gpu(number: int, **changes: object) -> Gpu:
    """Return a card."""
    values: dict[str, object] = {
        "uuid": f"GPU-{number}",
        "index": number,
        "name": "NVIDIA H200",
        "memory": 80 * GIB,
    }
    return Gpu(**(values | changes))  # type: ignore[arg-type]


class FakeNvml:
    """Implements the port `Nvml` by attributes that tests change."""

    def __init__(self, *gpus: Gpu) -> None:
        self.listed: tuple[Gpu, ...] = gpus
        self.failing = ""
        self.failing_cards: dict[str, str] = {}
        self.running: dict[str, tuple[DriverProcess, ...]] = {}
        self.loads: dict[str, Load] = {}
        self.linked: dict[tuple[str, str], int] = {}
        self.errors: queue.SimpleQueue[Xid] = queue.SimpleQueue()

    def gpus(self) -> tuple[Gpu, ...]:
        if self.failing:
            raise NvmlError(self.failing)
        return self.listed

    def load(self, uuid: str) -> Load:
        if uuid in self.failing_cards:
            raise NvmlError(self.failing_cards[uuid])
        return self.loads.get(uuid, Load(0, 0, 0))

    def processes(self, uuid: str) -> tuple[DriverProcess, ...]:
        if self.failing:
            raise NvmlError(self.failing)
        return self.running.get(uuid, ())

    def scores(self) -> dict[tuple[str, str], int]:
        return self.linked

    def xid(self, seconds: float) -> Xid | None:
        try:
            return self.errors.get(timeout=seconds)
        except queue.Empty:
            return None
