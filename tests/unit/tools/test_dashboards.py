"""Dashboards and alerts read metrics that the service and the agents have, with their labels."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import pytest
from prometheus_client.core import Metric as Family

from gpuledger.node import agent_app
from ledger.runtime.metric_table import METRICS, MetricKind
from projections.api.usage_families import LINE_FAMILIES, USAGE_METRICS
from tools.manifests import prometheus_lint
from tools.manifests.helm_chart import render
from tools.manifests.prometheus_lint import DASHBOARDS, expressions
from vgpu_native.agent.node_metrics import AgentCollector

ROOT: Final = Path(__file__).parents[3]
FILES: Final = sorted((ROOT / DASHBOARDS).glob("*.json"))
RUNBOOKS: Final = "https://docs.example/operating.md"

FULLEST: Final = "quotas.json: Fullest quota"
TARGET: Final = frozenset({"instance", "job"})
"""Labels that a scrape adds."""
RATED: Final = re.compile(r"(?:rate|increase)\(\s*(\w+)")
SELECTED: Final = re.compile(r"\b((?:gpuledger|hami)_\w+)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
GROUPED: Final = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")


def agent_families() -> list[Family]:
    """Return the families of an agent, those of its process and of its plugin included."""
    inventory = MagicMock(cards=())
    inventory.health.xids = {}
    follower = MagicMock(position=0, trouble="")
    plugin = MagicMock(waited_seconds=0.0)
    return [
        *AgentCollector("node", inventory).collect(),
        *agent_app._ProcessCollector(follower).collect(),
        *agent_app._RequestCollector(plugin).collect(),
    ]


def known_labels() -> dict[str, frozenset[str]]:
    """Return the labels of every metric by its name, as series have it."""
    known = {}
    for metric in (*METRICS, *USAGE_METRICS):
        labels = frozenset(metric.labels)
        known[metric.full_name] = labels
        if metric.kind is MetricKind.HISTOGRAM:
            del known[metric.full_name]
            known[f"{metric.full_name}_bucket"] = labels | {"le"}
            known |= {f"{metric.full_name}_{end}": labels for end in ("count", "sum")}
    for family in agent_families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        known[name] = known.get(name, frozenset()) | labels_of(family)
    return known


def labels_of(family: Family) -> frozenset[str]:
    return frozenset(getattr(family, "_labelnames", ()))


KNOWN: Final = known_labels()


def problems(expression: str) -> Iterator[str]:
    """Yield the names in an expression that do not exist."""
    labels: set[str] = set(TARGET)
    plain = re.sub(r'"[^"]*"', '""', expression)
    for name, selector in SELECTED.findall(plain):
        if name not in KNOWN:
            yield f"no metric {name}"
            continue
        labels |= KNOWN[name]
        yield from (
            f"{name} has no label {label}"
            for label in MATCHER.findall(selector)
            if label not in KNOWN[name] | TARGET
        )
    for group in GROUPED.findall(plain):
        for label in filter(None, re.split(r"[,\s]+", group)):
            if label not in labels:
                yield f"no label {label}"
    for name in RATED.findall(plain):
        if not name.endswith(("_total", "_bucket", "_count", "_sum")):
            yield f"{name} is not a counter"


def of_dashboards() -> list[tuple[str, str]]:
    return [
        (f"{path.name}: {title}", expression)
        for path in FILES
        for title, expression in expressions(json.loads(path.read_text()))
    ]


def of_alerts() -> list[tuple[str, str]]:
    groups = prometheus_lint.alert_rules(ROOT)["groups"]
    return [(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


def test_dashboards_and_alerts_name_metrics_and_labels_that_exist() -> None:
    asked = [*of_dashboards(), *of_alerts()]
    assert len(asked) > 80
    assert [(where, *problems(text)) for where, text in asked if list(problems(text))] == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(gpuledger_redy)", "no metric gpuledger_redy"),
        ('gpuledger_drift_total{case="late"}', "gpuledger_drift_total has no label case"),
        ("sum by (reasons) (gpuledger_decisions_total)", "no label reasons"),
        ("rate(gpuledger_log_bytes[5m])", "gpuledger_log_bytes is not a counter"),
        ("gpuledger_admission_seconds", "no metric gpuledger_admission_seconds"),
        ("gpuledger_quota_used", "no metric gpuledger_quota_used"),
    ],
)
def test_a_name_that_does_not_exist_is_found(expression: str, problem: str) -> None:
    assert list(problems(expression)) == [problem]


def test_the_fullest_quota_is_that_of_every_measure() -> None:
    expected = [family.metric.full_name for family in LINE_FAMILIES if family.field != "committed"]
    for asked in (dict(of_alerts())["LedgerQuotaNearlyFull"], dict(of_dashboards())[FULLEST]):
        assert sorted(name for name, _ in SELECTED.findall(asked)) == sorted(expected)


def test_legends_name_labels_of_their_metrics() -> None:
    wrong: list[tuple[str, str]] = []
    for path in FILES:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                names = SELECTED.findall(target["expr"])
                there = TARGET.union(*(KNOWN[name] for name, _ in names))
                named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                wrong += [(panel["title"], label) for label in named - there]
    assert wrong == []


def test_variables_name_labels_of_metrics() -> None:
    for path in FILES:
        model = json.loads(path.read_text())
        source, *variables = model["templating"]["list"]
        assert (source["type"], source["query"]) == ("datasource", "prometheus")
        for variable in variables:
            query = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert query is not None
            pattern = re.match(r'(\w+)$|\{__name__=~"([^"]+)"', query[1])
            assert pattern is not None
            chosen = [name for name in KNOWN if re.fullmatch(pattern[1] or pattern[2], name)]
            assert any(query[2] in KNOWN[name] | TARGET for name in chosen), variable["name"]
            assert f"${variable['name']}" in json.dumps(model["panels"]), "a variable is used"


def test_every_panel_has_a_title_a_meaning_a_unit_and_a_place_of_its_own() -> None:
    for path in FILES:
        model = json.loads(path.read_text())
        panels = model["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        assert len({panel["title"] for panel in panels}) == len(panels)
        squares: set[tuple[int, int]] = set()
        for panel in panels:
            at = panel["gridPos"]
            own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert not squares & own, panel["title"]
            squares |= own
            if panel["type"] != "row":
                assert panel["description"].endswith("."), panel["title"]
                assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
                assert panel["datasource"]["uid"] == "${datasource}"
                assert panel["targets"], panel["title"]
        assert max(x for x, _ in squares) < 24


def linked(dashboard: dict[str, Any]) -> list[str]:
    links = [link for panel in dashboard["panels"] for link in panel.get("links", ())]
    return [link["url"] for link in (*dashboard.get("links", ()), *links)]


def rendered(*sets: str) -> list[dict[str, Any]]:
    objects = render(ROOT, sets=["cluster=c", "dashboards.enabled=true", *sets])
    [shipped] = [each for each in objects if each.template == "monitoring/dashboards.yaml"]
    return [json.loads(text) for text in shipped.manifest["data"].values()]


def test_panels_lead_to_the_runbooks_where_these_have_an_address() -> None:
    alerts = {alert.lower() for alert, _ in of_alerts()}
    for dashboard in rendered(f"prometheusRule.runbooks={RUNBOOKS}"):
        first, *anchors = linked(dashboard)
        assert first == RUNBOOKS
        assert anchors
        assert {anchor.removeprefix(f"{RUNBOOKS}#") for anchor in anchors} <= alerts
    for path, dashboard in zip(FILES, rendered(), strict=True):
        assert linked(dashboard) == []
        model = json.loads(path.read_text())
        assert len(dashboard["panels"]) == len(model["panels"])
