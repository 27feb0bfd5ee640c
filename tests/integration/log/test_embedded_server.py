"""The server that comes with the command: its life, its lock and its password."""

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import signal
import stat
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.log.embedded import nats_server, server_files
from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings, ServerFailed
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.embedded.store_lock import StoreBusy, acquire
from ledger.log.jetstream.jetstream_log import JetStreamLog, JetStreamSettings
from ledger.log.jetstream.nats_connection import Access
from ledger.log.log_port import LogError, Unreachable

pytestmark = pytest.mark.integration

PARENT = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings

    async def main():
        settings = EmbeddedSettings(store=Path(sys.argv[1]), watched=sys.argv[2] == "watched")
        async with EmbeddedServer(settings):
            print("ready", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
""")


@pytest.fixture(params=["tethered", "watched"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both ways of ending with the parent."""
    return str(request.param)


@pytest.fixture
def settings(tmp_path: Path, mode: str) -> EmbeddedSettings:
    """A store of the test's own."""
    return EmbeddedSettings(store=tmp_path / "store", watched=mode == "watched")


@pytest.fixture
def children() -> Iterator[list[int]]:
    """Processes to end if a test leaves them."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def adopting(children: list[int]) -> Iterator[None]:
    """Become the parent of processes whose parent below this one ends, and reap them.

    The kernel continues stopped processes of a group without a parent in its session.
    """
    prctl, subreaper = ctypes.CDLL(None, use_errno=True).prctl, 36
    assert prctl(subreaper, 1) == 0
    yield
    assert prctl(subreaper, 0) == 0
    for pid in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    give_up = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < give_up, f"process {pid} still runs"
        await asyncio.sleep(0.02)


async def opened(address: ServerAddress, *, create: bool = False) -> JetStreamLog:
    """Open the log of an embedded server."""
    access = Access((address.url,), user=address.user, password=address.password)
    log = await JetStreamLog.connect(
        JetStreamSettings(
            access=access, max_bytes=2**26, monitor_urls=(address.monitor_url,), deadline=3.0
        )
    )
    await log.open(create=create)
    return log


async def started_parent(
    store: Path, mode: str, children: list[int]
) -> tuple[asyncio.subprocess.Process, ServerAddress]:
    """Start a process that embeds a server, and wait for the server."""
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(store), mode), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    assert await asyncio.wait_for(parent.stdout.readline(), 30) == b"ready\n"
    address = server_files.read_address(store)
    assert address is not None
    children += [parent.pid, address.pid]
    return parent, address


async def test_the_server_syncs_every_write_and_keeps_records_over_a_restart(
    settings: EmbeddedSettings,
) -> None:
    async with EmbeddedServer(settings) as server:
        log = await opened(server.address, create=True)
        assert (await log.durability()).problems == ()
        await log.append(b"kept", 0)
        await log.close()
    async with EmbeddedServer(settings) as server:
        log = await opened(server.address)
        assert await log.get(1) == b"kept"
        await log.close()


async def test_a_store_may_lie_at_a_path_with_spaces_quotes_and_other_letters(
    tmp_path: Path,
) -> None:
    store = tmp_path / """größe 測試 "a" 'b' $HOME 🙂"""
    async with EmbeddedServer(EmbeddedSettings(store=store)) as server:
        log = await opened(server.address, create=True)
        await log.append(b"kept", 0)
        await log.close()
    assert (store / "nats" / "jetstream").is_dir()


async def test_a_killed_parent_takes_its_server_along_and_the_store_stays_usable(
    tmp_path: Path, mode: str, children: list[int]
) -> None:
    parent, address = await started_parent(tmp_path, mode, children)
    log = await opened(address, create=True)
    await log.append(b"acknowledged", 0)
    await log.close()
    parent.kill()
    await parent.wait()
    await gone(address.pid)
    async with EmbeddedServer(EmbeddedSettings(store=tmp_path)) as server:
        log = await opened(server.address)
        assert await log.get(1) == b"acknowledged"
        await log.close()


@pytest.mark.usefixtures("adopting")
async def test_a_server_that_outlives_its_parent_keeps_the_store(
    tmp_path: Path, children: list[int]
) -> None:
    parent, address = await started_parent(tmp_path, "tethered", children)
    os.kill(address.pid, signal.SIGSTOP)
    parent.kill()
    await parent.wait()
    with pytest.raises(StoreBusy, match=f"nats-server {address.pid}.*process {parent.pid}"):
        await EmbeddedServer(EmbeddedSettings(store=tmp_path, lock_seconds=0.3)).start()
    waiting = asyncio.create_task(EmbeddedServer.start(second := EmbeddedServer(_quick(tmp_path))))
    os.kill(address.pid, signal.SIGCONT)
    await asyncio.wait_for(waiting, 30)
    await second.stop()
    assert not alive(address.pid)


async def test_a_server_shares_the_session_and_not_the_group(settings: EmbeddedSettings) -> None:
    async with EmbeddedServer(settings) as server:
        assert os.getsid(server.address.pid) == os.getsid(0)
        assert os.getpgid(server.address.pid) == server.address.pid


def _quick(store: Path) -> EmbeddedSettings:
    return EmbeddedSettings(store=store, lock_seconds=20.0)


async def test_a_second_server_waits_until_the_first_has_stopped(tmp_path: Path) -> None:
    first, second = EmbeddedServer(_quick(tmp_path)), EmbeddedServer(_quick(tmp_path))
    await first.start()
    waiting = asyncio.create_task(second.start())
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    await first.stop()
    assert (await asyncio.wait_for(waiting, 30)).pid != 0
    await second.stop()


async def test_the_lock_is_free_after_a_clean_stop(settings: EmbeddedSettings) -> None:
    async with EmbeddedServer(settings) as server:
        pid = server.address.pid
    lock = await acquire(settings.store / "lock", 0.0, "nobody")
    lock.release()
    assert server_files.read_address(settings.store) is None
    assert not alive(pid)


async def test_a_crashed_server_comes_back_on_the_same_ports(settings: EmbeddedSettings) -> None:
    restarted = asyncio.Event()
    async with EmbeddedServer(settings) as server:
        before = server.address
        log = await opened(before, create=True)
        keeping = asyncio.create_task(server.keep_running(restarted.set))
        os.killpg(before.pid, signal.SIGKILL)
        await asyncio.wait_for(restarted.wait(), 30)
        assert (server.address.url, server.address.monitor_url) == (before.url, before.monitor_url)
        assert server.address.pid != before.pid
        async with asyncio.timeout(10):
            await append_when_reachable(log)
        await log.close()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def append_when_reachable(log: JetStreamLog) -> None:
    """Append the first record as soon as the client is connected again."""
    while True:
        try:
            assert await log.append(b"after the crash", 0) == 1
            return
        except Unreachable:
            await asyncio.sleep(0.05)


async def test_every_store_has_a_password_of_its_own(tmp_path: Path) -> None:
    here, there = _quick(tmp_path / "one"), _quick(tmp_path / "two")
    async with EmbeddedServer(here) as first, EmbeddedServer(there) as second:
        assert first.address.password != second.address.password
        stranger = Access((second.address.url,), "gpuledger", first.address.password)
        for access in (stranger, Access((second.address.url,))):
            with pytest.raises(Unreachable, match="Authorization Violation"):
                await JetStreamLog.connect(JetStreamSettings(access=access, deadline=1.0))


async def test_secrets_are_readable_by_their_owner_only(settings: EmbeddedSettings) -> None:
    async with EmbeddedServer(settings) as server:
        secret = server.address.password.encode()
        files = [path for path in settings.store.iterdir() if path.is_file()]
        holders = [path for path in files if secret in path.read_bytes()]
        assert {path.name for path in holders} == {"nats.json", "nats.conf", "nats.password"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}
        assert stat.S_IMODE(settings.store.stat().st_mode) == 0o700


async def test_the_password_is_kept_over_a_restart(settings: EmbeddedSettings) -> None:
    async with EmbeddedServer(settings) as server:
        before = server.address.password
    async with EmbeddedServer(settings) as server:
        assert server.address.password == before


async def test_the_server_listens_on_the_loopback_interface_only(
    settings: EmbeddedSettings,
) -> None:
    async with EmbeddedServer(settings) as server:
        assert server.address.url.startswith("nats://127.0.0.1:")
        assert server.address.monitor_url.startswith("http://127.0.0.1:")
        configuration = (settings.store / "nats.conf").read_text()
    assert configuration.count("127.0.0.1") == 2


async def test_a_server_that_cannot_start_reports_why_and_frees_the_store(tmp_path: Path) -> None:
    (tmp_path / "nats").write_text("a file where the server wants a directory")
    with pytest.raises(ServerFailed, match=r"(?i)not a directory|storage directory"):
        await EmbeddedServer(EmbeddedSettings(store=tmp_path)).start()
    lock = await acquire(tmp_path / "lock", 0.0, "nobody")
    lock.release()


async def test_a_log_for_which_the_disk_is_too_small_is_refused_with_a_remedy(
    tmp_path: Path,
) -> None:
    async with EmbeddedServer(EmbeddedSettings(store=tmp_path)) as server:
        address = server.address
        access = Access((address.url,), user=address.user, password=address.password)
        log = await JetStreamLog.connect(JetStreamSettings(access=access, max_bytes=2**60))
        with pytest.raises(Unreachable, match=r"LEDGER-main cannot.*lower log_bytes_max"):
            await log.open(create=True)
        await log.close()


async def test_a_server_that_could_not_write_stores_again_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_server, "HEALTH_SECONDS", 0.1)
    async with EmbeddedServer(EmbeddedSettings(store=tmp_path, watched=False)) as server:
        log = await opened(server.address, create=True)
        await log.append(b"before", 0)
        # As on a full disk: no file of the server may grow any more.
        resource.prlimit(server.address.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with pytest.raises(LogError):
            await log.append(b"no room", 1)
        resource.prlimit(
            server.address.pid,
            resource.RLIMIT_FSIZE,
            (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
        )
        with pytest.raises(LogError):
            await log.append(b"no room was remembered", 1)
        restarted = asyncio.Event()
        keeping = asyncio.gather(server.keep_running(restarted.set), server.keep_storing())
        async with asyncio.timeout(60):
            await restarted.wait()
        await log.close()
        log = await opened(server.address)
        assert await log.append(b"after", 1) == 2
        await log.close()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


@pytest.mark.parametrize("left", [b"", b"\n", b"\x93\xff"])
async def test_an_empty_password_file_is_written_again(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "nats.password").write_bytes(left)
    async with EmbeddedServer(EmbeddedSettings(store=tmp_path)) as server:
        log = await opened(server.address, create=True)
        assert len(server.address.password) >= 32
        await log.close()


async def test_an_address_file_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    (tmp_path / "nats.json").write_text(json.dumps({"url": 7}))
    with pytest.raises(ValueError, match=r"nats\.json"):
        server_files.read_address(tmp_path)
