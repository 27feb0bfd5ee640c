"""Devices of holders: on the page of a namespace and in the wide table."""

from pathlib import Path

import msgspec
import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import log_of, project
from support.pages.page_harness import pages

from gpuledger.commands.ledger import holders_and_holds
from ledger.core.model.commands import Observe
from ledger.core.model.devices import Device, Devices
from ledger.core.model.state import State
from projections.text.device_text import LISTED_MAX, held_devices

NAMESPACE, CLAIM = "local/red", "resourceclaims.resource.k8s.io/shared"
SHARED = Device("shared", "gpu", "gpu.example.com", "n1", "gpu-0", "s1", "", "GPU-0", 8_192, 10)
HOSTILE = msgspec.structs.replace(SHARED, device="<script>alert(1)</script>", share="")


async def page_of(path: Path, devices: Devices) -> str:
    """Return the page of a namespace with one resource claim."""
    seen = Observe(NAMESPACE, CLAIM, "u", 1, {"nvidia.com/gpumem": 8_192}, devices=devices)
    payload = record(State(), [seen], time=1)
    assert payload is not None
    await project(path, log_of([payload]))
    async with pages(path) as client:
        answer = await client.get("/page/namespace?namespace=red")
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_the_page_of_a_namespace_shows_the_devices_of_a_holder(tmp_path: Path) -> None:
    text = await page_of(tmp_path / "p.sqlite", (SHARED, HOSTILE))
    assert CLAIM in text
    assert "device gpu-0 of pool n1 of gpu.example.com share s1 card GPU-0 8192 MiB 10 %" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text


async def test_the_page_of_a_namespace_counts_further_devices(tmp_path: Path) -> None:
    text = await page_of(tmp_path / "p.sqlite", (SHARED,) * (LISTED_MAX + 2))
    assert text.count("device gpu-0") == LISTED_MAX
    assert "and 2 more devices" in text


@pytest.mark.parametrize(
    ("devices", "cell"),
    [
        ((), "-"),
        ((SHARED, HOSTILE), f"gpu.example.com/n1/gpu-0:s1,gpu.example.com/n1/{HOSTILE.device}"),
    ],
)
def test_the_wide_table_of_holders_has_devices(devices: Devices, cell: str) -> None:
    class Row(msgspec.Struct):
        devices: object

    column = holders_and_holds._HOLDERS.wide[-1]
    assert column.header == "DEVICES"
    assert column.cell(Row(held_devices(devices))) == cell
