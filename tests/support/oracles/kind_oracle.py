"""Kind oracle: the most pods that each kind may run at once, for the cluster oracle.

It uses nothing of the product. Each function takes an object of the API server and yields its pod
templates with the number of pods of each.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

Manifest = dict[str, Any]
Templates = Iterator[tuple[Manifest, int]]
"""Pod templates, and how many pods of each may run at once."""


def deployment(manifest: Manifest, *, reserve: bool = False) -> Templates:
    """replicas, and with surge `reserve` maxSurge on top until it is rolled out."""
    spec = manifest["spec"]
    replicas = spec.get("replicas", 1)
    strategy = spec.get("strategy", {})
    surge = 0
    if reserve and strategy.get("type") != "Recreate" and not _rolled_out(manifest, replicas):
        surge = _portion(strategy.get("rollingUpdate", {}).get("maxSurge", "25%"), replicas)
    yield spec["template"], replicas + surge


def replicated(manifest: Manifest, **_: Any) -> Templates:
    """ReplicaSet, StatefulSet and Rollout: replicas."""
    yield manifest["spec"]["template"], manifest["spec"].get("replicas", 1)


def daemon_set(manifest: Manifest, **_: Any) -> Templates:
    """The number of nodes is unknown: each pod counts when it comes."""
    yield manifest["spec"]["template"], 0


def job(manifest: Manifest, **_: Any) -> Templates:
    """min(parallelism, what is left of completions)."""
    spec, status = manifest["spec"], manifest.get("status", {})
    parallelism = spec.get("parallelism", 1)
    left = spec.get("completions") or parallelism
    left -= status.get("succeeded", 0) + _indexes(status.get("failedIndexes", ""))
    yield spec["template"], 0 if spec.get("suspend") else max(0, min(parallelism, left))


def job_set(manifest: Manifest, **_: Any) -> Templates:
    """The sum over its Jobs."""
    for replicated_job in manifest["spec"]["replicatedJobs"]:
        inner = replicated_job["template"]["spec"]
        parallelism = inner.get("parallelism", 1)
        pods = min(parallelism, inner.get("completions", parallelism))
        factor = 0 if manifest["spec"].get("suspend") else replicated_job.get("replicas", 1)
        yield inner["template"], factor * pods


def leader_worker_set(manifest: Manifest, **_: Any) -> Templates:
    """In every group a leader, and workers up to its size."""
    spec = manifest["spec"]
    groups, inner = spec.get("replicas", 1), spec["leaderWorkerTemplate"]
    workers = inner.get("size", 1)
    if "leaderTemplate" in inner:
        yield inner["leaderTemplate"], groups
        workers -= 1
    yield inner["workerTemplate"], groups * workers


def replica_specs(manifest: Manifest, **_: Any) -> Templates:
    """MPIJob, PyTorchJob and TFJob: the sum over the replica types."""
    spec = manifest["spec"]
    idle = spec.get("runPolicy", {}).get("suspend")
    for field in ("mpiReplicaSpecs", "pytorchReplicaSpecs", "tfReplicaSpecs"):
        for replica_spec in spec.get(field, {}).values():
            yield replica_spec["template"], 0 if idle else replica_spec.get("replicas", 1)


def train_job(manifest: Manifest, **_: Any) -> Templates:
    """The number of nodes of the TrainJob itself."""
    trainer = manifest["spec"].get("trainer", {})
    container = {"name": "node", "resources": trainer.get("resourcesPerNode", {})}
    nodes = 0 if manifest["spec"].get("suspend") else trainer.get("numNodes", 1)
    yield {"spec": {"containers": [container]}}, nodes


def ray_cluster(manifest: Manifest, **_: Any) -> Templates:
    """The head, and of every group its replicas, each on so many hosts."""
    idle = manifest["spec"].get("suspend", False)
    for template, count in _ray(manifest["spec"]):
        yield template, 0 if idle else count


def ray_job(manifest: Manifest, **_: Any) -> Templates:
    """Its cluster, and the pod that submits, unless something else does."""
    spec = manifest["spec"]
    idle = spec.get("suspend", False)
    for template, count in _ray(spec.get("rayClusterSpec", {})):
        yield template, 0 if idle else count
    if "submitterPodTemplate" in spec and spec.get("submissionMode", "K8sJobMode") == "K8sJobMode":
        yield spec["submitterPodTemplate"], 0 if idle else 1


def ray_service(manifest: Manifest, **_: Any) -> Templates:
    """Its cluster."""
    return _ray(manifest["spec"]["rayClusterConfig"])


ENVELOPES: Final[dict[str, Callable[..., Templates]]] = {
    "Deployment": deployment,
    "ReplicaSet": replicated,
    "StatefulSet": replicated,
    "DaemonSet": daemon_set,
    "Job": job,
    "JobSet": job_set,
    "LeaderWorkerSet": leader_worker_set,
    "MPIJob": replica_specs,
    "PyTorchJob": replica_specs,
    "TFJob": replica_specs,
    "TrainJob": train_job,
    "RayCluster": ray_cluster,
    "RayJob": ray_job,
    "RayService": ray_service,
    "Rollout": replicated,
}
"""The kinds that are charged. A CronJob is not: each of its Jobs is."""

_FINISHED: Final = {
    "Job": ("Complete", "Failed"),
    "JobSet": ("Completed", "Failed"),
    "MPIJob": ("Succeeded", "Failed"),
    "PyTorchJob": ("Succeeded", "Failed"),
    "TFJob": ("Succeeded", "Failed"),
    "TrainJob": ("Complete", "Failed"),
}


def is_finished(kind: str, manifest: Manifest) -> bool:
    """Return whether an object will never run anything again."""
    status = manifest.get("status", {})
    if kind == "RayJob" and manifest["spec"].get("shutdownAfterJobFinishes"):
        return status.get("jobDeploymentStatus") in ("Complete", "Failed")
    true = {
        condition["type"]
        for condition in status.get("conditions", ())
        if condition["status"] == "True"
    }
    return not true.isdisjoint(_FINISHED.get(kind, ()))


def _ray(spec: Manifest) -> Templates:
    if "headGroupSpec" in spec:
        yield spec["headGroupSpec"]["template"], 1
    for group in spec.get("workerGroupSpecs", ()):
        workers = max(group.get("replicas", 0), group.get("minReplicas", 0))
        workers = min(workers, group.get("maxReplicas", workers)) * group.get("numOfHosts", 1)
        yield group["template"], 0 if group.get("suspend") else workers


def _rolled_out(manifest: Manifest, replicas: int) -> bool:
    generation, status = manifest["metadata"]["generation"], manifest.get("status", {})
    return generation <= 1 or (
        status.get("observedGeneration") == generation
        and status.get("updatedReplicas", 0) == status.get("replicas", 0) == replicas
    )


def _portion(wanted: int | str, of: int) -> int:
    if isinstance(wanted, int):
        return wanted
    return math.ceil(int(wanted.removesuffix("%")) * of / 100)


def _indexes(text: str) -> int:
    """Count the indexes of a text such as `1,3-5`."""
    count = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count
