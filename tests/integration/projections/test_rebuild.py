"""`gpuledger projection rebuild` and `compare` keep finished projections and leave no files."""

import hashlib
import shutil
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from support.harness.command_line import COMMAND, SECONDS, environment, gpuledger

from gpuledger.cli.command_wrapper import TERMINATED
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage import projection_rebuild, scratch_folder
from gpuledger.storage.open_log import open_log
from ledger.log import record_schema, records
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

UNKNOWN = ["Renamed", "local/team", "pods/a", "pods/b"]
"""An event that this version does not support."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with one record, which is projected."""
    store = tmp_path_factory.mktemp("ledger") / "store"
    written = gpuledger(
        "quota", "set", "-n", "team", "gpus", "requests.nvidia.com/gpu=2", store=store
    )
    assert written.status == 0, written
    return store


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """The ledger, to be changed by one test."""
    return shutil.copytree(made, tmp_path / "store")


def scratch_of(store: Path) -> list[Path]:
    """Return the files in a store that a finished command would not leave."""
    return [*store.glob("scratch-*"), *store.glob("*.rebuilding*")]


def stopped_at_work(command: str, store: Path) -> subprocess.Popen[str]:
    """Start a command on a projection, and stop it once it has a scratch folder of its own."""
    before = scratch_of(store)
    process = subprocess.Popen(
        [COMMAND, "projection", command, f"--store-dir={store}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    until = time.monotonic() + SECONDS
    while not (made := set(scratch_of(store)) - set(before)) and time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    assert made, f"{command} was not seen at work: {process.poll()}"
    return process


@pytest.mark.parametrize("command", ["compare", "rebuild"])
def test_a_command_that_is_terminated_leaves_no_scratch_files(command: str, store: Path) -> None:
    process = stopped_at_work(command, store)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    printed, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, scratch_of(store)) == (TERMINATED, []), printed
    assert gpuledger("usage", store=store).status == 0


def test_scratch_files_of_a_killed_command_go_and_those_in_use_stay(
    store: Path,
) -> None:
    killed = stopped_at_work("compare", store)
    killed.kill()
    killed.communicate(timeout=SECONDS)
    [stale] = scratch_of(store)
    at_work = stopped_at_work("compare", store)
    [used] = scratch_of(store)
    assert used != stale
    try:
        with scratch_folder.folder(store) as another:
            assert {used, another} == set(scratch_of(store))
    finally:
        at_work.kill()
        at_work.communicate(timeout=SECONDS)


def test_a_killed_rebuild_leaves_the_projection_as_it_was(store: Path) -> None:
    path = store / "projection.sqlite"
    file, content = path.stat().st_ino, path.read_bytes()
    killed = stopped_at_work("rebuild", store)
    killed.kill()
    killed.communicate(timeout=SECONDS)
    assert (path.stat().st_ino, path.read_bytes()) == (file, content)
    digest = gpuledger("projection", "digest", store=store)
    assert digest.status == 0, digest
    assert gpuledger("projection", "rebuild", store=store).out == digest.out


async def test_a_rebuilt_projection_is_in_place_before_its_digest_is_known(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(_view: object, _position: int) -> None:
        raise TimeoutError

    path = store / "projection.sqlite"
    path.unlink()
    monkeypatch.setattr(projection_rebuild, "digest", late)
    with pytest.raises(CommandError, match=r"in place.*gpuledger projection digest") as stopped:
        await projection_rebuild.rebuild(Settings(store_dir=str(store)), "")
    assert stopped.value.status == Exit.NOT_READY
    assert path.stat().st_size
    assert not scratch_of(store)


async def _append_unknown(store: Path) -> None:
    async with open_log(Settings(store_dir=str(store))) as opened:
        last = (await opened.log.extent()).last
        async for batch in opened.log.read(last, last):
            [entry] = batch
        record, previous = records.decode(entry.payload)
        items = [[UNKNOWN, []]]
        body = msgspec.msgpack.encode([last + 1, record.time, "w", "n", previous, 1, items])
        digest = hashlib.sha256(bytes((record_schema.SCHEMA,)) + body).digest()
        await opened.log.append(msgspec.msgpack.encode((record_schema.SCHEMA, digest, body)), last)


async def test_each_reader_asks_for_an_upgrade_at_an_event_it_does_not_support(
    store: Path, tmp_path: Path
) -> None:
    await _append_unknown(store)
    for arguments in (
        ("audit", "verify"),
        ("audit", "replay"),
        ("projection", "rebuild"),
        ("projection", "compare"),
        ("usage",),
        ("backup", str(tmp_path / "backup")),
        ("quota", "set", "-n", "team", "gpus", "requests.nvidia.com/gpu=3"),
    ):
        ended = gpuledger(*arguments, store=store)
        said = " ".join((ended.out + ended.err).split())
        assert ended.status == 1, (arguments, ended)
        assert "upgrade" in said, (arguments, said)
        assert "Renamed" in said, (arguments, said)
        assert "not an intact" not in said, (arguments, said)
