"""Pods of every shape that ask for cards, alone and as Deployments and Jobs."""

from typing import Any, Final

from tests.e2e.harness.cluster import Manifest
from tests.e2e.objects.pods import CARDS, CORES, MEMORY
from tests.e2e.scheduling.support.scheduler import PROFILE

PERCENTAGE: Final = "nvidia.com/gpumem-percentage"
APPS: Final = "/apis/apps/v1"
BATCH: Final = "/apis/batch/v1"


def container(name: str = "main", /, **asked: int) -> Manifest:
    """Return a container that asks for `cards`, `memory`, `percentage` and `cores` of each."""
    names = {"cards": CARDS, "memory": MEMORY, "percentage": PERCENTAGE, "cores": CORES}
    limits = {names[word]: str(amount) for word, amount in asked.items()}
    return {"name": name, "image": "cuda:12", "resources": {"limits": limits} if limits else {}}


def sidecar(name: str, **asked: int) -> Manifest:
    """Return an init container that goes on running beside the others."""
    return {**container(name, **asked), "restartPolicy": "Always"}


def pod(
    name: str,
    *containers: Manifest,
    first: tuple[Manifest, ...] = (),
    profile: str = PROFILE,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Return a pod for a scheduler; annotations and more of its spec are set by the caller."""
    annotations = spec.pop("annotations", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations},
        "spec": {
            "schedulerName": profile,
            "terminationGracePeriodSeconds": 0,
            "initContainers": list(first),
            "containers": list(containers),
            **spec,
        },
    }


def mixed(profile: str = PROFILE) -> list[Manifest]:
    """Return pods of ten shapes that all fit on nodes of eight cards of 24 GiB."""
    small = container(cards=1, memory=4_000, cores=20)
    asked: dict[str, Any] = {"profile": profile}
    return [
        pod("share", small, **asked),
        pod("percentage", container(cards=1, percentage=25, cores=10), **asked),
        pod("whole", container(cards=1), **asked),
        pod("no-cores", container(cards=1, memory=2_000), **asked),
        pod("four-cards", container(cards=4, memory=6_000, cores=30), **asked),
        pod("two-containers", small, container("second", cards=2, memory=1_000, cores=5), **asked),
        pod("init", small, first=(container("first", cards=1, memory=12_000, cores=50),), **asked),
        pod("sidecar", small, first=(sidecar("beside", cards=1, memory=500, cores=5),), **asked),
        pod(
            "numa",
            container(cards=3, memory=3_000, cores=10),
            annotations={"nvidia.com/numa-bind": "true"},
            **asked,
        ),
        pod(
            "typed",
            container(cards=2, memory=5_000, cores=25),
            annotations={"nvidia.com/use-gputype": "a10,h100"},
            **asked,
        ),
    ]


def deployment(template: Manifest, replicas: int) -> Manifest:
    """Return a Deployment of pods like this one."""
    return _workload("apps/v1", "Deployment", template, {"replicas": replicas})


def daemon_set(template: Manifest) -> Manifest:
    """Return a DaemonSet of pods like this one."""
    return _workload("apps/v1", "DaemonSet", template, {})


def job(template: Manifest, count: int) -> Manifest:
    """Return a Job that runs so many pods like this one, all at once."""
    made = _workload("batch/v1", "Job", template, {"parallelism": count, "completions": count})
    made["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    del made["spec"]["selector"]
    return made


def _workload(version: str, kind: str, template: Manifest, spec: Manifest) -> Manifest:
    name = template["metadata"]["name"]
    labels = {"app": name}
    metadata = {"labels": labels, "annotations": template["metadata"]["annotations"]}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": f"{name}-{kind.lower()}"},
        "spec": {
            **spec,
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": dict(template["spec"])},
        },
    }
