"""Metrics: the table, what is exposed, and bounds."""

import re
import shutil
import subprocess
import threading

import httpx2
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.routing import Route

from ledger.core.model.denials import Denial, Reason
from ledger.log.ledger_port import Accepted
from ledger.runtime import metrics as metrics_module
from ledger.runtime.metric_table import METRICS, Metric, MetricKind
from ledger.runtime.metrics import Telemetry
from ledger.runtime.writer_metrics import WriterMetrics
from projections.api.usage_families import USAGE_METRICS


async def scrape(metrics: Telemetry, accept: str = "", **options: object) -> httpx2.Response:
    app = Starlette(routes=[Route("/metrics", metrics.endpoint(**options))])  # type: ignore[arg-type]
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://gpuledger") as client:
        return await client.get("/metrics", headers={"accept": accept})


def test_names_and_units_follow_the_rules_of_prometheus() -> None:
    for metric in (*METRICS, *USAGE_METRICS):
        assert re.fullmatch(r"gpuledger_[a-z_]+[a-z]", metric.full_name)
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert not re.search(r"_(mib|mebibytes|ms|milliseconds|percent)(_|$)", metric.name)
        assert not re.search(r"_(bytes|seconds|ratio)_(?!total$)", metric.name), "units come last"
        assert metric.help.endswith(".")
        assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
    names = [metric.name for metric in (*METRICS, *USAGE_METRICS)]
    assert len(set(names)) == len(names)


async def test_promtool_has_no_objection_to_the_metrics() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus): no metric was checked")
    metrics = Telemetry()
    metrics.count("decisions_total", "denied", "ExceedsLimit")
    metrics.observe("admission_seconds", 1.0, "validate")
    lines = (await scrape(metrics)).text.splitlines()
    for metric in USAGE_METRICS:
        lines += [f"# HELP {metric.full_name} {metric.help}", f"# TYPE {metric.full_name} gauge"]
        lines.append(f"{metric.full_name} 1")
    assert objections(lines) == ""
    bad = ["# HELP gpuledger_wait_milliseconds Wait.", "# TYPE gpuledger_wait_milliseconds gauge"]
    assert "milliseconds" in objections([*lines, *bad, "gpuledger_wait_milliseconds 1"])


def objections(lines: list[str]) -> str:
    text = "\n".join(lines) + "\n"
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


async def test_every_metric_without_labels_is_there_from_the_start() -> None:
    text = (await scrape(Telemetry())).text
    for metric in METRICS:
        assert f"# TYPE {metric.full_name} " in text
        if not metric.labels:
            zero = rf"^{metric.full_name}(_count)? 0\.0$"
            assert re.search(zero, text, re.MULTILINE), metric.name


async def test_what_was_measured_is_exposed() -> None:
    metrics = Telemetry()
    metrics.count("decisions_total", "denied", "ExceedsLimit")
    metrics.count("decisions_total", "denied", "ExceedsLimit", by=2)
    metrics.set("log_bytes", 4096)
    metrics.observe("append_seconds", 0.002)
    metrics.read("log_position", lambda: 17)
    lines = (await scrape(metrics)).text.splitlines()
    assert 'gpuledger_decisions_total{reason="ExceedsLimit",verdict="denied"} 3.0' in lines
    assert "gpuledger_log_bytes 4096.0" in lines
    assert 'gpuledger_append_seconds_bucket{le="0.0025"} 1.0' in lines
    assert 'gpuledger_append_seconds_bucket{le="0.001"} 0.0' in lines
    assert "gpuledger_log_position 17.0" in lines


async def test_a_counter_is_read_from_a_function() -> None:
    metrics = Telemetry()
    metrics.read("extender_reloads_total", lambda: 3)
    assert "gpuledger_extender_reloads_total 3.0" in (await scrape(metrics)).text


async def test_earlier_names_are_exposed_only_when_asked_for() -> None:
    metrics = Telemetry(legacy=True)
    metrics.set("loop_blocked_max_seconds", 0.5)
    metrics.read("extender_reloads_total", lambda: 3)
    text = (await scrape(metrics)).text
    assert "# TYPE gpuledger_loop_blocked_seconds_max gauge" in text
    assert "gpuledger_loop_blocked_seconds_max 0.5" in text
    assert "# TYPE gpuledger_extender_reloads gauge" in text
    assert "gpuledger_extender_reloads 3.0" in text
    now = (await scrape(Telemetry())).text
    assert [metric.name for metric in METRICS if f"_{metric.formerly} " in now] == []


async def test_families_have_distinct_names_when_the_earlier_ones_are_there() -> None:
    answer = await scrape(Telemetry(legacy=True), "application/openmetrics-text; version=1.0.0")
    families = re.findall(r"^# TYPE (\S+) ", answer.text, re.MULTILINE)
    assert len(set(families)) == len(families)


async def test_two_processes_worth_of_metrics_do_not_meet() -> None:
    telemetry, other = Telemetry(), Telemetry()
    telemetry.count("log_conflicts_total")
    assert "gpuledger_log_conflicts_total 0.0" in (await scrape(other)).text


async def test_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "SERIES_MAX", 2)
    metrics = Telemetry()
    for cause in ("a", "b", "c", "d"):
        metrics.count("drift_total", cause)
    text = (await scrape(metrics)).text
    assert 'gpuledger_drift_total{cause="b"} 1.0' in text
    assert 'gpuledger_drift_total{cause="other"} 2.0' in text
    assert 'cause="c"' not in text


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
async def test_samples_are_those_of_the_prometheus_client(accept: str) -> None:
    metrics, registry = Telemetry(), CollectorRegistry()
    admission = next(metric for metric in METRICS if metric.name == "admission_seconds")
    histogram = Histogram(
        admission.full_name,
        admission.help,
        admission.labels,
        registry=registry,
        buckets=admission.buckets,
    )
    drift = next(metric for metric in METRICS if metric.name == "drift_total")
    counter = Counter(drift.full_name, drift.help, drift.labels, registry=registry)
    for value in (0.0, *admission.buckets, 0.0007, 99.0):
        metrics.observe("admission_seconds", value, "validate")
        histogram.labels("validate").observe(value)
    for cause in ("a", "b", "a"):
        metrics.count("drift_total", cause)
        counter.labels(cause).inc()
    encode, _ = choose_encoder(accept)
    expected = [line for line in encode(registry).decode().splitlines() if line != "# EOF"]
    text = (await scrape(metrics, accept)).text
    lines = text.splitlines()
    assert [line for line in expected if "_created" not in line and line not in lines] == []
    assert "_created" not in text
    assert text.count("gpuledger_admission_seconds_bucket") == len(admission.buckets) + 1


@pytest.mark.parametrize("name", ["no_such_metric", "gpuledger_log_bytes"])
def test_an_unknown_name_is_a_programming_error(name: str) -> None:
    with pytest.raises(KeyError):
        Telemetry().set(name, 1)


def test_a_wrong_number_of_labels_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="decisions_total takes"):
        Telemetry().count("decisions_total", "denied")


def test_a_wrong_kind_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="log_bytes is not a counter"):
        Telemetry().count("log_bytes")


async def test_collectors_of_others_are_refreshed_and_exposed() -> None:
    class Usage(Collector):
        value = 0

        async def refresh(self) -> None:
            self.value += 1

        def collect(self) -> list[GaugeMetricFamily]:
            return [GaugeMetricFamily("gpuledger_quota_cards_used", "Used.", self.value)]

    metrics, usage = Telemetry(), Usage()
    metrics.register(usage)
    assert "gpuledger_quota_cards_used 1.0" in (await scrape(metrics, refresh=[usage.refresh])).text


async def test_other_collectors_do_not_block_the_event_loop() -> None:
    asked_in: list[threading.Thread] = []

    class Usage(Collector):
        def collect(self) -> list[GaugeMetricFamily]:
            asked_in.append(threading.current_thread())
            return []

    def position() -> float:
        asked_in.append(threading.current_thread())
        return 7.0

    metrics = Telemetry()
    metrics.read("log_position", position)
    metrics.register(Usage())
    assert "gpuledger_log_position 7.0" in (await scrape(metrics)).text
    measured, others = asked_in
    assert measured is threading.main_thread()
    assert others is not threading.main_thread()


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics"),
    ],
)
async def test_the_format_is_the_one_asked_for(accept: str, kind: str) -> None:
    assert (await scrape(Telemetry(), accept)).headers["content-type"].startswith(kind)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_set(metric: Metric, product: str) -> None:
    assert f'"{metric.name}"' in product


async def test_the_writer_reports_into_the_metrics() -> None:
    metrics = Telemetry()
    observer = WriterMetrics(metrics)
    observer.batch_stored(commands=3, record_bytes=900, seconds=0.004)
    observer.decided(Accepted(1, "d", True))
    observer.decided(Denial(Reason.OVERLOADED, "full", True))
    observer.conflicted()
    observer.ambiguous()
    observer.blocked(0.002)
    observer.blocked(0.001)
    observer.denial_dropped()
    observer.contradicted("p")
    lines = (await scrape(metrics)).text.splitlines()
    for expected in (
        "gpuledger_append_seconds_sum 0.004",
        "gpuledger_group_commands_sum 3.0",
        'gpuledger_decisions_total{reason="",verdict="accepted"} 1.0',
        'gpuledger_decisions_total{reason="Overloaded",verdict="denied"} 1.0',
        "gpuledger_log_conflicts_total 1.0",
        "gpuledger_log_ambiguous_total 1.0",
        "gpuledger_loop_blocked_seconds_count 2.0",
        "gpuledger_loop_blocked_max_seconds 0.002",
        "gpuledger_refusals_dropped_total 1.0",
        "gpuledger_contradictions_total 1.0",
    ):
        assert expected in lines
