"""Anonymous connections: a program that opens connections without a certificate on loopback.

`python anonymous_connections.py PORT COUNT ADDRESSES KIND…` opens COUNT connections from ADDRESSES
addresses of 127.0.0.0/8, equally many of each kind. A refused client connects again. The program
prints `ready` after COUNT connections, and their whole number at the end, on SIGTERM.
"""

import asyncio
import contextlib
import resource
import signal
import ssl
import sys

AGAIN_SECONDS = 0.05
EVERY_SECONDS = 1.0
OPEN_SECONDS = 10.0
AT_ONCE = 200
HEAD = b"POST /admission/validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"
BODY = HEAD + b"content-length: 1000000\r\n\r\n"
KINDS = {
    "silent": (None, b""),
    "handshaken": (b"", b""),
    "idle": (LIVEZ, b""),
    "stray": (b"", b"\r\n"),
    "headless": (b"GET /livez HTTP/1.1\r\nx: ", b"a"),
    "bodiless": (BODY, b" "),
    "pipelined": (LIVEZ + BODY, b" "),
    "deaf": (
        b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n" * 20,
        b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
}
"""By name what is sent first (None: not even TLS) and then every second."""


class AnonymousConnections:
    """Anonymous connections; `made` counts them."""

    def __init__(self, port: int, slots: asyncio.Semaphore) -> None:
        self.made = 0
        self._port, self._slots = port, slots
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    async def stay(self, address: str, kind: str) -> None:
        """Hold one connection; open it again whenever it ends."""
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                await self._hold(address, kind)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _hold(self, address: str, kind: str) -> None:
        first, then = KINDS[kind]
        async with self._slots, asyncio.timeout(OPEN_SECONDS):
            self.made += 1
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                self._port,
                ssl=None if first is None else self._context,
                local_addr=(address, 0),
            )
        try:
            writer.write(first or b"")
            while not writer.is_closing() and not await _ended(reader, kind):
                writer.write(then)
        finally:
            writer.transport.abort()


async def _ended(reader: asyncio.StreamReader, kind: str) -> bool:
    """Wait a moment, reading or not; return whether the server ended the connection."""
    if kind == "deaf":
        await asyncio.sleep(EVERY_SECONDS)
        return False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(EVERY_SECONDS):
            while await reader.read(4096):
                pass
            return True
    return False


async def main(port: int, count: int, addresses: int, kinds: list[str]) -> None:
    """Open them all and stay until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    crowd = AnonymousConnections(port, asyncio.Semaphore(AT_ONCE))
    tasks = [asyncio.create_task(_all_held(crowd, count))]
    for number in range(count):
        address = f"127.0.1.{1 + number % addresses}"
        kind = kinds[number // addresses % len(kinds)]
        tasks.append(asyncio.create_task(crowd.stay(address, kind)))
    await stop.wait()
    print(crowd.made, flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _all_held(crowd: AnonymousConnections, count: int) -> None:
    """Return once all connections were opened or refused."""
    while crowd.made < count:  # noqa: ASYNC110 (there is no signal)
        await asyncio.sleep(EVERY_SECONDS / 20)
    print("ready", flush=True)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    first, second, third = map(int, sys.argv[1:4])
    asyncio.run(main(first, second, third, sys.argv[4:]))
