"""A projector killed at any moment continues to the same bytes of truth."""

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec
from support.harness.projection_harness import digest_of, log_of, project, random_payloads

KILLS = 12
TESTS = Path(__file__).parents[2]
END_SECONDS = 60


async def test_a_killed_projector_ends_with_the_digest_of_a_rebuilt_one(
    tmp_path: Path,
) -> None:
    payloads, source = random_payloads(11, 9_000), random.Random(11)
    stored, killed = tmp_path / "payloads", tmp_path / "killed.sqlite"
    stored.write_bytes(msgspec.msgpack.encode(payloads))
    positions = []
    async with asyncio.timeout(END_SECONDS):
        for kill in range(1, KILLS + 1):
            # However slow this process is, the child does not get to the end of the log before.
            last = kill * len(payloads) // (KILLS + 1)
            positions.append(await _run_and_kill(stored, killed, last, source))
        await _run_and_kill(stored, killed, len(payloads), source, wanted=len(payloads))
    assert positions == sorted(set(positions)), "every run goes on where the one before was killed"
    rebuilt = tmp_path / "rebuilt.sqlite"
    await project(rebuilt, log_of(payloads))
    assert (await digest_of(killed)).position == len(payloads)
    for position in (len(payloads), *positions[::4]):
        assert await digest_of(killed, position) == await digest_of(rebuilt, position)


async def _run_and_kill(
    stored: Path, database: Path, last: int, source: random.Random, *, wanted: int | None = None
) -> int:
    """Run the child on a log up to a position until it has projected some more, and SIGKILL it.

    That is up to the position `wanted`, or else any. The kill comes at a random moment of what the
    child does next. Returns the last position that the child printed.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.harness.projection_process", stored, database, str(last)),
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    first = position = int(await child.stdout.readline())
    wanted = source.randint(first + 1, last) if wanted is None else wanted
    try:
        while position < wanted:
            position = int(await child.stdout.readline())
        await asyncio.sleep(source.random() * 0.01)
    finally:
        child.kill()
        await child.wait()
    async for line in child.stdout:
        position = int(line)
    return position
