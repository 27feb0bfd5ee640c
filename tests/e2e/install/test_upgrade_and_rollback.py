"""An upgrade and a roll back of chart, image and record schema under load: nothing is refused.

The load comes from outside the cluster. Every request of it fits, so each refusal is a failure of
the upgrade. The next version reads and writes one record schema more.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from gpuledger.version import VERSION
from ledger.log.record_schema import SCHEMA
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.ledger_agreement import InstalledLedger, assert_agreement
from tests.e2e.install.story.load import Load
from tests.e2e.install.story.next_version import NEXT, NEXT_SCHEMA, NextVersion, next_version
from tests.e2e.install.story.timeline import Timeline

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(600)]

SPACE: Final = "gpuledger"
CHART: Final = Path(__file__).parents[3] / "deploy" / "chart" / "gpuledger"
VALUES: Final = ("--set=cluster=east-1", f"--set=nats.image.tag={VERSION}")
"""The log server stays, so that only the service changes."""

RATE: Final = 5.0
ATTEMPTS_MAX: Final = 10
SHOWN: Final = 3
"""Refusals that are printed after a step."""


class Release:
    """One release, upgraded and rolled back by helm."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster

    def install(self) -> None:
        self._helm("install", str(CHART), "--create-namespace", *VALUES)

    def upgrade(self, chart: Path) -> None:
        self._helm("upgrade", str(chart), *VALUES)

    def rollback(self, revision: int) -> None:
        self._helm("rollback", str(revision))

    def versions(self) -> set[str]:
        """Return the tags of the images of the service's running pods."""
        return {
            pod["spec"]["containers"][0]["image"].rpartition(":")[2]
            for pod in self._cluster.pods(SPACE)
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "service"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def raise_schema(self) -> Any:
        """Raise the schema once the last replica of the older version has ended; return the JSON.

        The command is refused before, because such a replica may still answer reviews, and while
        no replica is the preferred writer.
        """
        typed = f"kubectl -n {SPACE} exec deploy/gpuledger -- gpuledger log raise-schema -o json"
        for _ in range(ATTEMPTS_MAX):
            status, printed = self._cluster.kubectl.attempt(typed)
            if status == 0:
                return json.loads(printed)
            assert "nothing was changed" in printed, printed
        raise AssertionError(printed)

    def _helm(self, verb: str, *arguments: str) -> None:
        name = "gpuledger"
        self._cluster.helm(verb, name, *arguments, f"--namespace={SPACE}", "--wait")


def _report(timeline: Timeline, load: Load) -> None:
    timeline.line(load.summary())
    for refusal in load.refusals[:SHOWN]:
        timeline.line(f"{refusal.at:.1f} s {refusal.request} {refusal.status} {refusal.message}")


@pytest.fixture
def newer(real_cluster: RealCluster, product_images: list[Path]) -> NextVersion:
    """Import the images of both versions."""
    version = next_version()
    for archive in (*product_images, version.image.path):
        real_cluster.import_image(archive)
    return version


def test_an_upgrade_and_a_roll_back_refuse_nothing(
    real_cluster: RealCluster, newer: NextVersion
) -> None:
    timeline, release = Timeline(), Release(real_cluster)
    with timeline.step(f"helm install of {VERSION}"):
        release.install()
    load = Load(real_cluster, RATE)
    with load.running():
        with timeline.step(f"helm upgrade to {NEXT}"):
            release.upgrade(newer.chart)
        _report(timeline, load)
        assert release.versions() == {NEXT}
        with timeline.step(f"helm rollback to {VERSION}"):
            release.rollback(1)
        _report(timeline, load)
        assert release.versions() == {VERSION}
        with timeline.step(f"helm upgrade to {NEXT} again, and raise the schema"):
            release.upgrade(newer.chart)
            raised = release.raise_schema()
        _report(timeline, load)
    assert (raised["before"], raised["schema"]) == (SCHEMA, NEXT_SCHEMA)
    assert load.refusals == []
    assert asyncio.run(load.failed_creations()) == 0
    with timeline.step("ledger and cluster agree"):
        ledger = InstalledLedger(real_cluster, namespace=SPACE)
        agreement = assert_agreement(real_cluster, ledger, load.namespace, name="east-1")
        asyncio.run(agreement)
