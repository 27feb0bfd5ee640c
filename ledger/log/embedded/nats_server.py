"""Embedded NATS server: a nats-server as a child process on loopback, restarted when it ends.

Promises: every acknowledged record is synced to the disk; only this store's password opens it;
the server ends with its parent, even if the parent is killed; while it lives no other process can
start one on the same store; when it crashes it comes back on the same ports.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec
import structlog

from ledger.log.embedded import parent_death, server_files, store_lock
from ledger.log.embedded.server_files import ServerAddress, ServerFiles
from ledger.log.jetstream import server_monitoring

POLL_SECONDS: Final = 0.02
"""How often a starting server is asked whether it is ready."""

PORT_RETRY_SECONDS: Final = 0.25
"""Pause before a port that another process took is tried again."""

RESTARTS_MAX: Final = 5
"""A server that crashes more often than this in `RESTARTS_SECONDS` is given up."""

RESTARTS_SECONDS: Final = 60.0

HEALTH_SECONDS: Final = 5.0
"""How often a running server is asked whether it still stores records."""

ROOM_BYTES: Final = 64 * 1024**2
"""Free disk from which on a server that could not write is started again."""

_FREE: Final = "127.0.0.1:-1"
_log: Final = structlog.get_logger("ledger.log")


class ServerFailed(Exception):
    """The embedded nats-server did not start, or does not stay up."""


class EmbeddedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the store is, and how long to wait, in seconds.

    `watched` starts the server below a helper that watches a pipe, instead of the kernel's
    parent-death signal, as on systems without that signal.
    """

    store: Path
    lock_seconds: float = 10.0
    start_seconds: float = 60.0
    stop_seconds: float = 8.0
    watched: bool = not sys.platform.startswith("linux")


class _Ports(msgspec.Struct, frozen=True):
    nats: list[str]
    monitoring: list[str]


class EmbeddedServer:
    """One nats-server with its store. Use as `async with`, or `start` and `stop`.

    Start it from the main thread: the kernel ties the server's life to the starting thread.
    """

    def __init__(self, settings: EmbeddedSettings) -> None:
        """Prepare; nothing is touched before `start`."""
        self._settings = settings
        self._files = ServerFiles(settings.store.resolve())
        self._lock: store_lock.StoreLock | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._listen = self._monitor = _FREE
        self._stopping = asyncio.Event()
        self._address: ServerAddress | None = None

    @property
    def address(self) -> ServerAddress:
        """The address and login of the server; set by `start`."""
        assert self._address is not None, "the server was not started"
        return self._address

    async def start(self) -> ServerAddress:
        """Take the store, start the server and wait until it serves JetStream.

        Raises StoreBusy, BinaryMissing, ServerFailed.
        """
        assert self._lock is None, "the server was started already"
        self._files.store.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = await store_lock.acquire(
            self._files.lock, self._settings.lock_seconds, self._holder()
        )
        self._stopping.clear()
        try:
            return await self._run()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the server, gracefully first, and release the store."""
        self._stopping.set()
        await self._end()
        self._files.address.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def wait_ended(self) -> int:
        """Wait for the server to end; returns its exit status, negative for a signal."""
        assert self._process is not None, "the server was not started"
        return await self._process.wait()

    async def keep_running(self, on_restart: Callable[[], None] | None = None) -> None:
        """Start the server again, on the same ports, whenever it ends; returns after `stop`.

        Cancel it before `stop` if the two could meet. Raises ServerFailed when it crashes too
        often.
        """
        loop = asyncio.get_running_loop()
        crashes: list[float] = []
        while not self._stopping.is_set():
            status = await self.wait_ended()
            if self._stopping.is_set():
                return
            _log.error("nats_server_ended", status=status, log=str(self._files.log))
            crashes = [at for at in crashes if at > loop.time() - RESTARTS_SECONDS] + [loop.time()]
            if len(crashes) > RESTARTS_MAX:
                raise ServerFailed(
                    f"nats-server ended {len(crashes)} times in {RESTARTS_SECONDS:g} s;"
                    f" see {self._files.log}"
                )
            await self._run()
            if on_restart is not None:
                on_restart()

    async def keep_storing(self) -> None:
        """End a server that failed to write, once there is room, so that it is started again.

        A nats-server that could not write refuses all writes from then on, even with free disk.
        Runs beside `keep_running`, until cancelled.
        """
        while True:
            await asyncio.sleep(HEALTH_SECONDS)
            error = await server_monitoring.write_error(self.address.monitor_url, HEALTH_SECONDS)
            if not error:
                continue
            free = shutil.disk_usage(self._files.store).free
            _log.error("nats_server_cannot_write", reason=error, disk_bytes_free=free)
            if free >= ROOM_BYTES:
                await self._end()

    async def __aenter__(self) -> "EmbeddedServer":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _run(self) -> ServerAddress:
        """Start the process until it is ready, again while its ports are taken."""
        self._files.keep_last_words()
        try:
            async with asyncio.timeout(self._settings.start_seconds):
                while not await self._attempt():  # noqa: ASYNC110 (no event reports a free port)
                    await asyncio.sleep(PORT_RETRY_SECONDS)
        except TimeoutError as error:
            await self._end()
            raise ServerFailed(
                f"nats-server was not ready in {self._settings.start_seconds:g} s:"
                f" {self._files.log_tail()}"
            ) from error
        return self.address

    async def _attempt(self) -> bool:
        """Start the process once; False when a port is taken. Raises ServerFailed."""
        server_files.write_configuration(self._files, self._listen, self._monitor)
        for stale in (*self._files.ports.glob("*.ports"), self._files.log):
            stale.unlink(missing_ok=True)
        process = self._process = await self._spawn()
        while process.returncode is None:
            ports = self._read_ports()
            if ports is not None and await server_monitoring.healthy(ports.monitoring[0], 1.0):
                self._publish(ports, process.pid)
                return True
            await asyncio.sleep(POLL_SECONDS)
        log_tail = self._files.log_tail()
        if "address already in use" in log_tail:
            return False
        raise ServerFailed(f"nats-server ended with status {process.returncode}: {log_tail}")

    async def _spawn(self) -> asyncio.subprocess.Process:
        assert self._lock is not None, "the store has to be locked before a server starts"
        watched = self._settings.watched
        command = [
            *(sys.executable, "-I", parent_death.__file__, "watch" if watched else "exec"),
            *(str(os.getpid()), str(server_files.binary()), "-c", str(self._files.configuration)),
        ]
        with self._files.errors.open("wb") as errors:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE if watched else asyncio.subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(self._lock.descriptor,),
                # A Ctrl-C at the terminal is for the service, which then stops the server. Not a
                # session of its own: Linux schedules sessions as groups, and a process that shares
                # a core with another group may wait for it for tens of milliseconds.
                preexec_fn=os.setpgrp,
            )

    def _read_ports(self) -> _Ports | None:
        for path in self._files.ports.glob("*.ports"):
            try:
                return msgspec.json.decode(path.read_bytes(), type=_Ports)
            except msgspec.MsgspecError:
                return None  # Not completely written yet.
        return None

    def _publish(self, ports: _Ports, pid: int) -> None:
        """Keep the ports for a restart, and write the address file for other commands."""
        url, monitor = ports.nats[0], ports.monitoring[0]
        self._listen, self._monitor = url.split("//")[1], monitor.split("//")[1]
        self._address = ServerAddress(
            url=url,
            monitor_url=monitor,
            user=server_files.USER,
            password=server_files.password(self._files),
            pid=pid,
            parent=os.getpid(),
        )
        server_files.write_private(self._files.address, msgspec.json.encode(self._address).decode())

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._settings.stop_seconds)
        except TimeoutError:
            _log.warning("nats_server_killed", seconds=self._settings.stop_seconds)
            # Its own process group, so that the server below a watching helper goes, too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _holder(self) -> str:
        try:
            address = server_files.read_address(self._files.store)
        except ValueError:
            address = None
        if address is None:
            return "another process"
        return f"nats-server {address.pid}, started by process {address.parent}"
