"""Usage regions: valid regions are read, and false, truncated or odd files do no harm."""

import os
import random
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.builders.region_files import DEAD, FREE, compiled, put_use, region

from vgpu_native.shared import layout, usage_region
from vgpu_native.shared.binary_fields import put_number, put_text
from vgpu_native.shared.layout import REGION, REGION_SIZE, SLOTS_MAX
from vgpu_native.shared.usage_region import LARGEST, BadRegion

GPU, OTHER = "GPU-a", "GPU-b"

WRITER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include "layout.h"
static void own(vgpu_region *region, int slot) {
  pthread_mutex_t *mutex = (pthread_mutex_t *)&region->slot[slot].owner;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &kind);
  pthread_mutex_lock(mutex);
}
int main(int argc, char **argv) {
  int file = open(argv[1], O_RDWR | O_CREAT, 0666);
  if (ftruncate(file, sizeof(vgpu_region))) return 1;
  vgpu_region *region = mmap(0, sizeof *region, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  region->magic = VGPU_MAGIC; region->version = VGPU_VERSION; region->size = sizeof *region;
  region->slots = VGPU_SLOTS_MAX; region->generation = 5; region->high = 3;
  strcpy(region->uuid[0], "GPU-a"); strcpy(region->uuid[1], "GPU-b");
  region->budget[1].spent = 77;
  for (int slot = 0; slot < 3; slot++) {
    region->used[0].slot[slot] = 100 + slot; region->used[1].slot[slot] = 1000;
    region->slot[slot].pid = 40 + slot;
  }
  own(region, 0);
  pid_t child = fork();
  if (!child) { own(region, 1); _exit(0); }
  waitpid(child, NULL, 0);
  puts("ready"); fflush(stdout);
  getchar();
  return 0;
}
"""


def written(path: Path, content: bytes | bytearray) -> Path:
    path.write_bytes(content)
    return path


def test_the_usage_of_living_processes_is_summed(tmp_path: Path) -> None:
    content = region({GPU: (1, 2, 4), OTHER: (10, 0, 5)}, spent=(70, 80))
    claims = usage_region.read(written(tmp_path / "region", content))
    assert [(device.uuid, device.memory, device.busy) for device in claims.devices] == [
        (GPU, 7, 70),
        (OTHER, 15, 80),
    ]
    assert claims.memory_of(OTHER) == 15
    assert claims.busy_of("GPU-c") == 0


def test_a_dead_process_uses_nothing(tmp_path: Path) -> None:
    content = region({GPU: (1, 2, 4)}, owners={1: DEAD, 2: FREE})
    claims = usage_region.read(written(tmp_path / "region", content))
    assert claims.memory_of(GPU) == 1
    assert len(claims.processes) == 1


def test_a_region_of_c_code_is_read_without_its_killed_process(tmp_path: Path) -> None:
    program = compiled(tmp_path, WRITER)
    with subprocess.Popen(
        [program, tmp_path / "region"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        claims = usage_region.read(tmp_path / "region")
        process.communicate("\n", timeout=20)
    assert claims.generation == 5
    assert [(device.memory, device.busy) for device in claims.devices] == [(100, 0), (1000, 77)]
    assert [(user.pid, user.memory) for user in claims.processes] == [(40, (100, 1000))]


def test_sums_saturate_at_the_largest_number(tmp_path: Path) -> None:
    content = region({GPU: (2**64 - 1,) * 3}, spent=(2**64 - 1,))
    claims = usage_region.read(written(tmp_path / "region", content))
    assert claims.devices[0].memory == LARGEST
    assert claims.devices[0].busy == LARGEST


def test_all_slots_are_read_when_the_count_is_too_large(tmp_path: Path) -> None:
    content = region({GPU: (1,) * SLOTS_MAX})
    put_number(content, REGION["high"], 2**64 - 1)
    assert usage_region.read(written(tmp_path / "region", content)).memory_of(GPU) == SLOTS_MAX


def test_a_repeated_device_is_summed_and_bad_text_ends_the_list(tmp_path: Path) -> None:
    content = region({GPU: (1,), OTHER: (2,), "GPU-c": (4,)})
    put_text(content, REGION["uuid"], GPU, 1)
    start = REGION["uuid"].offset + 2 * layout.UUID_BYTES
    content[start : start + layout.UUID_BYTES] = b"\xff\x1b[31m".ljust(layout.UUID_BYTES, b"\0")
    claims = usage_region.read(written(tmp_path / "region", content))
    assert claims.memory_of(GPU) == 3
    assert [device.uuid for device in claims.devices] == [GPU, GPU]


@pytest.mark.parametrize("size", [0, 1, 63, 8192, REGION_SIZE - 1, REGION_SIZE + 1, 2**30])
def test_a_region_of_another_size_is_rejected(tmp_path: Path, size: int) -> None:
    with (tmp_path / "region").open("wb") as file:
        file.write(region({GPU: (1,)})[:size])
        file.truncate(size)
    with pytest.raises(BadRegion, match=f"{size} bytes"):
        usage_region.read(tmp_path / "region")


@pytest.mark.parametrize("name", ["magic", "version", "size", "slots"])
def test_a_region_with_another_header_is_rejected(tmp_path: Path, name: str) -> None:
    content = region({GPU: (1,)})
    put_number(content, REGION[name], 99)
    with pytest.raises(BadRegion, match="not a region of version"):
        usage_region.read(written(tmp_path / "region", content))


def test_links_are_not_followed_and_pipes_do_not_block(tmp_path: Path) -> None:
    written(tmp_path / "real", region({GPU: (1,)}))
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("link", "pipe", "directory"):
        with pytest.raises(BadRegion):
            usage_region.read(tmp_path / name)
    with pytest.raises(BadRegion):
        usage_region.read(Path("/dev/null"))


def test_a_path_is_not_opened_when_it_is_not_a_regular_file(tmp_path: Path) -> None:
    """Opening a device can have effects; a writer that waits at a pipe continues at an open."""
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Event()

    def write() -> None:
        os.close(os.open(tmp_path / "pipe", os.O_WRONLY))
        writing.set()

    worker = threading.Thread(target=write)
    worker.start()
    try:
        for _ in range(20):
            with pytest.raises(BadRegion, match="not a file"):
                usage_region.read(tmp_path / "pipe")
            assert not writing.wait(0.01)
    finally:
        opened = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        worker.join(10)
        os.close(opened)


def test_a_missing_region_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        usage_region.read(tmp_path / "region")


def test_a_region_is_rejected_or_read_when_truncated_meanwhile(tmp_path: Path) -> None:
    path, content = tmp_path / "region", region({GPU: (1, 2)})
    written(path, content)
    ended = threading.Event()

    def cut() -> None:
        source = random.Random(1)
        while not ended.is_set():
            os.truncate(path, source.choice((0, 100, 9000, REGION_SIZE)))

    worker = threading.Thread(target=cut)
    worker.start()
    until, refused = time.monotonic() + 30, 0
    while not refused and time.monotonic() < until:
        try:
            usage_region.read(path)
        except BadRegion:
            refused += 1
    ended.set()
    worker.join(10)
    assert refused


def test_any_bytes_are_read_or_rejected(tmp_path: Path) -> None:
    source = random.Random(7)
    honest = region({GPU: (1, 2), OTHER: (3, 4)}, spent=(5, 6))
    for _ in range(300):
        content = bytearray(honest)
        for _ in range(source.choice((1, 10, 1000))):
            content[source.randrange(24, REGION_SIZE)] = source.randrange(256)
        put_use(content, source.randrange(SLOTS_MAX), source.getrandbits(64))
        claims = usage_region.decode(bytes(content))
        assert all(0 <= device.memory <= LARGEST for device in claims.devices)


def test_a_full_region_is_read_fast(tmp_path: Path) -> None:
    content = region({f"GPU-{number}": (5,) * SLOTS_MAX for number in range(layout.DEVICES_MAX)})
    written(tmp_path / "region", content)
    fastest = 1.0
    for _ in range(5):
        begun = time.process_time()
        claims = usage_region.read(tmp_path / "region")
        fastest = min(fastest, time.process_time() - begun)
    assert [device.memory for device in claims.devices] == [5 * SLOTS_MAX] * layout.DEVICES_MAX
    assert fastest < 0.1


def test_an_unused_device_is_listed_with_zero_usage(tmp_path: Path) -> None:
    content = region({GPU: (), OTHER: ()}, spent=(9,))
    claims = usage_region.read(written(tmp_path / "region", content))
    assert [(device.uuid, device.memory, device.busy) for device in claims.devices] == [
        (GPU, 0, 9),
        (OTHER, 0, 0),
    ]
