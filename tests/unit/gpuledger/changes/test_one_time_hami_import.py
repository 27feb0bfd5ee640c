"""A dry import works without a ledger and creates none."""

from pathlib import Path

import pytest

from gpuledger.changes import one_time_hami_import
from ledger.kube.api.objects import ApiNode, ObjectMeta, Pod
from ledger.kube.cluster.hami_accounts import HamiAccounts
from ledger.kube.hami import annotation_keys
from ledger.runtime.settings.settings import Settings

CARD = (
    '[{"id":"GPU-1","index":0,"count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10",'
    '"numa":0,"mode":"hami-core","health":true}]'
)


async def test_a_dry_run_shows_cards_before_there_is_a_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(_: Settings) -> tuple[str, list[ApiNode], list[Pod], HamiAccounts]:
        register = {annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register: CARD}
        return (
            "uid",
            [ApiNode(metadata=ObjectMeta(name="n1", annotations=register))],
            [],
            HamiAccounts(),
        )

    monkeypatch.setattr(one_time_hami_import, "_read", read)
    store = tmp_path / "none"
    report = await one_time_hami_import.import_hami(Settings(store_dir=str(store)), dry_run=True)
    assert [(card.node, card.uuid) for card in report.cards] == [("n1", "GPU-1")]
    assert report.nodes == 1
    assert not store.exists()
