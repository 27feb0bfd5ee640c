"""Region files: regions as processes leave them, and a C program that reads them as C does."""

import functools
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from vgpu_native.shared.binary_fields import place, put_number, put_text
from vgpu_native.shared.layout import (
    BUDGET,
    MAGIC,
    OWNER_DIED,
    REGION,
    REGION_SIZE,
    SHARE,
    SHARE_SIZE_SHIFT,
    SHARE_STEP,
    SLOT,
    SLOTS_MAX,
    USES,
    VERSION,
)

ROOT = Path(__file__).parents[3]
HEADER = ROOT / "vgpu_native" / "tools" / "generate_layout.py"
ALIVE = 1234
DEAD = OWNER_DIED
FREE = 0


def region(
    used: Mapping[str, tuple[int, ...]],
    *,
    spent: tuple[int, ...] = (),
    owners: Mapping[int, int] | None = None,
) -> bytearray:
    """Return a region: bytes per device and slot, nanoseconds per device; slots are alive."""
    content = bytearray(REGION_SIZE)
    slots = max((len(per_slot) for per_slot in used.values()), default=0)
    header = {"magic": MAGIC, "version": VERSION, "size": REGION_SIZE, "slots": SLOTS_MAX}
    for name, number in (header | {"high": slots}).items():
        put_number(content, REGION[name], number)
    for device, (uuid, amounts) in enumerate(used.items()):
        put_text(content, REGION["uuid"], uuid, device)
        for slot, amount in enumerate(amounts):
            put_use(content, slot, amount, device)
    for device, nanoseconds in enumerate(spent):
        at = place(REGION["budget"], device) + place(BUDGET["spent"])
        struct.pack_into("<Q", content, at, nanoseconds)
    for slot in range(slots):
        word = (owners or {}).get(slot, ALIVE)
        struct.pack_into("<I", content, place(REGION["slot"], slot) + SLOT["owner"].offset, word)
    return content


def put_use(content: bytearray, slot: int, number: int, device: int = 0) -> None:
    """Write the amount that the process of a slot uses of a device."""
    at = place(REGION["used"], device) + place(USES["slot"], slot)
    struct.pack_into("<Q", content, at, number)


def put_share(content: bytearray, amount: int, holders: int, device: int = 0) -> None:
    """Write the first share: an amount of a device, and a bit for the slot of each holder."""
    put_number(content, REGION["shares_high"], 1)
    at = place(REGION["share"])
    what = amount // SHARE_STEP << SHARE_SIZE_SHIFT | device
    struct.pack_into("<Q", content, at + place(SHARE["what"]), what)
    struct.pack_into("<Q", content, at + place(SHARE["holders"]), holders)


@functools.cache
def compiler() -> str:
    """Return the C compiler; skip the test where there is none."""
    path = shutil.which("gcc") or shutil.which("cc")
    if path is None:
        pytest.skip("there is no C compiler: nothing is compared with C")
    return path


def compiled(directory: Path, source: str) -> Path:
    """Return a program made of a text that includes the layout's header."""
    subprocess.run([sys.executable, HEADER, directory / "layout.h"], check=True, timeout=60)
    (directory / "program.c").write_text(source)
    program = directory / "program"
    command = [compiler(), "-std=gnu11", "-Wall", "-Werror", "-pthread", f"-I{directory}"]
    subprocess.run([*command, directory / "program.c", "-o", program], check=True, timeout=120)
    return program
