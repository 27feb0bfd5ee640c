"""Sets of events: one that could not be filled is given back, and is made anew the next time."""

from typing import Any

import pynvml
import pytest

from vgpu_native.nvml.nvml_library import NvmlLibrary
from vgpu_native.nvml.nvml_port import NvmlError


class Driver:
    """As much of NVML as waiting for errors takes; `open` are the sets that nobody freed."""

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
    played = Driver()
    for name, call in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlEventSetCreate": played.create,
        "nvmlEventSetFree": played.open.remove,
        "nvmlDeviceRegisterEvents": played.register,
        "nvmlEventSetWait_v2": played.wait,
    }.items():
        monkeypatch.setattr(pynvml, name, call)
    return played


def test_a_set_that_not_all_cards_could_be_put_into_is_given_back(driver: Driver) -> None:
    nvml = NvmlLibrary()
    for _ in range(3):
        with pytest.raises(NvmlError, match="errors of cards"):
            nvml.xid(0.0)
    assert (driver.made, driver.open) == (3, set())


def test_errors_are_waited_for_once_all_cards_take_part(driver: Driver) -> None:
    nvml = NvmlLibrary()
    with pytest.raises(NvmlError):
        nvml.xid(0.0)
    driver.fails = False
    assert nvml.xid(0.0) is None
    assert nvml.xid(0.0) is None
    assert len(driver.open) == 1
    nvml.close()
    assert (driver.made, driver.open) == (2, set())
