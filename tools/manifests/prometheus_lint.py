"""Lint of what the chart gives Prometheus and Grafana: alerts with their tests, and dashboards.

Alerts are checked as the chart renders them. promtool checks and tests the rules and parses the
expressions of the dashboards, if it is on PATH.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tools.manifests.helm_chart import CHART, render

ALERTS: Final = f"{CHART}/files/alerts.yaml"
ALERT_TESTS: Final = "tools/manifests/alert_tests.yaml"
DASHBOARDS: Final = f"{CHART}/files/dashboards"
PROMTOOL_SECONDS: Final = 60.0
ALL: Final = "rules"

_VARIABLES: Final = {"$__rate_interval": "5m", "$__range": "1h", "$__interval": "1m"}
_VARIABLE: Final = re.compile(r"\$\{?\w+\}?")


@cache
def promtool() -> str | None:
    """Return the path of promtool; without it, report that no rule was checked."""
    program = shutil.which("promtool")
    if program is None:
        sys.stderr.write(
            "!!! promtool is not on PATH (Debian package prometheus): NO ALERT WAS CHECKED\n"
        )
    return program


def findings(root: Path) -> Iterator[str]:
    """Return a line for each thing that is to be mended. Raises HelmFailed."""
    rules = alert_rules(root)
    # Only texts, because 0x30 is a number in YAML.
    cases = yaml.load((root / ALERT_TESTS).read_text(), yaml.BaseLoader)
    yield from missing_tests(rules, cases)
    yield from _of_promtool(ALERTS, "check", {ALL: rules})
    yield from _of_promtool(ALERTS, "test", dict(_tests(rules, cases)))
    yield from dashboard_findings(root)


def missing_tests(rules: dict[str, Any], cases: dict[str, Any]) -> Iterator[str]:
    """Return a line for each alert without a test, and each test without an alert."""
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    for name in sorted(names ^ cases.keys()):
        yield f"{ALERT_TESTS}: {name}: an alert and its test have one name; add or remove one"


def dashboard_findings(root: Path) -> Iterator[str]:
    """Return a line for each expression of a dashboard that promtool does not parse."""
    yield from _of_promtool(DASHBOARDS, "check", {ALL: _recorded(root)})


def alert_rules(root: Path) -> dict[str, Any]:
    """Return the groups of rules as the chart renders them. Raises HelmFailed."""
    objects = render(root, sets=["cluster=c", "prometheusRule.enabled=true"])
    [rules] = [each for each in objects if each.template == "monitoring/rules.yaml"]
    spec: dict[str, Any] = rules.manifest["spec"]
    return spec


def _tests(
    rules: dict[str, Any], cases: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield files for promtool: each test, and its alert alone, because the others take time."""
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        name = rule["alert"]
        if name in cases:
            yield f"{name}.rule", {"groups": [{"name": name, "rules": [rule]}]}
            yield (
                name,
                {
                    "rule_files": [f"{name}.rule.yaml"],
                    "evaluation_interval": "1m",
                    "tests": [_test(name, cases[name])],
                },
            )


def _test(name: str, case: dict[str, Any]) -> dict[str, Any]:
    # An alert is a series. Its texts are not compared, because they are not behaviour.
    fires = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
    expression = f"sum without (alertname, alertstate, severity) ({fires})"
    labels = [{"labels": text, "value": 1} for text in case["labels"]]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values} for series, values in case["series"].items()
        ],
        "promql_expr_test": [
            {"expr": expression, "eval_time": case["quiet"]},
            {"expr": expression, "eval_time": case["firing"], "exp_samples": labels},
        ],
    }


def expressions(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its expressions, without variables of Grafana."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], _plain(target["expr"])


def _plain(expression: str) -> str:
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    return _VARIABLE.sub(".*", expression)


def _recorded(root: Path) -> dict[str, Any]:
    """Return the expressions of all dashboards as rules, which promtool parses."""
    rules = [
        {
            "record": "dashboard:expression",
            "expr": expression,
            "labels": {"panel": title, "n": str(n)},
        }
        for path in sorted((root / DASHBOARDS).glob("*.json"))
        for n, (title, expression) in enumerate(expressions(json.loads(path.read_text())))
    ]
    return {"groups": [{"name": "dashboards", "rules": rules}]}


def _of_promtool(source: str, verb: str, files: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Return the findings of promtool in files of rules or of tests, by their names."""
    program = promtool()
    if program is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        names = [f"{name}.yaml" for name in files if not name.endswith(".rule")]
        done = subprocess.run(
            [program, verb, "rules", *names],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PROMTOOL_SECONDS,
            check=False,
        )
    if done.returncode:
        yield f"{source}: promtool {verb}: {done.stdout}{done.stderr}".strip()
