"""Usage as Prometheus reads it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.builders.decide_and_fold import record
from support.harness.projection_harness import log_of, project

from ledger.core.model import commands
from ledger.core.model.state import State
from ledger.kube.quotas.line_measures import OTHER, line_measures
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.quantities import MEBIBYTE
from projections.api import usage_metrics
from projections.api.usage_families import USAGE_METRICS
from projections.api.usage_metrics import UsageCollector, UsageExport
from projections.store.readers import Readers

MEASURES = line_measures(DemandRules(managed=("cpu",)))
EVERYTHING = UsageExport(measures=MEASURES)
MEMORY = 'resource="limits.nvidia.com/gpumem"'


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[Readers]:
    limits = {
        "limits.nvidia.com/gpumem": 16_000,
        "requests.nvidia.com/gpu": 4,
        "limits.nvidia.com/gpucores": 250,
        "cpu": 1_500,
        "requests.gone.example/card": 7,
    }
    payload = record(
        State(),
        [
            commands.SetLimits("quota/c1/red/main", ("c1/red",), limits),
            commands.SetLimits("quota/c10/red/far", ("c10/red",), {"cpu": 1}),
            commands.SetLimits("universe/all", ("c1/red", "c10/red"), {"cpu": 1}),
            commands.Reserve("c1/red", "pods/a", "u", {"nvidia.com/gpumem": 1_000}),
        ],
        time=1_000_000,
    )
    assert payload is not None
    await project(tmp_path / "ledger.sqlite", log_of([payload]))
    async with Readers(tmp_path / "ledger.sqlite") as readers:
        yield readers


async def exposed(readers: Readers, export: UsageExport) -> str:
    collector, registry = UsageCollector(readers, export), CollectorRegistry()
    registry.register(collector)
    await collector.refresh()
    return generate_latest(registry).decode()


async def test_every_line_of_a_quota_is_a_gauge_in_its_base_unit(readers: Readers) -> None:
    text = await exposed(readers, EVERYTHING)
    main = {
        (sample.name.removeprefix("gpuledger_quota_"), sample.labels["resource"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("quota") == "main"
    }
    memory = "limits.nvidia.com/gpumem"
    assert main["memory_limit_bytes", memory] == 16_000 * MEBIBYTE
    assert main["memory_used_bytes", memory] == 1_000 * MEBIBYTE
    assert main["memory_committed_bytes", memory] == 0
    assert main["cards_limit", "requests.nvidia.com/gpu"] == 4
    assert main["cores_limit_ratio", "limits.nvidia.com/gpucores"] == 2.5
    assert main["cpu_limit_cores", "cpu"] == 1.5
    assert main["units_limit", "requests.gone.example/card"] == 7
    assert len(main) == 5 * len(("limit", "used", "committed"))
    lines = text.splitlines()
    assert "gpuledger_quota_lines_left_out 0.0" in lines
    assert "gpuledger_projection_position 1.0" in lines
    assert "gpuledger_projection_record_timestamp_seconds 1.0" in lines


async def test_families_are_those_of_the_table_and_have_one_unit(readers: Readers) -> None:
    collector = UsageCollector(readers, EVERYTHING)
    await collector.refresh()
    families = {family.name: family for family in collector.collect()}
    assert list(families) == [metric.full_name for metric in USAGE_METRICS]
    for metric in USAGE_METRICS:
        family = families[metric.full_name]
        assert family.documentation == metric.help
        for sample in family.samples:
            assert tuple(sample.labels) == metric.labels
        units = {
            MEASURES.get(sample.labels["resource"], OTHER)[1:]
            for sample in family.samples
            if "resource" in sample.labels
        }
        assert len(units) <= 1, "amounts of one family have one unit"


async def test_a_replica_lists_its_own_cluster_while_it_is_active(readers: Readers) -> None:
    active = True
    export = UsageExport(measures=MEASURES, cluster="c1", shared=False, is_active=lambda: active)
    collector = UsageCollector(readers, export)

    async def listed() -> set[str]:
        await collector.refresh()
        samples = (sample for family in collector.collect() for sample in family.samples)
        return {sample.labels["quota"] for sample in samples if "quota" in sample.labels}

    assert await listed() == {"main"}
    active = False
    assert await listed() == set()
    assert collector.position == 1, "the lag of the projection is that of each replica"
    with_shared = await exposed(readers, UsageExport(measures=MEASURES, cluster="c1"))
    assert 'quota="all"' in with_shared
    assert 'quota="far"' not in with_shared


async def test_earlier_names_are_there_only_when_asked_for(readers: Readers) -> None:
    legacy = await exposed(readers, UsageExport(measures=MEASURES, legacy=True))
    labels = f'cluster="c1",namespace="red",quota="main",{MEMORY}'
    assert f"gpuledger_quota_limit{{{labels}}} 16000.0" in legacy
    assert "# TYPE gpuledger_card_memory_used_mib gauge" in legacy
    now = await exposed(readers, EVERYTHING)
    assert "gpuledger_quota_limit{" not in now
    assert "_mib" not in now


async def test_lines_beyond_the_bound_are_counted(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_metrics, "LINES_MAX", 1)
    text = await exposed(readers, EVERYTHING)
    assert text.count("gpuledger_quota_cpu_used_cores{") == 1
    assert 'quota="all"' in text, "quotas over many namespaces come first"
    assert "gpuledger_quota_lines_left_out 6.0" in text


async def test_a_namespace_with_many_quotas_displaces_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_metrics, "LINES_MAX", 3)
    monkeypatch.setattr(usage_metrics, "QUOTAS_OF_NAMESPACE_MAX", 2)
    state = State()
    many = [
        commands.SetLimits(f"quota/c1/aaa/{number}", ("c1/aaa",), {"cpu": 1}) for number in range(9)
    ]
    ended = [
        commands.SetLimits(f"quota/c1/aa/{number}", ("c1/aa",), {"cpu": 1}) for number in range(3)
    ]
    other = commands.SetLimits("quota/c1/red/main", ("c1/red",), {"cpu": 1})
    closed = [commands.SetLimits(command.account, (), {}) for command in ended]
    payloads = []
    for group in ([*many, *ended, other], closed):
        payload = record(state, group, time=1_000_000)
        assert payload is not None
        payloads.append(payload)
    await project(tmp_path / "ledger.sqlite", log_of(payloads))
    async with Readers(tmp_path / "ledger.sqlite") as readers:
        text = await exposed(readers, EVERYTHING)
    assert text.count("gpuledger_quota_cpu_used_cores{") == 3
    assert 'namespace="red"' in text
    assert 'namespace="aa"' not in text
    assert "gpuledger_quota_lines_left_out 7.0" in text
