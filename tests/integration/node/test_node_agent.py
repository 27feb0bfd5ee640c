"""The agent as a process: a real log, a kubelet on real sockets, a stub of NVML, a model API."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from support.fakes.apiserver import on_loopback
from support.fakes.kubelet import Asked, NotStarted, kubelet_in
from support.harness.agent_harness import Agent, NodeApi
from support.harness.agent_site import CARD, LATER_UID, NODE, UID, AgentSite
from support.harness.native_library import built
from support.servers.nats_servers import NatsServer, settings_for

from ledger.kube.hami import node_announcement
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.writer.writer import Writer
from vgpu_native.shared import limits_page
from vgpu_native.shared.limits_page import MEBIBYTE

pytestmark = pytest.mark.integration

SECONDS = 15.0

ALLOCATING = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0)
assert not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
assert not cuda.cuCtxSetCurrent(context)
for line in sys.stdin:
    print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(line) << 20)), flush=True)
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a name that is short enough for sockets in it."""
    built()
    with tempfile.TemporaryDirectory(prefix="node-") as name:
        yield Path(name)


@pytest.fixture
async def site(nats_server: NatsServer, shard: str, directory: Path) -> AsyncIterator[AgentSite]:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    await log.open(create=True)
    nonces = (f"n-{number}" for number in itertools.count())
    writer = Writer(log, name="w", now=lambda: 1_000_000, nonces=lambda: next(nonces))
    await writer.open()
    writing = asyncio.create_task(writer.run())
    api = NodeApi(NODE)
    async with on_loopback(api.app(), directory) as kubeconfig, kubelet_in(directory) as kubelet:
        site = AgentSite(directory, kubelet, api, writer)
        site.arguments = [
            *("--node", NODE, "--nats", nats_server.url, "--shard", shard, "--slots", "4"),
            *("--state-dir", str(directory / "state"), "--kubelet-dir", str(directory)),
            *("--library", str(built() / "libvgpu.so"), "--kubeconfig", str(kubeconfig)),
            *("--look", "1", "--log-format", "console"),
        ]
        yield site
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await log.close()


async def until(condition: Callable[[], Any | Awaitable[Any]], running: Agent) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                answer = condition()
                if await answer if asyncio.iscoroutine(answer) else answer:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(running.logged()[-4000:]) from None


async def ready(running: Agent) -> bool:
    return (await running.get("/readyz"))[0] == 200


async def started(site: AgentSite) -> Path:
    """Admit and start the pod that is placed; return its limits page."""
    await site.kubelet.admit("team", "p", UID, [Asked("main", 1)])
    answer = await site.kubelet.start_container(UID, "main")
    return host_path(answer, "/etc/gpuledger/limits")


def host_path(answer: Any, mounted: str) -> Path:
    [path] = [mount.host_path for mount in answer.mounts if mount.container_path == mounted]
    return Path(path)


@contextlib.contextmanager
def container(site: AgentSite, page: Path) -> Iterator[Callable[[int], int]]:
    """Run a process as in the container; yields what allocates MiB and returns CUDA's answer."""
    if Path(limits_in_containers()).exists():
        pytest.skip("this machine is itself a container under limits")
    environment = os.environ | site.environment
    environment |= {
        "LD_PRELOAD": str(built() / "libvgpu.so"),
        "GPULEDGER_LIMITS_FILE": str(page),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(page.parent / "region" / "region"),
    }
    with subprocess.Popen(
        [sys.executable, "-c", ALLOCATING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def allocate(mebibytes: int) -> int:
            process.stdin.write(f"{mebibytes}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield allocate
        process.stdin.close()
        assert process.wait(10) == 0


def limits_in_containers() -> str:
    return "/etc/gpuledger/limits"


async def test_limits_of_a_running_container_follow_the_ledger(site: AgentSite) -> None:
    async with site.run_agent() as running:
        await site.kubelet.wait_listed()
        await until(lambda: ready(running), running)
        await site.place(100)
        page = await started(site)
        assert limits_page.read(page).devices[0].memory == 100 * MEBIBYTE
        with container(site, page) as allocate:
            assert allocate(90) == 0
            assert allocate(20) == 2
            await site.resize(120)
            await until(lambda: limits_page.read(page).devices[0].memory == 120 * MEBIBYTE, running)
            assert allocate(20) == 0
            await until(lambda: exported(running, 110 * MEBIBYTE, 120 * MEBIBYTE), running)
            await site.resize(50)
            await until(lambda: limits_page.read(page).devices[0].memory == 50 * MEBIBYTE, running)
            assert allocate(1) == 2
            # The metrics show the values of the agent's last look.
            await until(lambda: exported(running, 110 * MEBIBYTE, 50 * MEBIBYTE), running)
        done = await asyncio.to_thread(node_top, running)
        [shown] = done["containers"]
        assert (shown["pod"], shown["memory_limit"]) == ("p", 50 * MEBIBYTE)
        assert done["cards"][0]["uuid"] == CARD
        assert await running.stop() == 0
    assert limits_page.read(page).devices[0].memory == 50 * MEBIBYTE


async def exported(running: Agent, used: int, limit: int) -> bool:
    _, text = await running.get("/metrics")
    lines = [line for line in text.splitlines() if line.startswith("hami_vgpu_memory_")]
    values = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
    return values == {
        "hami_vgpu_memory_used_bytes": used,
        "hami_vgpu_memory_limit_bytes": limit,
    }


def node_top(running: Agent) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "gpuledger", "node", "top", "--agent", running.url, "-o", "json"],
        capture_output=True,
        timeout=30,
        check=True,
    )
    return msgspec.json.decode(done.stdout)


async def test_an_agent_follows_the_log_without_a_consumer(
    site: AgentSite, nats_server: NatsServer, shard: str
) -> None:
    owner = await nats.connect(nats_server.url)
    try:
        async with site.run_agent() as running:
            await until(lambda: ready(running), running)
            assert await owner.jetstream().consumers_info(f"LEDGER-{shard}") == []
    finally:
        await owner.close()


async def test_a_restarted_agent_keeps_limits_without_a_log_and_catches_up(
    site: AgentSite,
) -> None:
    async with site.run_agent() as running:
        await site.kubelet.wait_listed()
        await until(lambda: ready(running), running)
        await site.place(100)
        page = await started(site)
        await until((site.directory / "state" / "placements").exists, running)
        running.process.kill()
        await running.process.wait()
    await site.resize(200)
    there = site.arguments.index("--nats") + 1
    url, site.arguments[there] = site.arguments[there], "nats://127.0.0.1:1"
    known = len(site.kubelet.lists)
    async with site.run_agent() as running:
        await until(lambda: "log_unreachable" in running.logged(), running)
        await site.kubelet.wait_listed(known + 1)
        asked = site.kubelet.admit("team", "q", LATER_UID, [Asked("main", 1)])
        admitted = asyncio.create_task(asked)
        await until(lambda: keeps_the_kubelet_waiting(running), running)
        await until(lambda: "allocate_waits" in running.logged(), running)
        assert not admitted.done()
        admitted.cancel()
        await asyncio.gather(admitted, return_exceptions=True)
        assert limits_page.read(page).devices[0].memory == 100 * MEBIBYTE
        status, text = await running.get("/readyz?verbose")
        assert status == 503
        assert "[-]ledger failed" in text
        assert (await running.get("/livez"))[0] == 200
    site.arguments[there] = url
    async with site.run_agent() as running:
        await until(lambda: limits_page.read(page).devices[0].memory == 200 * MEBIBYTE, running)


async def test_an_agent_that_has_forgotten_a_change_does_not_undo_it(site: AgentSite) -> None:
    """Placements are kept now and then, so one that is killed may have changed a page since."""
    kept = site.directory / "state" / "placements"
    async with site.run_agent() as running:
        await site.kubelet.wait_listed()
        await until(lambda: ready(running), running)
        await site.place(100)
        page = await started(site)
        await until(lambda: kept.exists() and UID.encode() in kept.read_bytes(), running)
        before = kept.read_bytes()
        await site.resize(50)
        await until(lambda: limits_page.read(page).devices[0].memory == 50 * MEBIBYTE, running)
        running.process.kill()
        await running.process.wait()
    kept.write_bytes(before)
    there = site.arguments.index("--nats") + 1
    url, site.arguments[there] = site.arguments[there], "nats://127.0.0.1:1"
    async with site.run_agent() as running:
        await until(lambda: "log_unreachable" in running.logged(), running)
        await until(lambda: exported(running, 0, 50 * MEBIBYTE), running)
        assert limits_page.read(page).devices[0].memory == 50 * MEBIBYTE
    site.arguments[there] = url
    await site.resize(70)
    async with site.run_agent() as running:
        await until(lambda: limits_page.read(page).devices[0].memory == 70 * MEBIBYTE, running)


async def keeps_the_kubelet_waiting(running: Agent) -> bool:
    _, text = await running.get("/metrics")
    [line] = [
        candidate
        for candidate in text.splitlines()
        if candidate.startswith("gpuledger_allocate_waiting_s")
    ]
    return float(line.rpartition(" ")[2]) > 0


async def test_a_failed_card_is_reported_to_kubelet_and_ledger_within_seconds(
    site: AgentSite,
) -> None:
    async with site.run_agent() as running:
        await site.kubelet.wait_listed()
        await until(lambda: set(site.kubelet.health.values()) == {"Healthy"}, running)
        assert len(site.kubelet.health) == 8
        await until(lambda: bool(site.api.annotations), running)
        await asyncio.to_thread(break_card, site)
        await until(lambda: set(site.kubelet.health.values()) != {"Healthy"}, running)
        ill = {device for device, health in site.kubelet.health.items() if health == "Unhealthy"}
        assert ill == {f"{CARD}-{slot}" for slot in range(4)}
        await until(lambda: healthy(site) == [False, True], running)
        _, text = await running.get("/metrics")
        assert 'xid="79"' in text


def healthy(site: AgentSite) -> list[bool]:
    return [
        card.healthy for card in node_announcement.read_announcement(site.api.annotations).cards
    ]


def break_card(site: AgentSite) -> None:
    """Let the driver report an error of the first card."""
    text = 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1").vgpu_stub_xid(0, 79)'
    environment = os.environ | site.environment
    subprocess.run([sys.executable, "-c", text], env=environment, timeout=30, check=True)


@pytest.mark.parametrize("policy", ["report", "evict"])
async def test_a_misallocated_pod_is_reported_and_evicted_by_policy(
    site: AgentSite, policy: str
) -> None:
    async with site.run_agent("--wrong-cards", policy) as running:
        await site.kubelet.wait_listed()
        await until(lambda: ready(running), running)
        await site.place()
        await site.place_later()
        position = site.writer.state.position
        await until(lambda: positioned(running, position), running)
        await site.kubelet.admit("team", "q", LATER_UID, [Asked("main", 1)])
        for _ in range(2):
            with pytest.raises(NotStarted, match="Delete the pod"):
                await site.kubelet.start_container(LATER_UID, "main")
        told = ["WrongGPUsAnswered", *["EvictedForWrongGPUs"] * (policy == "evict")]
        await until(lambda: [event["reason"] for event in site.api.events] == told, running)
        assert site.api.events[0]["regarding"]["uid"] == LATER_UID
        assert site.api.evictions == ["q"] * (policy == "evict")


async def positioned(running: Agent, position: int) -> bool:
    _, text = await running.get("/metrics")
    return f"gpuledger_log_position {float(position)}" in text


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--slots", "0", "--slots 0: write a number from 1 to 256"),
        ("--bypass", "kill", "--bypass 'kill': write report or evict"),
        ("--wrong-cards", "kill", "--wrong-cards 'kill': write report or evict"),
        ("--state-dir", "here", "--state-dir 'here': write an absolute path"),
        ("--state-dir", "/dev/null", "--state-dir '/dev/null': File exists: name a directory"),
        ("--state-dir", "/dev/null/d", "--state-dir '/dev/null/d': Not a directory: name a"),
        # No user can make a file there, not even root.
        ("--state-dir", "/proc/self", "--state-dir '/proc/self': No such file or directory: name"),
        ("--library", "/a b/libvgpu.so", "--library '/a b/libvgpu.so': write a path without space"),
        ("--listen", "nowhere:1", "listen = nowhere:1"),
    ],
)
def test_unusable_settings_are_reported_at_the_start(
    tmp_path: Path, option: str, value: str, said: str
) -> None:
    given = {"--state-dir": str(tmp_path), "--listen": "127.0.0.1:0"} | {option: value}
    arguments = [word for pair in given.items() for word in pair]
    done = subprocess.run(
        [sys.executable, "-m", "gpuledger", "agent", "--no-kubernetes", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert said in done.stderr
