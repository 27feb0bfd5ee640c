"""The backup CronJob on a real cluster, and its backup restored into a new release."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.polling import eventually
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.timeline import Timeline
from tests.e2e.objects.pods import CARDS, pod

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(400)]

SPACE: Final = "gpuledger-system"
TEAM: Final = "team"
CHART: Final = Path(__file__).parents[3] / "deploy" / "chart" / "gpuledger"
WITHIN: Final = 60.0
WAIT: Final = "--timeout=120s"
SMALL: Final = ",".join(
    (
        "cluster=east-1",
        "resources.requests.cpu=100m",
        "nats.resources.requests.cpu=100m",
        "backup.enabled=true",
    )
)
PODS: Final = f"/api/v1/namespaces/{TEAM}/pods"
QUOTAS: Final = f"/api/v1/namespaces/{TEAM}/resourcequotas"
SERVICE: Final = "deploy/gpuledger"


async def test_a_backup_is_restored_into_a_new_release(
    real_cluster: RealCluster, product_images: list[Path]
) -> None:
    timeline = Timeline()
    for archive in product_images:
        real_cluster.import_image(archive)
    with timeline.step("helm install with a backup CronJob"):
        install(real_cluster, f"{SMALL},replicaCount=1")
    async with real_cluster.connected() as admin:
        with timeline.step("a quota and a pod"):
            await make_use(admin)
    with timeline.step("two runs of the CronJob"):
        saved = [run_backup(real_cluster, f"backup-{number}") for number in (1, 2)]
    assert saved[0]["kept"] == "1"
    assert saved[1]["kept"] == "2"
    with timeline.step("uninstall, and the volume of the log is lost"):
        real_cluster.helm("uninstall", "gpuledger", f"--namespace={SPACE}", "--wait")
        real_cluster.kubectl.type(
            f"kubectl -n {SPACE} delete pvc data-gpuledger-nats-0 --wait {WAIT}", within=WITHIN * 3
        )
    with timeline.step("a new release without the service"):
        install(real_cluster, f"{SMALL},replicaCount=0,backup.existingClaim=gpuledger-backup")
    with timeline.step("restore"):
        restored = restore(real_cluster, str(saved[-1]["file"]))
    for name in ("shard", "records", "hash"):
        assert restored[name] == saved[-1][name]
    with timeline.step("the service on the restored log"):
        install(
            real_cluster,
            f"{SMALL},replicaCount=1,backup.existingClaim=gpuledger-backup",
            verb="upgrade",
        )
    expected = f"{restored['records']}:{restored['hash']}"
    audit = run_in_service(real_cluster, "audit", "verify", "--expect", expected)
    assert audit["ok"] is True
    async with real_cluster.connected() as admin:
        refused = await admin.ask("POST", PODS, pod("more", cards=2))
    assert refused.status == 403, refused
    assert "2 of 3 cards" in refused.message or "QuotaExceeded" in refused.message, refused


def install(cluster: RealCluster, values: str, verb: str = "install") -> None:
    """Install or upgrade the release and wait for it."""
    names = ("gpuledger", str(CHART), f"--namespace={SPACE}")
    made = ("--create-namespace",) if verb == "install" else ()
    cluster.helm(verb, *names, *made, f"--set={values}", "--wait", "--timeout=180s")


async def make_use(admin: Cluster) -> None:
    """Make a quota of three cards, and a pod that has two of them."""
    await admin.must("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
    hard = {"metadata": {"name": "cards"}, "spec": {"hard": {f"limits.{CARDS}": "3"}}}
    await admin.must("POST", QUOTAS, hard)

    async def limited() -> int:
        return (await admin.ask("POST", f"{PODS}?dryRun=All", pod("many", cards=4))).status

    await eventually(limited, lambda status: status == 403, within=WITHIN, what="a quota limits")
    await admin.must("POST", PODS, pod("has-two", cards=2))


def run_backup(cluster: RealCluster, name: str) -> dict[str, object]:
    """Run the CronJob once; return the printed row of the backup."""
    cluster.kubectl.type(f"kubectl -n {SPACE} create job {name} --from=cronjob/gpuledger-backup")
    return ended(cluster, name)


def restore(cluster: RealCluster, file: str) -> dict[str, object]:
    """Restore as docs/how-to/backup-and-restore.md shows it."""
    args = json.dumps(["restore", file])
    change = (
        '[{"op": "replace", "path": "/spec/backoffLimit", "value": 0},'
        f' {{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": {args}}}]'
    )
    cluster.kubectl.type(
        f"kubectl -n {SPACE} create job restore --from=cronjob/gpuledger-backup --dry-run=client"
        f" -o yaml | kubectl patch --local -f - --type=json -o yaml -p '{change}' |"
        " kubectl apply -f -"
    )
    return ended(cluster, "restore")


def ended(cluster: RealCluster, job: str) -> dict[str, object]:
    """Wait for a Job and return its table's only row, by its headers."""
    cluster.kubectl.type(
        f"kubectl -n {SPACE} wait --for=jsonpath='{{.status.conditions}}' job/{job} {WAIT}",
        within=WITHIN * 3,
    )
    printed = cluster.kubectl.type(f"kubectl -n {SPACE} logs job/{job}")
    header, row = (line.split() for line in printed.strip().splitlines()[-2:])
    values: dict[str, object] = dict(zip(map(str.lower, header), row, strict=True))
    values["records"] = int(str(values["records"]))
    return values


def run_in_service(cluster: RealCluster, *command: str) -> dict[str, object]:
    """Run a command in the pod of the service, as an operator does; return its JSON."""
    printed = cluster.exec(SPACE, SERVICE, "gpuledger", *command, "-o", "json")
    answer: dict[str, object] = json.loads(printed[printed.index("{") :])
    return answer
