"""A log that was changed or lost on disk: the service admits nothing and names the position."""

import json
import re
import shutil
from pathlib import Path

import pytest
from support.harness.command_line import gpuledger
from support.servers.service_process import (
    creation,
    ledger_problem,
    post,
    running_service,
    set_quota,
)

from gpuledger.storage.open_log import open_log
from ledger.core.model.denials import Reason
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration


async def _rewrite(store: Path, change) -> None:
    """Replace the log of a store by changed records, as a user with access to the disk might."""
    settings = Settings(store_dir=str(store))
    async with open_log(settings) as opened:
        extent = await opened.log.extent()
        payloads = [
            entry.payload async for batch in opened.log.read(1, extent.last) for entry in batch
        ]
        name = opened.log.names.log
        await opened.log.connection.api(f"STREAM.DELETE.{name}", {})
        await opened.log.open(create=True)
        for position, payload in enumerate(change(payloads)):
            await opened.log.append(payload, position)


def _changed(payloads: list[bytes]) -> list[bytes]:
    forged = bytearray(payloads[2])
    forged[-3] ^= 1
    return [*payloads[:2], bytes(forged), *payloads[3:]]


DAMAGE = {
    "changed": (_changed, 3),
    "removed": (lambda payloads: [*payloads[:2], *payloads[3:]], 3),
    "cut": (lambda payloads: payloads[:-2], None),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_log_is_found_and_nothing_more_is_admitted(
    tmp_path: Path, damage: str
) -> None:
    change, position = DAMAGE[damage]
    store = tmp_path / "store"
    with running_service(store) as service:
        set_quota(store, 8_000 * 100)
        async with service.client() as client:
            for number in range(6):
                assert (await post(client, creation(f"p{number}")))["allowed"]
        assert service.stop() == 0
    head = json.loads((store / "head.json").read_bytes())
    await _rewrite(store, change)
    expected = f"--expect={head['position']}:{head['hash']}"
    verified = gpuledger("audit", "verify", expected, "-o", "json", store=store)
    assert verified.status == 1
    assert verified.json["ok"] is False
    if position is not None:
        assert f"position {position}" in verified.json["problem"]
    service.start(ready=False)
    try:
        ledger_problem(service)
        async with service.client() as client:
            denied = await post(client, creation("more"))
        assert not denied["allowed"]
        assert str(Reason.LEDGER_STOPPED) in denied["status"]["message"]
    finally:
        service.kill()


def _flip_a_byte(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes((content[middle] ^ 1,)) + content[middle + 1 :]


FILE_DAMAGE = {"flipped": _flip_a_byte, "truncated": lambda content: content[:-700]}


async def test_damaged_files_of_the_log_server_are_found_at_their_position(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_service(store) as service:
        set_quota(store, 8_000 * 100)
        async with service.client() as client:
            for number in range(8):
                assert (await post(client, creation(f"p{number}")))["allowed"]
        assert service.stop() == 0
    for name, damage in FILE_DAMAGE.items():
        copy = shutil.copytree(store, tmp_path / name)
        (blocks,) = copy.glob("nats/**/LEDGER-main/msgs/1.blk")
        blocks.write_bytes(damage(blocks.read_bytes()))
        verified = gpuledger("audit", "verify", "-o", "json", store=copy)
        assert verified.status == 1
        assert re.search(r"position [1-9]: the record is missing", verified.json["problem"])


async def test_a_store_whose_log_vanished_is_not_started_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_service(store) as service:
        set_quota(store, 8_000)
        assert service.stop() == 0
    shutil.rmtree(store / "nats")
    service.start(ready=False)
    try:
        reason = ledger_problem(service)
        assert "restore" in reason
    finally:
        service.kill()
