"""NATS servers: real ones from the wheel, started on free loopback ports."""

import asyncio
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from support.servers.ports import free_port

from ledger.log.embedded import server_files
from ledger.log.jetstream import server_monitoring
from ledger.log.jetstream.jetstream_log import JetStreamSettings
from ledger.log.jetstream.nats_connection import Access

START_SECONDS = 20.0


class NatsServer:
    """One nats-server below a directory of its own; survives kills and restarts on its ports."""

    def __init__(
        self,
        directory: Path,
        *,
        extra: str = "",
        jetstream: str | None = "",
        sync: str = "always",
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.directory, self.prefix = directory, prefix
        self.port, self.monitor_port = free_port(), free_port()
        directory.mkdir(parents=True, exist_ok=True)
        self.configuration = directory / "nats.conf"
        self.configuration.write_text(
            f'server_name: "{directory.name}"\n'
            f'listen: "127.0.0.1:{self.port}"\n'
            f'http: "127.0.0.1:{self.monitor_port}"\n'
            f"{extra}\n"
        )
        if jetstream is not None:
            with self.configuration.open("a") as file:
                file.write(
                    f'jetstream {{ store_dir: "{directory / "data"}", sync_interval: {sync}\n'
                    f"{jetstream} }}\n"
                )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The address of the server's monitoring."""
        return f"http://127.0.0.1:{self.monitor_port}"

    def launch(self) -> None:
        """Start the process without waiting for it."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, server_files.binary(), "-c", self.configuration],
                stdout=log,
                stderr=log,
            )

    async def ready(self) -> None:
        """Wait until the server serves JetStream."""
        give_up = time.monotonic() + START_SECONDS
        while not await server_monitoring.healthy(self.monitor_url, 1.0):
            assert time.monotonic() < give_up, (self.directory / "log").read_text()[-2000:]
            await asyncio.sleep(0.02)

    async def start(self) -> None:
        """Start the process and wait for it."""
        self.launch()
        await self.ready()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> None:
        """End the process with SIGTERM."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(20)

    def stop(self) -> None:
        """End the process if it runs."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.kill()

    def lose_store(self) -> None:
        """Remove everything that the server has stored."""
        shutil.rmtree(self.directory / "data")


def settings_for(server: NatsServer, shard: str = "main", **changes: object) -> JetStreamSettings:
    """Return settings for a shard on a test's server."""
    values: dict[str, object] = {
        "access": Access((server.url,)),
        "shard": shard,
        "max_bytes": 64 * 1024**2,
        "denials_max_bytes": 4 * 1024**2,
        "deadline": 5.0,
        "monitor_urls": (server.monitor_url,),
    }
    return JetStreamSettings(**(values | changes))  # type: ignore[arg-type]
