"""TCP proxy on loopback: a network link that a test can cut and stall."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

CHUNK_BYTES = 65_536


class TcpProxy:
    """Forwards from a port of its own to a server's. Made by `tcp_proxy`."""

    def __init__(self, target: int, port: int) -> None:
        self.target, self.port = target, port
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._joined: set[asyncio.Task[None]] = set()

    async def restore(self) -> None:
        """Let everything through, on the same port as before."""
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Break every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for end in tuple(self._ends):
            end.transport.abort()
        self._flowing.set()
        await asyncio.gather(*self._joined)

    async def stall(self) -> None:
        """Accept, keep all connections, and let nothing through: what a dead network looks like."""
        self._flowing.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._join(reader, writer))
        self._joined.add(task)
        task.add_done_callback(self._joined.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, far_writer}
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._ends -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def tcp_proxy(target: int, port: int) -> AsyncIterator[TcpProxy]:
    """A link that works until the block cuts it; it is cut at the end."""
    made = TcpProxy(target, port)
    await made.restore()
    try:
        yield made
    finally:
        await made.cut()
