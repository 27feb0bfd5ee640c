"""An installation by the kustomize files of 75bd653 is taken over by helm, with its log and usage.

Old and new commands are those of their pages. The takeover replaces service and log servers at the
same time, and the old replicas stop at the first record of this version. So requests may be refused
for some seconds: they are counted, and not forbidden as in an upgrade.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from gpuledger.version import VERSION
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.kubectl import commands_of
from tests.e2e.harness.polling import eventually
from tests.e2e.install.rig.real_cluster import HELM_SECONDS, RealCluster
from tests.e2e.install.story.ledger_agreement import InstalledLedger, assert_agreement
from tests.e2e.install.story.load import Load
from tests.e2e.install.story.old_image import OLD, built_old_image
from tests.e2e.install.story.old_installation import SPACE, OldInstallation
from tests.e2e.install.story.timeline import Timeline
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.workloads import replicated

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.long, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "how-to" / "install.md").read_text()
HEADING: Final = "Take over an installation by kustomize"
PRODUCTION: Final = ("production=true,", ",webhook.clientCA.existingConfigMap=gpuledger-client-ca")
"""Values to leave out for a control plane without a client certificate, as the page has it."""

SMALL: Final = "resources.requests.cpu=100m,nats.resources.requests.cpu=100m"
NAME: Final = "east-1"
TEAM: Final = "team"
PODS: Final = f"/api/v1/namespaces/{TEAM}/pods"
RATE: Final = 5.0
WITHIN: Final = 60.0
KEPT: Final = ("pvc", "secret", "statefulset", "deployment", "service")
ADOPTED: Final = ("meta.helm.sh/release-name", "gpuledger")


class Installation:
    """An installation in the namespace of the manifests, read as an operator reads it."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster

    def ask(self, *command: str) -> Any:
        """Run a command of gpuledger in a pod of the service; return its JSON."""
        words = ("gpuledger", *command, "-o", "json")
        printed = self._cluster.exec(SPACE, "deploy/gpuledger", *words)
        # Notes on standard error are printed before or after.
        begin = re.search(r"^[\[{]", printed, re.MULTILINE)
        assert begin, printed
        answer, _ = json.JSONDecoder().raw_decode(printed, begin.start())
        return answer

    def counted(self, *command: str) -> list[dict[str, Any]]:
        """Return the rows of a command about the team's namespace."""
        rows: list[dict[str, Any]] = self.ask(*command, "-n", TEAM)
        return rows

    def uids(self) -> dict[str, str]:
        """Return the uids of all objects that a takeover keeps, by kind and name."""
        listed = self._cluster.kubectl.get(SPACE, ",".join(KEPT))
        return {
            f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["uid"]
            for each in listed["items"]
        }

    def images(self) -> set[str]:
        """Return the images of all containers that run."""
        return {
            pod["spec"]["containers"][0]["image"]
            for pod in self._cluster.pods(SPACE)
            if "deletionTimestamp" not in pod["metadata"]
        }


async def test_an_old_installation_is_taken_over_with_its_log(
    real_cluster: RealCluster, product_images: list[Path], tmp_path: Path
) -> None:
    timeline, load = Timeline(), Load(real_cluster, RATE)
    for archive in (*product_images, built_old_image()):
        real_cluster.import_image(archive)
    old, installed = OldInstallation(real_cluster, tmp_path, name=NAME), Installation(real_cluster)
    with timeline.step(f"the page of {OLD} installs it"):
        old.install()
    assert f"gpuledger:{OLD}" in installed.images()
    async with real_cluster.connected() as admin:
        with timeline.step("pods and a Deployment are counted"):
            await make_use(admin)
            holders = await settled(installed)
        usage, uids = installed.counted("usage"), installed.uids()
        saved = installed.ask("backup", "/tmp/before.backup")
        with load.running(), timeline.step("helm install --take-ownership"):
            type_block(real_cluster, f"{adoption()} --set={SMALL}")
        report(timeline, load)
        with timeline.step("the page's commands delete what is left over"):
            for block in commands_of(PAGE, HEADING):
                type_block(real_cluster, block)
        assert installed.images() == {f"gpuledger:{VERSION}", f"gpuledger-nats:{VERSION}"}
        del uids["Secret/gpuledger-stamp"]
        assert installed.uids().items() >= uids.items()
        assert left_over(real_cluster, old.objects()) == [f"Namespace/{SPACE}"]
        with timeline.step(f"the log still has the {saved['records']} records of before"):
            expected = f"{saved['records']}:{saved['hash']}"
            audit = installed.ask("audit", "verify", "--expect", expected)
        assert audit["ok"] is True
        assert audit["records"] > saved["records"]
        same_rows(usage, installed.counted("usage"))
        same_rows(holders, installed.counted("holders"))
        with timeline.step("a pod beyond the quota is denied"):
            denied = await admin.ask("POST", PODS, pod("two-more", cards=2))
        assert denied.status == 403, denied
        assert "allows 5, 4 are used" in denied.message, denied
    with timeline.step("helm test passes"):
        real_cluster.helm("test", "gpuledger", f"--namespace={SPACE}")
    with timeline.step("ledger and cluster agree"):
        ledger = InstalledLedger(real_cluster, namespace=SPACE)
        await assert_agreement(real_cluster, ledger, TEAM, load.namespace, name=NAME)


def adoption() -> str:
    """Return the command of the page, for a control plane without a client certificate."""
    section = PAGE.partition(f"## {HEADING}\n")[2].partition("\n## ")[0]
    [command] = re.findall(r"```console\n(.*?)\n```", section, re.DOTALL)
    for value in PRODUCTION:
        assert value in command
        command = command.replace(value, "")
    return str(command)


def type_block(cluster: RealCluster, block: str) -> None:
    """Type commands in the root of the repository."""
    cluster.kubectl.type(f"cd {ROOT}\n{block}", within=HELM_SECONDS)


async def make_use(admin: Cluster) -> None:
    """Limit a namespace to five cards, and use four by a pod and a Deployment."""
    hard = {"metadata": {"name": "cards"}, "spec": {"hard": {f"limits.{CARDS}": "5"}}}
    await admin.must("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
    await admin.must("POST", f"/api/v1/namespaces/{TEAM}/resourcequotas", hard)

    async def limited() -> int:
        return (await admin.ask("POST", f"{PODS}?dryRun=All", pod("many", cards=6))).status

    await eventually(limited, lambda status: status == 403, within=WITHIN, what="a quota limits")
    await admin.must("POST", PODS, pod("has-two", cards=2))
    web = replicated("Deployment", 2)
    await admin.must("POST", f"/apis/apps/v1/namespaces/{TEAM}/deployments", web)

    async def running() -> int:
        return len(await admin.items(PODS))

    await eventually(running, lambda pods: pods == 3, within=WITHIN, what="three pods exist")


async def settled(installed: Installation) -> list[dict[str, Any]]:
    """Return the holders of the team's namespace once nothing is only reserved."""

    async def holders() -> list[dict[str, Any]]:
        return installed.counted("holders")

    return await eventually(
        holders,
        lambda rows: not any(row["holds"] for row in rows),
        within=WITHIN,
        what="all holds are settled",
        pause=1.0,
    )


def report(timeline: Timeline, load: Load) -> None:
    """Print what the load met."""
    timeline.line(load.summary())
    for refusal in load.refusals[:3]:
        timeline.line(f"{refusal.at:.1f} s {refusal.request} {refusal.status} {refusal.message}")


def left_over(cluster: RealCluster, manifests: Sequence[Manifest]) -> list[str]:
    """Return the objects of manifests that still exist and do not belong to the release."""
    left = []
    for manifest in manifests:
        kind, metadata = manifest["kind"], manifest["metadata"]
        name, space = metadata["name"], metadata.get("namespace", "default")
        _, printed = cluster.kubectl.attempt(
            f"kubectl -n {space} get {kind} {name} --ignore-not-found -o json"
        )
        annotations = json.loads(printed)["metadata"].get("annotations", {}) if printed else None
        if annotations is not None and ADOPTED not in annotations.items():
            left.append(f"{kind}/{name}")
    return left


def same_rows(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    """Fail unless all rows are as before; a newer version may print more fields."""
    assert before
    assert [compared(new, row) for row, new in zip(before, after, strict=True)] == [
        compared(row, row) for row in before
    ]


def compared(row: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the given fields of a row, without the time of the last event about it."""
    return {field: row[field] for field in fields if field != "since"}
