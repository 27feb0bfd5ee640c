"""A way to the webhook that is slow: what a client sends arrives late, every second time."""

import asyncio
import itertools
from contextlib import suppress
from typing import Final

DELAY_SECONDS: Final = 2.5
"""Longer than the API server waits for the mutating webhook."""

CHUNK_BYTES: Final = 1 << 16


class SlowProxy:
    """Relays connections to `HOST:PORT` as bytes, so that TLS goes through.

    Every second chunk that a client sends waits for DELAY_SECONDS: some reviews are answered in
    time and others are not.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._host, self._port = host, int(port)
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._turns = itertools.count()

    async def __aenter__(self) -> "SlowProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None, "the proxy was started"
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    @property
    def address(self) -> str:
        """Return HOST:PORT of the proxy."""
        assert self._server is not None, "the proxy was started"
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, onward = await asyncio.open_connection(self._host, self._port)
            try:
                await asyncio.gather(
                    self._pass(reader, onward, late=True), self._pass(there, writer, late=False)
                )
            finally:
                onward.close()
                writer.close()

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, late: bool
    ) -> None:
        while chunk := await source.read(CHUNK_BYTES):
            if late and next(self._turns) % 2:
                await asyncio.sleep(DELAY_SECONDS)
            sink.write(chunk)
            await sink.drain()
        sink.close()
