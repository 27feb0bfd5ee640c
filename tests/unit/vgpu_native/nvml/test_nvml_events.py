"""NVML event sets: an incomplete set is freed, and the next call creates another."""

from typing import Any

import pynvml
import pytest

from vgpu_native.nvml.nvml_library import NvmlLibrary
from vgpu_native.nvml.nvml_port import NvmlError


class Driver:
    """The part of NVML that waits for errors; `open` are the sets that are not freed."""

    def __init__(self) -> None:
        self.made = 0
        self.open: set[int] = set()
        self.fails = True

    def create(self) -> int:
        self.made += 1
        self.open.add(self.made)
        return self.made

    def register(self, card: int, _kinds: int, _events: int) -> None:
        if self.fails and card == 1:
            raise pynvml.NVMLError_Unknown

    def wait(self, events: int, _milliseconds: int) -> Any:
        assert events in self.open
        raise pynvml.NVMLError_Timeout


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    fake = Driver()
    for name, call in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlEventSetCreate": fake.create,
        "nvmlEventSetFree": fake.open.remove,
        "nvmlDeviceRegisterEvents": fake.register,
        "nvmlEventSetWait_v2": fake.wait,
    }.items():
        monkeypatch.setattr(pynvml, name, call)
    return fake


def test_an_event_set_is_freed_when_a_card_cannot_join_it(driver: Driver) -> None:
    nvml = NvmlLibrary()
    for _ in range(3):
        with pytest.raises(NvmlError, match="errors of cards"):
            nvml.xid(0.0)
    assert (driver.made, driver.open) == (3, set())


def test_errors_are_read_once_all_cards_are_in_the_set(driver: Driver) -> None:
    nvml = NvmlLibrary()
    with pytest.raises(NvmlError):
        nvml.xid(0.0)
    driver.fails = False
    assert nvml.xid(0.0) is None
    assert nvml.xid(0.0) is None
    assert len(driver.open) == 1
    nvml.close()
    assert (driver.made, driver.open) == (2, set())
