"""Region reader of the agent: any content is a region or raises BadRegion, at any moment.

Inputs are the changes of `fuzz/region.c`, made to a region with some processes. Sometimes
a thread changes and truncates the file during the read.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mutating import Mutator

from vgpu_native.shared import usage_region
from vgpu_native.shared.binary_fields import place, put_number, put_text
from vgpu_native.shared.layout import (
    DEVICES_MAX,
    MAGIC,
    REGION,
    REGION_SIZE,
    SLOT,
    SLOTS_MAX,
    USES,
    VERSION,
)

CORPUS: Final = Path(__file__).parent / "corpus" / "region"
CHANGE: Final = 12
CUT: Final = 0x7F
MEANWHILE: Final = 0x80
PROCESSES: Final = 3
CHANGES_MEANWHILE: Final = 50
_PLACES: Final = ("magic", "generation", "high", "gate", "uuid", "budget", "used", "slot", "")


def good() -> bytes:
    """Return a region in which some processes use two devices."""
    content = bytearray(REGION_SIZE)
    header = {"magic": MAGIC, "version": VERSION, "size": REGION_SIZE, "slots": SLOTS_MAX}
    for name, number in (header | {"high": PROCESSES}).items():
        put_number(content, REGION[name], number)
    for index in range(2):
        put_text(content, REGION["uuid"], f"GPU-{index}", index)
    for slot in range(PROCESSES):
        at = place(REGION["slot"], slot)
        used = place(REGION["used"]) + place(USES["slot"], slot)
        content[used : used + 8] = (2**30).to_bytes(8, "little")
        for field, number in (("owner", 1234), ("pid", 7)):
            start = at + SLOT[field].offset
            width = SLOT[field].width
            content[start : start + width] = number.to_bytes(width, "little")
    return bytes(content)


def changed(region: bytes, data: bytes) -> bytes:
    """Apply the changes of an input."""
    content = bytearray(region)
    for start in range(0, len(data) - CHANGE + 1, CHANGE):
        where, index = data[start] % MEANWHILE, data[start + 1]
        offset = int.from_bytes(data[start + 2 : start + 4], "little")
        at = min(_place(where, index, offset), REGION_SIZE - 8)
        content[at : at + 8] = data[start + 4 : start + CHANGE]
    cut = data[:1] == bytes([CUT]) and len(data) >= CHANGE
    return bytes(content[: int.from_bytes(data[4:7], "little")] if cut else content)


def _place(where: int, index: int, offset: int) -> int:
    name = _PLACES[where % len(_PLACES)]
    if not name:
        return (index << 16 | offset) % REGION_SIZE
    field = REGION[name]
    inside = {"slot": SLOT["owner"].offset, "used": place(USES["slot"], offset % SLOTS_MAX)}
    return place(field, index % field.count) + inside.get(name, 0)


def judge(region: usage_region.UsageRegion) -> None:
    """Assert that the values of a region are in bounds."""
    assert len(region.devices) <= DEVICES_MAX
    assert len(region.processes) <= SLOTS_MAX
    for use in region.devices:
        assert 0 <= use.memory <= usage_region.LARGEST, use
        assert 0 <= use.busy <= usage_region.LARGEST, use
        assert use.uuid.isprintable(), use
        assert use.uuid.isascii(), use
        assert 0 <= region.memory_of(use.uuid) <= usage_region.LARGEST, use
    for process in region.processes:
        assert 0 <= process.pid <= usage_region.LARGEST, process


def targets(seed: int) -> tuple[Mutator, Callable[[bytes], None]]:
    """Return the source of inputs, and the function that reads an input."""
    corpus = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    region, folder = good(), tempfile.TemporaryDirectory()

    def read_input(data: bytes) -> None:
        path = Path(folder.name) / "region"
        content = changed(region, data)
        path.write_bytes(content)
        if data[:1] >= bytes([MEANWHILE]):
            _while_it_changes(path, region, content)
        with suppress(usage_region.BadRegion):
            judge(usage_region.read(path))

    return Mutator(seed, corpus), read_input


def _while_it_changes(path: Path, region: bytes, content: bytes) -> None:
    done = threading.Event()
    changing = threading.Thread(target=_change, args=(path, region, content, done))
    changing.start()
    try:
        for _ in range(CHANGES_MEANWHILE):
            with suppress(usage_region.BadRegion, FileNotFoundError):
                judge(usage_region.read(path))
    finally:
        done.set()
        changing.join()


def _change(path: Path, region: bytes, content: bytes, done: threading.Event) -> None:
    while not done.is_set():
        os.truncate(path, 0)
        path.write_bytes(region)
        os.truncate(path, REGION_SIZE // 2)
        path.write_bytes(content)


if __name__ == "__main__":
    from looping import main

    sys.exit(main(targets))
