"""The installed command on a real embedded log, beside no service and beside one."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from support.harness.command_line import COMMAND, SECONDS, Ended, environment, gpuledger

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model.commands import Reserve
from ledger.log.jetstream import stream_configuration
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

MEMORY, CARDS = "nvidia.com/gpumem", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with one quota of two cards, and one pod admitted under it."""
    path = tmp_path_factory.mktemp("ledger") / "store"
    written = gpuledger(
        "quota",
        "set",
        "--namespace=team-a",
        "gpus",
        f"limits.{MEMORY}=16k",
        f"requests.{CARDS}=2",
        store=path,
    )
    assert written.status == 0, written
    asyncio.run(_reserve(path))
    return path


async def _reserve(path: Path) -> None:
    settings = Settings(store_dir=str(path))
    demand = {CARDS: 1, MEMORY: 4_000}
    command = Reserve("local/team-a", "pods/web-0", "uid-0", demand, actor="alice")
    async with open_log(settings) as opened, writer_on(settings, opened) as writer:
        assert isinstance(await writer.submit(command), Accepted)


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    """The ledger, to be changed by one test."""
    return shutil.copytree(store, tmp_path / "store")


def test_usage_shows_what_was_written_without_a_service(store: Path) -> None:
    shown = gpuledger("usage", "-n", "team-a", "-o", "json", store=store)
    assert shown.json == [
        _line(f"limits.{MEMORY}", limit=16_000, reserved=4_000),
        _line(f"requests.{CARDS}", limit=2, reserved=1),
    ]
    assert "As of position 2 of 2." in shown.err


def test_usage_can_be_asked_as_of_an_earlier_position(store: Path) -> None:
    shown = gpuledger("usage", "--at", "1", "-o", "json", store=store)
    assert [row["used"] for row in shown.json] == [0, 0]


def test_a_position_that_is_not_reached_is_not_found(store: Path) -> None:
    shown = gpuledger("usage", "--at", "99", store=store)
    assert shown.status == 3
    assert "99" in shown.err


def test_a_hold_is_settled_by_hand_from_admission_to_deletion(copy: Path) -> None:
    (hold,) = gpuledger("holds", "-o", "json", store=copy).json
    assert (hold["key"], hold["uid"], hold["actor"]) == ("pods/web-0", "uid-0", "alice")
    assert gpuledger("settle", "persisted", "uid-0", store=copy).status == 0
    assert gpuledger("holds", "-o", "json", store=copy).json == []
    (holder,) = gpuledger("holders", "-o", "json", store=copy).json
    assert holder["committed"] == {CARDS: 1, MEMORY: 4_000}
    assert gpuledger("settle", "deleted", "uid-0", store=copy).status == 0
    assert gpuledger("holders", "-o", "json", store=copy).json == []
    assert gpuledger("settle", "deleted", "uid-0", store=copy).status == 3


def test_a_pod_is_explained_with_numbers_and_nothing_is_reserved(store: Path) -> None:
    asks = {CARDS: 2, MEMORY: 4_000}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "big", "namespace": "team-a"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": asks}}]},
    }
    before = gpuledger("audit", "verify", "-o", "json", store=store).json["position"]
    denied = gpuledger("explain", "-f", "-", store=store, stdin=json.dumps(pod))
    assert denied.status == 4
    assert 'Pod big would need 2 GPUs, quota "gpus" allows 2, 1 is used.' in denied.out
    assert denied.out.startswith("namespace team-a has too few GPUs left: ")
    asks[CARDS] = 1
    elsewhere = gpuledger(
        "explain", "-f", "-", "--cluster", "east", store=store, stdin=json.dumps(pod)
    )
    assert (elsewhere.status, elsewhere.out) == (3, "")
    assert "cluster 'east' is not in the ledger, known are local" in elsewhere.err
    allowed = gpuledger("explain", "-f", "-", "-o", "json", store=store, stdin=json.dumps(pod))
    assert allowed.status == 0, allowed
    assert allowed.json["demand"] == {CARDS: 1, MEMORY: 4_000}
    assert gpuledger("audit", "verify", "-o", "json", store=store).json["position"] == before


def test_replay_prints_every_event_with_the_balance_after_it(store: Path) -> None:
    told = gpuledger("audit", "replay", "-n", "team-a", "-o", "json", store=store)
    limited, reserved = map(json.loads, told.out.splitlines())
    assert limited["type"] == "LimitSet"
    assert {"position", "time", "cause"} <= reserved.keys()
    assert reserved["type"] == "Reserved"
    assert (reserved["key"], reserved["uid"]) == ("pods/web-0", "uid-0")
    assert reserved["actor"] == "alice"
    assert reserved["amounts"] == {CARDS: 1, MEMORY: 4_000}
    assert reserved["account"] == "quota/local/team-a/gpus"
    assert reserved["used_after"] == {f"limits.{MEMORY}": 4_000, f"requests.{CARDS}": 1}


@pytest.mark.parametrize("arguments", [("audit", "replay"), ("usage", "-o", "yaml")])
def test_a_reader_that_has_enough_ends_a_command_quietly(
    store: Path, arguments: tuple[str, ...]
) -> None:
    assert gpuledger("usage", store=store).status == 0
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [COMMAND, *arguments, f"--store-dir={store}"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    os.close(writing)
    assert ended.returncode == 1
    assert [line for line in ended.stderr.splitlines() if not line.startswith("As of")] == []


def test_an_unreadable_head_file_ends_a_command_that_reads(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    assert gpuledger("usage", store=copy).status == 0
    (copy / "head.json").write_bytes(b"\x00\xff garbage")
    ended = gpuledger("usage", store=copy)
    assert ended.status == 1
    assert "head.json is not a head file" in ended.err


def test_an_expected_head_is_checked_by_position_and_hash(store: Path) -> None:
    report = gpuledger("audit", "verify", "-o", "json", store=store)
    assert report.json == {"ok": True, "records": 2, "position": 2, "problem": None}
    wrong = gpuledger("audit", "verify", "--expect", f"2:{'0' * 64}", "-o", "json", store=store)
    assert wrong.status == 1
    assert "position 2" in wrong.json["problem"]
    further = gpuledger("audit", "verify", "--expect", f"9:{'0' * 64}", "-o", "json", store=store)
    assert further.status == 1
    assert "position 9" in further.json["problem"]
    assert gpuledger("audit", "verify", "--expect", "nonsense", store=store).status == 2


def test_a_log_behind_its_own_store_is_found_out_without_a_head(copy: Path) -> None:
    head = json.loads((copy / "head.json").read_bytes())
    (copy / "head.json").write_text(json.dumps(head | {"position": 5}))
    report = gpuledger("audit", "verify", "-o", "json", store=copy)
    assert report.status == 1
    assert "position 5" in report.json["problem"]
    refused = gpuledger("quota", "set", "--namespace=x", "q", f"requests.{CARDS}=1", store=copy)
    assert refused.status == 1
    assert "missing" in refused.err


@pytest.mark.parametrize(
    ("tamper", "position"),
    [
        (lambda stored: [stored[0], _flipped(stored[1])], 2),
        (lambda stored: [stored[1]], 1),
        (lambda stored: stored[:1], 2),
    ],
    ids=["a record changed", "a record removed", "the tail cut off"],
)
def test_a_log_that_was_tampered_with_is_named_by_position_and_not_written(
    copy: Path, tamper: Callable[[list[bytes]], list[bytes]], position: int
) -> None:
    asyncio.run(_rewrite(copy, tamper))
    report = gpuledger("audit", "verify", "-o", "json", store=copy)
    assert report.status == 1
    assert report.json["ok"] is False
    assert f"position {position}" in report.json["problem"]
    refused = gpuledger("quota", "set", "-n", "x", "q", f"requests.{CARDS}=1", store=copy)
    assert refused.status == 1
    assert f"position {position}" in refused.err


async def _rewrite(path: Path, tamper: Callable[[list[bytes]], list[bytes]]) -> None:
    """Replace the whole stream by another one, as an administrator could."""
    settings = Settings(store_dir=str(path))
    async with open_log(settings) as opened:
        stored = [entry.payload async for batch in opened.log.read(1, 2) for entry in batch]
        await opened.log.connection.api(f"STREAM.DELETE.{opened.log.names.log}")
        await opened.log.open(create=True)
        for expected, payload in enumerate(tamper(stored)):
            await opened.log.append(payload, expected)


def _flipped(payload: bytes) -> bytes:
    return payload[:-1] + bytes([payload[-1] ^ 1])


def test_a_log_with_another_configuration_is_audited_and_not_written(copy: Path) -> None:
    asyncio.run(_loosen(copy))
    report = gpuledger("audit", "verify", "-o", "json", store=copy)
    assert report.status == 1
    assert report.json["records"] == 2, "the records themselves are looked at, too"
    assert "discard" in report.json["problem"]
    refused = gpuledger("settle", "persisted", "uid-0", store=copy)
    assert refused.status == 1
    assert "discard" in refused.err


async def _loosen(path: Path) -> None:
    async with open_log(Settings(store_dir=str(path))) as opened:
        wanted = stream_configuration.log_stream(opened.log.names, 1, 16 * 1024**3)
        loose = msgspec.structs.replace(wanted, discard="old")
        await opened.log.connection.api(f"STREAM.UPDATE.{wanted.name}", loose)


def test_a_store_whose_log_is_gone_is_lost_and_not_made_again(copy: Path) -> None:
    shutil.rmtree(copy / "nats")
    report = gpuledger("audit", "verify", "-o", "json", store=copy)
    assert report.status == 1
    assert "position 2" in report.json["problem"]
    refused = gpuledger("quota", "set", "-n", "x", "q", f"requests.{CARDS}=1", store=copy)
    assert refused.status == 1
    assert not (copy / "nats").exists()


def test_a_backup_is_restored_to_the_same_digest(store: Path, tmp_path: Path) -> None:
    archive, new = tmp_path / "ledger.backup", tmp_path / "new"
    digest = gpuledger("projection", "digest", "-o", "json", store=store).json
    saved = gpuledger("backup", str(archive), "-o", "json", store=store).json
    restored = gpuledger("restore", str(archive), "-o", "json", store=new)
    assert restored.json == saved
    assert gpuledger("projection", "digest", "-o", "json", store=new).json == digest
    head = f"{saved['records']}:{saved['hash']}"
    assert gpuledger("audit", "verify", "--expect", head, store=new).status == 0
    same = gpuledger("projection", "compare", "--at", "1", "-o", "json", store=new).json
    assert same["same"] is True
    assert gpuledger("restore", str(archive), store=new).status == 2


def test_a_rebuilt_projection_has_the_digest_of_the_deleted_one(copy: Path) -> None:
    digest = gpuledger("projection", "digest", "-o", "json", store=copy).json
    for file in copy.glob("projection.sqlite*"):
        file.unlink()
    assert gpuledger("usage", store=copy).status == 0, "it is built where there is none"
    assert gpuledger("projection", "digest", "-o", "json", store=copy).json == digest
    assert gpuledger("projection", "rebuild", "-o", "json", store=copy).json == digest


def test_a_quota_is_deleted_once(copy: Path) -> None:
    assert gpuledger("quota", "delete", "--namespace=team-a", "gpus", store=copy).status == 0
    assert gpuledger("quota", "list", "-o", "json", store=copy).json == []
    assert gpuledger("quota", "delete", "--namespace=team-a", "gpus", store=copy).status == 3


def test_commands_at_the_same_time_take_turns(copy: Path) -> None:
    def set_one(number: int) -> Ended:
        return gpuledger("quota", "set", "-n", "x", f"q{number}", f"requests.{CARDS}=1", store=copy)

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(set_one, range(2)))
    assert [command.status for command in ended] == [0, 0], ended
    report = gpuledger("audit", "verify", "-o", "json", store=copy)
    assert report.json == {"ok": True, "records": 4, "position": 4, "problem": None}


def test_a_missing_ledger_is_not_found_and_not_made(tmp_path: Path) -> None:
    for command in (["usage"], ["audit", "verify"], ["settle", "absent", "x"]):
        missing = gpuledger(*command, store=tmp_path / "nothing")
        assert missing.status == 3, missing
        assert str(tmp_path / "nothing") in missing.err
    assert not (tmp_path / "nothing" / "nats").exists()


def test_an_unreachable_address_is_named_with_what_to_do(tmp_path: Path) -> None:
    lost = gpuledger("audit", "verify", "--nats", "nats://127.0.0.1:9", store=tmp_path)
    assert lost.status == 5
    assert "127.0.0.1:9" in lost.err
    assert "--nats" in lost.err


@pytest.fixture
def served(copy: Path) -> Iterator[Path]:
    """The ledger with a service running on it."""
    process = subprocess.Popen(
        [
            COMMAND,
            "serve",
            f"--store-dir={copy}",
            "--no-kubernetes",
            "--plain-http",
            "--listen=127.0.0.1:0",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "ledger_open" in line:
            break
    else:
        pytest.fail(f"the service ended: {''.join(said)}")
    yield copy
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, "".join(said) + rest


def test_commands_work_beside_a_running_service(served: Path) -> None:
    written = gpuledger(
        "quota",
        "set",
        "--namespace=team-b",
        "gpus",
        f"requests.{CARDS}=1",
        "--output=json",
        store=served,
    )
    assert written.json["changed"] is True
    shown = gpuledger("usage", "--namespace=team-b", "--output=json", store=served).json
    assert [row["limit"] for row in shown] == [1]
    assert gpuledger("audit", "verify", store=served).status == 0
    assert gpuledger("projection", "compare", store=served).status == 0


def test_a_projection_is_not_rebuilt_under_a_service(served: Path) -> None:
    refused = gpuledger("projection", "rebuild", store=served)
    assert refused.status == 6
    assert "stop it first" in refused.err


def _line(resource: str, *, limit: int, reserved: int) -> dict[str, object]:
    return {
        "cluster": "local",
        "namespace": "team-a",
        "quota": "gpus",
        "resource": resource,
        "limit": limit,
        "reserved": reserved,
        "committed": 0,
        "used": reserved,
        "free": limit - reserved,
        "incomplete": False,
    }
