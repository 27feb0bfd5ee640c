"""The limits page: written atomically, changed in place, rejected when it is invalid."""

import os
import subprocess
from pathlib import Path

import pytest
from support.builders.region_files import compiled

from vgpu_native.shared import limits_page
from vgpu_native.shared.layout import DEVICES_MAX, LIMITS_SIZE, NO_LIMIT, VERSION
from vgpu_native.shared.limits_page import (
    BadLimitsPage,
    ContainerLimits,
    DeviceLimits,
    LimitsPage,
    flags_of,
)

GPU = DeviceLimits("GPU-00000000-0000-0000-0000-000000000000", 100 * 1024**2, 30)
OTHER = DeviceLimits("GPU-00000000-0000-0000-0000-000000000001")

READER = r"""
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "layout.h"
int main(int argc, char **argv) {
  vgpu_limits page;
  FILE *file = fopen(argv[1], "rb");
  if (!file || fread(&page, sizeof page, 1, file) != 1) return 1;
  printf("%x %u %u %u %" PRIu64 " %" PRIu64 "\n", page.magic, page.version, page.size,
         page.devices, page.generation, page.flags);
  for (unsigned i = 0; i < page.devices; i++)
    printf("%s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", page.uuid[i], page.memory[i],
           page.cores[i], page.overhead[i]);
  return 0;
}
"""

WATCHER = r"""
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include "layout.h"
int main(int argc, char **argv) {
  int file = open(argv[1], O_RDONLY);
  volatile vgpu_limits *page = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, file, 0);
  uint64_t seen = page->generation, torn = 0, changes = 0;
  puts("mapped");
  fflush(stdout);
  while (page->memory[0] != 7) {
    uint64_t memory = page->memory[0], now = page->generation;
    if (memory != 0x1111111111111111 && memory != 0x2222222222222222 && memory != 7) torn++;
    if (now < seen) torn++;
    changes += now != seen;
    seen = now;
  }
  printf("%" PRIu64 " %d\n", torn, changes > 1);
  return 0;
}
"""


def test_a_page_that_is_written_reads_the_same(tmp_path: Path) -> None:
    limits = ContainerLimits((GPU, OTHER), flags_of(may_disable=True), 7)
    limits_page.write(tmp_path / "limits", limits)
    assert limits_page.read(tmp_path / "limits") == limits


def test_c_code_reads_the_written_page(tmp_path: Path) -> None:
    program = compiled(tmp_path, READER)
    limits_page.write(
        tmp_path / "limits", ContainerLimits((GPU, OTHER), flags_of(cores_off=True), 9)
    )
    done = subprocess.run(
        [program, tmp_path / "limits"], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.splitlines() == [
        f"55504756 {VERSION} {LIMITS_SIZE} 2 9 4",
        f"{GPU.uuid} {GPU.memory} 30 0",
        f"{OTHER.uuid} {NO_LIMIT} 100 0",
    ]


def test_a_change_reaches_a_process_with_the_map_and_is_never_torn(tmp_path: Path) -> None:
    program = compiled(tmp_path, WATCHER)
    low, high = 0x1111111111111111, 0x2222222222222222
    limits_page.write(tmp_path / "limits", ContainerLimits((DeviceLimits(GPU.uuid, low),)))
    with (
        LimitsPage(tmp_path / "limits") as page,
        subprocess.Popen(
            [program, tmp_path / "limits"], stdout=subprocess.PIPE, text=True
        ) as watcher,
    ):
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "mapped\n"
        for turn in range(20_000):
            page.change(ContainerLimits((DeviceLimits(GPU.uuid, high if turn % 2 else low),)))
        page.change(ContainerLimits((DeviceLimits(GPU.uuid, 7),)))
        assert watcher.communicate(timeout=20)[0] == "0 1\n"


def test_a_page_is_complete_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(descriptor: int) -> None:
        seen.append([path.name for path in tmp_path.iterdir() if path.name == "limits"])
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", look)
    with pytest.raises(OSError, match="full"):
        limits_page.write(tmp_path / "limits", ContainerLimits((GPU,)))
    assert seen == [[]]
    assert list(tmp_path.iterdir()) == []


def test_the_generation_rises_only_with_a_change(tmp_path: Path) -> None:
    limits_page.write(tmp_path / "limits", ContainerLimits((GPU,), generation=3))
    with LimitsPage(tmp_path / "limits") as page:
        assert not page.change(ContainerLimits((GPU,)))
        assert page.change(ContainerLimits((DeviceLimits(GPU.uuid, 5, 50),)))
        assert page.limits.generation == 4
    limits = limits_page.read(tmp_path / "limits")
    assert limits == ContainerLimits((DeviceLimits(GPU.uuid, 5, 50),), generation=4)


def test_a_page_keeps_its_devices(tmp_path: Path) -> None:
    limits_page.write(tmp_path / "limits", ContainerLimits((GPU, OTHER)))
    with (
        LimitsPage(tmp_path / "limits") as page,
        pytest.raises(ValueError, match="keeps its devices"),
    ):
        page.change(ContainerLimits((OTHER, GPU)))


def test_a_replaced_page_is_another_file(tmp_path: Path) -> None:
    limits_page.write(tmp_path / "limits", ContainerLimits((GPU,)))
    with LimitsPage(tmp_path / "limits") as page:
        limits_page.write(tmp_path / "limits", ContainerLimits((OTHER,)))
        page.change(ContainerLimits((DeviceLimits(GPU.uuid, 1),)))
    assert limits_page.read(tmp_path / "limits") == ContainerLimits((OTHER,))


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "limits").symlink_to("secret")
    limits_page.write(tmp_path / "limits", ContainerLimits((GPU,)))
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "limits").is_symlink()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "0 bytes"),
        (b"\0" * LIMITS_SIZE, "not a limits page"),
        (b"\0" * (LIMITS_SIZE + 1), "4097 bytes"),
        (limits_page.encode(ContainerLimits((GPU,)))[:-1], "4095 bytes"),
        (
            limits_page.encode(ContainerLimits((GPU,))).replace(b"\x02\0\0\0", b"\x03\0\0\0", 1),
            "version 2",
        ),
    ],
)
def test_a_file_is_rejected_when_it_is_not_a_limits_page(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "limits").write_bytes(content)
    with pytest.raises(BadLimitsPage, match=why):
        limits_page.read(tmp_path / "limits")
    with pytest.raises(BadLimitsPage, match=why):
        LimitsPage(tmp_path / "limits")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (ContainerLimits((GPU,) * (DEVICES_MAX + 1)), "17 devices"),
        (ContainerLimits((DeviceLimits("G" * 48),)), "room is for 47"),
        (ContainerLimits((DeviceLimits(GPU.uuid, -1),)), "memory -1"),
        (ContainerLimits((DeviceLimits(GPU.uuid, 2**64),)), "memory 18446744073709551616"),
        (ContainerLimits((DeviceLimits("GPU-\n"),)), "visible"),
    ],
)
def test_limits_are_rejected_when_they_do_not_fit_a_page(
    tmp_path: Path, limits: ContainerLimits, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        limits_page.write(tmp_path / "limits", limits)
    assert not (tmp_path / "limits").exists()
