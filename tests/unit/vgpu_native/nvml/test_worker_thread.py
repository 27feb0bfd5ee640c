"""Calls of a driver that hangs."""

import subprocess
import sys
import threading

import pytest

from vgpu_native.nvml.worker_thread import WorkerThread

HANGING = """
import asyncio, threading
from vgpu_native.nvml.nvml_port import NvmlDriver, NvmlError
class Hanging:
    def gpus(self):
        threading.Event().wait()
    def xid(self, seconds):
        threading.Event().wait()
async def main():
    driver = NvmlDriver(Hanging(), 0.05)
    listening = asyncio.create_task(driver.xid(1.0))
    for text in ("did not answer", "has not answered for long"):
        try:
            await driver.ask(driver.nvml.gpus)
        except NvmlError as error:
            assert text in str(error), error
    assert driver.is_asking
    driver.close()
    listening.cancel()
asyncio.run(main())
print("ended")
"""


def test_a_process_ends_when_its_driver_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_calls_run_one_after_the_other_and_return_their_errors() -> None:
    worker, made = WorkerThread("test"), list[int]()
    go_on = threading.Event()

    def make(number: int) -> int:
        made.append(number)
        return len(made)

    first = worker.submit(lambda: (go_on.wait(10), make(1)))
    second = worker.submit(lambda: make(2))
    wrong = worker.submit(lambda: 1 // 0)
    assert (worker.is_busy, made) == (True, [])
    go_on.set()
    assert first.result(10) == (True, 1)
    assert second.result(10) == 2
    with pytest.raises(ZeroDivisionError):
        wrong.result(10)
    assert not worker.is_busy
    worker.close()
