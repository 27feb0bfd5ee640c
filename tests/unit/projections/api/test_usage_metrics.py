"""Usage as Prometheus reads it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import log_of, project

from ledger.core.model import commands
from ledger.core.model.state import State
from projections.api import usage_metrics
from projections.api.usage_metrics import UsageCollector
from projections.store.readers import Readers


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[Readers]:
    limits = {"limits.nvidia.com/gpumem": 16_000, "requests.nvidia.com/gpu": 4}
    payload = record(
        State(),
        [
            commands.SetLimits("quota/c1/red/main", ("c1/red",), limits),
            commands.Reserve("c1/red", "pods/a", "u", {"nvidia.com/gpumem": 1_000}),
        ],
        time=1_000_000,
    )
    assert payload is not None
    await project(tmp_path / "ledger.sqlite", log_of([payload]))
    async with Readers(tmp_path / "ledger.sqlite") as readers:
        yield readers


async def test_every_line_of_a_quota_is_a_gauge(readers: Readers) -> None:
    collector, registry = UsageCollector(readers), CollectorRegistry()
    registry.register(collector)
    await collector.refresh()
    text = generate_latest(registry).decode()
    labels = 'cluster="c1",namespace="red",quota="main",resource="limits.nvidia.com/gpumem"'
    assert f"gpuledger_quota_limit{{{labels}}} 16000.0" in text
    assert f"gpuledger_quota_used{{{labels}}} 1000.0" in text
    assert f"gpuledger_quota_committed{{{labels}}} 0.0" in text
    assert "gpuledger_quota_lines_left_out 0.0" in text
    assert "gpuledger_projection_position 1.0" in text
    assert "gpuledger_projection_record_timestamp_seconds 1.0" in text


async def test_lines_beyond_the_bound_are_counted(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_metrics, "LINES_MAX", 1)
    collector = UsageCollector(readers)
    await collector.refresh()
    families = {family.name: family for family in collector.collect()}
    assert len(families["gpuledger_quota_used"].samples) == 1
    assert families["gpuledger_quota_lines_left_out"].samples[0].value == 1
