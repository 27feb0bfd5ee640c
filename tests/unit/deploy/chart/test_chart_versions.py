"""Versions of the chart: a later one alone does not restart the servers of the log."""

import re
import shutil
from pathlib import Path
from typing import Any

from tools.manifests.helm_chart import CHART, render

ROOT = Path(__file__).parents[4]


def log_pods(tree: Path, *sets: str) -> dict[str, Any]:
    """Return the template of the pods of the log."""
    objects = render(tree, [], ("cluster=east-1", *sets), release="gpuledger", namespace="gpu")
    [log] = [each.manifest for each in objects if each.manifest["kind"] == "StatefulSet"]
    template: dict[str, Any] = log["spec"]["template"]
    return template


def test_a_later_chart_does_not_restart_the_log(tmp_path: Path) -> None:
    shutil.copytree(ROOT / CHART, tmp_path / CHART)
    pinned = "nats.image.tag=same"
    before = log_pods(tmp_path, pinned)
    described = tmp_path / CHART / "Chart.yaml"
    later, count = re.subn(r"(?m)^(version|appVersion): .*$", r'\1: "9.9.9"', described.read_text())
    assert count == 2
    described.write_text(later)
    assert log_pods(tmp_path, pinned) == before
    assert log_pods(tmp_path, pinned, "nats.storage.maxFileStore=1GB") != before
