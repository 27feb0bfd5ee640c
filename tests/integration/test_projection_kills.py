"""A projector killed at any moment continues to the same bytes of truth."""

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec
from support.projecting import digest_of, log_of, project, random_payloads

KILLS = 12
TESTS = Path(__file__).parents[1]
END_SECONDS = 60


async def test_a_projector_killed_again_and_again_ends_with_the_digest_of_a_rebuilt_one(
    tmp_path: Path,
) -> None:
    payloads, source = random_payloads(11, 9_000), random.Random(11)
    stored, killed = tmp_path / "payloads", tmp_path / "killed.sqlite"
    stored.write_bytes(msgspec.msgpack.encode(payloads))
    positions = []
    async with asyncio.timeout(END_SECONDS):
        for _ in range(KILLS):
            quota = source.randint(1, len(payloads) // KILLS)
            positions.append(await _run_and_kill(stored, killed, quota, source))
        await _run_and_kill(stored, killed, len(payloads) - positions[-1], source)
    assert positions == sorted(set(positions)), "every run goes on where the one before was killed"
    assert positions[-1] < len(payloads)
    rebuilt = tmp_path / "rebuilt.sqlite"
    await project(rebuilt, log_of(payloads))
    assert (await digest_of(killed)).position == len(payloads)
    for position in (len(payloads), *positions[::4]):
        assert await digest_of(killed, position) == await digest_of(rebuilt, position)


async def _run_and_kill(stored: Path, database: Path, records: int, source: random.Random) -> int:
    """Run the child until it has projected so many more records, and SIGKILL it.

    The kill comes at a random moment of what the child does next. Returns the last position that
    the child told.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.projecting_child", stored, database),
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    first = position = int(await child.stdout.readline())
    try:
        while position < first + records:
            position = int(await child.stdout.readline())
        await asyncio.sleep(source.random() * 0.01)
    finally:
        child.kill()
        await child.wait()
    async for line in child.stdout:
        position = int(line)
    return position
