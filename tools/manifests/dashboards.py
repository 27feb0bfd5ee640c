"""Dashboards of Grafana, made from tables of panels: quotas and cards, and the service's health.

The chart replaces `RUNBOOKS` by the address of the runbooks.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tools.manifests.dashboard_panels import Panel
from tools.manifests.health_panels import HEALTH
from tools.manifests.quota_panels import QUOTAS

COLUMNS: Final = 24
"""The width of a dashboard, in columns of Grafana."""
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION: Final = 39
"""The schema of Grafana 10.4, which later versions migrate."""


class Variable(NamedTuple):
    """A variable whose values are those of a label; its default is all."""

    name: str
    label: str
    query: str


class Dashboard(NamedTuple):
    """One dashboard: the name of its file, and what it shows."""

    name: str
    title: str
    description: str
    variables: Sequence[Variable]
    panels: Sequence[Panel]


_DASHBOARDS: Final = (
    Dashboard(
        "quotas",
        "gpuledger: quotas and cards",
        "Use of GPU quotas and of cards, from the replica that settles each cluster.",
        (
            Variable(
                "cluster",
                "Cluster",
                'label_values({__name__=~"gpuledger_(quota|card)_.+"}, cluster)',
            ),
            Variable(
                "namespace",
                "Namespace",
                'label_values({__name__=~"gpuledger_quota_.+",cluster=~"$cluster"}, namespace)',
            ),
        ),
        QUOTAS,
    ),
    Dashboard(
        "health",
        "gpuledger: service health",
        "Replicas, decisions, log, settlement and scheduling of the service.",
        (Variable("job", "Job", "label_values(gpuledger_ready, job)"),),
        HEALTH,
    ),
)


def files() -> dict[str, str]:
    """Return the text of each dashboard by the name of its file."""
    return {
        f"{dashboard.name}.json": json.dumps(_model(dashboard), indent=1) + "\n"
        for dashboard in _DASHBOARDS
    }


def _model(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"gpuledger-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["gpuledger"],
        "timezone": "browser",
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "refresh": "30s",
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "annotations": {"list": []},
        "links": [_link("Runbooks", "")],
        "templating": {"list": [_SOURCES, *map(_variable, dashboard.variables)]},
        "panels": _placed(dashboard.panels),
    }


def _link(title: str, anchor: str) -> dict[str, Any]:
    # All fields of the schema, which has no optional ones here.
    return {
        "title": title,
        "type": "link",
        "icon": "doc",
        "tooltip": "",
        "url": f"RUNBOOKS{anchor}",
        "tags": [],
        "asDropdown": False,
        "targetBlank": True,
        "includeVars": False,
        "keepTime": False,
    }


_SOURCES: Final = {
    "name": "datasource",
    "type": "datasource",
    "query": "prometheus",
    "label": "Data source",
}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "label": variable.label,
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": "A"},
        "definition": variable.query,
        "includeAll": True,
        "multi": True,
        # Not a list of all values, which 1,000 namespaces make too long. A quota over many
        # namespaces has an empty label.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return the panels from left to right, each row of them below the one before."""
    placed: list[dict[str, Any]] = []
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + height
        position = {"h": panel.height, "w": panel.width, "x": x, "y": y}
        placed.append(_panel(number, panel, position))
        x, height = x + panel.width, panel.height
    return placed


def _panel(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    common = {"id": number, "type": panel.kind, "title": panel.title, "gridPos": position}
    if panel.kind == "row":
        return common | {"collapsed": False, "panels": []}
    links = [_link(alert, f"#{alert.lower()}") for alert in panel.alerts]
    return (
        common
        | {"description": panel.description, "datasource": SOURCE}
        | ({"links": links} if links else {})
        | {
            "targets": [
                _target(chr(ord("A") + n), panel, *at) for n, at in enumerate(panel.series)
            ],
            "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
            "options": _OPTIONS[panel.kind],
        }
    )


def _target(ref: str, panel: Panel, legend: str, expression: str) -> dict[str, Any]:
    # Only a graph needs the values of all times.
    instant = panel.kind != "timeseries"
    return {
        "refId": ref,
        "datasource": SOURCE,
        "expr": expression,
        "legendFormat": legend,
        "instant": instant,
        "range": not instant,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.unit == "percentunit" and panel.kind == "bargauge":
        defaults["max"] = 1
    if panel.bounds:
        first, *others = panel.bounds
        steps = [{"color": first, "value": None}]
        steps += [{"color": color, "value": value} for value, color in others]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return defaults


_LAST: Final = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "stat": {"reduceOptions": _LAST, "colorMode": "value", "graphMode": "none"},
    "bargauge": {"reduceOptions": _LAST, "orientation": "horizontal", "displayMode": "basic"},
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
}
