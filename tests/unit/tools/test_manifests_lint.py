"""The lint of chart and manifests finds each planted fault, and nothing in the tree as it is."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tools.manifests import __main__ as command
from tools.manifests import chart_lint, prometheus_lint
from tools.manifests.chart_lint import VERSIONS
from tools.manifests.helm_chart import CHART
from tools.manifests.prometheus_lint import ALERT_TESTS, ALERTS, DASHBOARDS
from tools.manifests.settings_schema import SCHEMA

ROOT: Final = Path(__file__).parents[3]
DEFAULTS: Final = f"{CHART}/ci/default-values.yaml"
SERVICE: Final = f"{CHART}/templates/service/deployment.yaml"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of what the lint reads, with one set of values."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / ALERT_TESTS).parent.mkdir(parents=True)
    shutil.copy(ROOT / ALERT_TESTS, tmp_path / ALERT_TESTS)
    for values in (tmp_path / CHART / "ci").glob("*-values.yaml"):
        if values != tmp_path / DEFAULTS:
            values.unlink()
    return tmp_path


@pytest.fixture
def small(tree: Path) -> Path:
    """Return the copy without most files of kustomize, because yamllint is slow."""
    for path in (tree / "deploy").glob("*/*.yaml"):
        path.unlink()
    for name in ("own-writes", "nats", "rbac", "deployment"):
        (tree / "deploy" / f"{name}.yaml").unlink()
    return tree


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Return a copy of the chart and of the tests of its alerts."""
    shutil.copytree(ROOT / CHART, tmp_path / CHART)
    (tmp_path / ALERT_TESTS).parent.mkdir(parents=True)
    shutil.copy(ROOT / ALERT_TESTS, tmp_path / ALERT_TESTS)
    return tmp_path


def plant(tree: Path, file: str, old: str, new: str) -> None:
    """Replace a text of a file, which has it."""
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new, 1))


def test_the_copied_tree_has_no_findings(tree: Path) -> None:
    assert list(chart_lint.findings(tree)) == []
    assert list(command.differences(tree)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "because"),
    [
        (f"{CHART}/values.yaml", "  registry:", "\tregistry:", "found character '\\t'"),
        (f"{CHART}/values.yaml", "\n  repository: gpu", "\n   repository: gpu", "values.yaml"),
        ("deploy/namespace.yaml", "  name: gpu", "  name:  gpu", "too many spaces after colon"),
        (SERVICE, "kind: Deployment\n", "kind: Deployment \n", "trailing"),
        (DEFAULTS, "cluster: east-1", 'cluster: east-1\nreplicaCount: "two"', "replicaCount"),
        (DEFAULTS, "cluster: east-1", "replicaCount: 2", "cluster is empty"),
        (SERVICE, "{{ .Values.replicaCount }}", "{{ .Values.gone.count }}", "nil pointer"),
        (SERVICE, "{{ .Values.replicaCount }}", "{{ .Values.replicaCount }", "unexpected"),
        (SERVICE, "kind: Deployment\n", "kind: Deploymint\n", "has no kind Deploymint"),
    ],
    ids=lambda given: given.strip() if len(given) < 30 else "",
)
def test_a_planted_fault_is_found(small: Path, file: str, old: str, new: str, because: str) -> None:
    plant(small, file, old, new)
    findings = list(chart_lint.findings(small))
    assert findings
    assert because in "\n".join(findings)


def test_a_field_that_kubernetes_does_not_have_is_found_at_every_version(small: Path) -> None:
    plant(small, SERVICE, "  replicas:", "  replica:")
    findings = "\n".join(chart_lint.findings(small))
    named = set(re.findall(r"service/deployment.yaml: Deployment/\S+: Kubernetes (\S+):", findings))
    assert named == set(VERSIONS)
    assert "replica" in findings


def test_a_chart_without_sets_of_values_is_found(small: Path) -> None:
    (small / DEFAULTS).unlink()
    assert any("no rendered object is checked" in line for line in chart_lint.findings(small))


def test_a_rule_that_cannot_be_parsed_is_found(rules: Path) -> None:
    skip_without_promtool()
    plant(rules, ALERTS, "sum by (le, instance) (", "sum by (")
    assert any(f"{ALERTS}: promtool check" in line for line in prometheus_lint.findings(rules))


def test_alerts_that_fire_at_a_wrong_time_are_found(rules: Path) -> None:
    skip_without_promtool()
    faults = {
        "LedgerNotReady": ("expr: gpuledger_ready == 0", "expr: gpuledger_ready == 2"),
        "LedgerLogFull": ("> 0.9\n", "> 0.05\n"),
        "LedgerCertificateEnding": (" > 0) - time() < 7", ") - time() < 7"),
        "LedgerQuotaNearlyFull": (">= QUOTA_NEARLY_FULL", ">= 0.91"),
        "LedgerDeniesByFailure": ("[10m]) > 0\n        or", "[10m])\n        or"),
        "LedgerPodsWaitLong": ("_max_seconds) > 6 * 3600", "_max_seconds) >= 6 * 3600"),
    }
    for old, new in faults.values():
        plant(rules, ALERTS, old, new)
    findings = "\n".join(prometheus_lint.findings(rules))
    assert set(re.findall(r'alertname=\\"(\w+)', findings)) == faults.keys()


def test_an_alert_without_a_test_is_found() -> None:
    rules = {"groups": [{"rules": [{"alert": "A"}, {"alert": "B"}]}]}
    lines = list(prometheus_lint.missing_tests(rules, {"B": {}, "C": {}}))
    assert [line.split(": ")[1] for line in lines] == ["A", "C"]


def test_an_expression_of_a_dashboard_that_cannot_be_parsed_is_found(rules: Path) -> None:
    skip_without_promtool()
    plant(rules, f"{DASHBOARDS}/health.json", "sum(gpuledger_ready", "sum(gpuledger_ready(")
    findings = list(prometheus_lint.dashboard_findings(rules))
    assert any(f"{DASHBOARDS}: promtool check" in line for line in findings)


def skip_without_promtool() -> None:
    if prometheus_lint.promtool() is None:
        pytest.skip("promtool is not installed (Debian package prometheus): no alert was checked")


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: plant(
            tree, "deploy/rbac.yaml", "  verbs: [get, list, watch]", "  verbs: [get]"
        ),
        lambda tree: plant(tree, "deploy/nats.conf", "sync_interval: always", "sync_interval: 2m"),
        lambda tree: plant(tree, "deploy/kustomize-values.yaml", "production: true\n", ""),
        lambda tree: plant(
            tree, f"{CHART}/templates/service/service.yaml", "port: 443", "port: 444"
        ),
        lambda tree: (tree / "deploy/agent/own-node.yaml").unlink(),
        lambda tree: plant(tree, SCHEMA, '"card_memory_max"', '"card_memory_most"'),
    ],
    ids=["a right", "a setting", "a value", "a template", "a missing file", "the schema"],
)
def test_a_file_that_differs_from_the_chart_is_found(
    tree: Path, change: Callable[[Path], None]
) -> None:
    change(tree)
    lines = list(command.differences(tree))
    assert lines
    assert all("edit the chart, and run `make manifests`" in line for line in lines)
