"""Kinds whose operators do not run here: their definitions, without schemas, and who plays them.

An operator is played by its service account: what it creates is stored as its own.
"""

from typing import Final, NamedTuple

from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.objects.rights import READ

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
USER_DECLARED: Final = "rollouts.argoproj.io"


class OperatedKind(NamedTuple):
    """A kind, its operator, the path of the number that its scale subresource changes.

    `older` is a version that is served besides.
    """

    group: str
    version: str
    resource: str
    kind: str
    operator: str
    scale: str = ""
    older: str = ""

    @property
    def name(self) -> str:
        """Return the name of the definition."""
        return f"{self.resource}.{self.group}"


_TRAINING: Final = "kubeflow:training-operator"
_RAY: Final = "kuberay-system:kuberay-operator"
_REPLICAS: Final = ".spec.replicas"

KINDS: Final = [
    OperatedKind(
        "jobset.x-k8s.io",
        "v1alpha2",
        "jobsets",
        "JobSet",
        "jobset-system:jobset-controller-manager",
    ),
    OperatedKind(
        "leaderworkerset.x-k8s.io",
        "v1",
        "leaderworkersets",
        "LeaderWorkerSet",
        "lws-system:lws-controller-manager",
        _REPLICAS,
    ),
    OperatedKind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob", "mpi-operator:mpi-operator"),
    OperatedKind(
        "kubeflow.org",
        "v1",
        "pytorchjobs",
        "PyTorchJob",
        _TRAINING,
        ".spec.pytorchReplicaSpecs.Worker.replicas",
    ),
    OperatedKind("kubeflow.org", "v1", "tfjobs", "TFJob", _TRAINING),
    OperatedKind(
        "trainer.kubeflow.org",
        "v1alpha1",
        "trainjobs",
        "TrainJob",
        "kubeflow-system:kubeflow-trainer-controller-manager",
    ),
    OperatedKind("ray.io", "v1", "rayclusters", "RayCluster", _RAY, older="v1alpha1"),
    OperatedKind("ray.io", "v1", "rayjobs", "RayJob", _RAY),
    OperatedKind("ray.io", "v1", "rayservices", "RayService", _RAY),
    OperatedKind(
        "argoproj.io", "v1alpha1", "rollouts", "Rollout", "argo-rollouts:argo-rollouts", _REPLICAS
    ),
]

RIGHTS_OF_DECLARED_KINDS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("argoproj.io", "rollouts", ""): READ
}
"""Further rights of the service for the kind that a user describes."""

OPERATORS: Final = sorted({f"system:serviceaccount:{kind.operator}" for kind in KINDS})


def operator_of(kind: str) -> str:
    """Return the user that the operator of a kind is."""
    [operator] = [played.operator for played in KINDS if played.kind == kind]
    return f"system:serviceaccount:{operator}"


def definition(played: OperatedKind) -> Manifest:
    """Return a definition that lets any object be."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    subresources: Manifest = {"status": {}}
    if played.scale:
        subresources["scale"] = {
            "specReplicasPath": played.scale,
            "statusReplicasPath": ".status.replicas",
        }
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == played.version,
            "schema": {"openAPIV3Schema": schema},
            "subresources": subresources,
        }
        for version in filter(None, (played.version, played.older))
    ]
    names = {"plural": played.resource, "singular": played.kind.lower(), "kind": played.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": played.name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
        },
        "spec": {
            "group": played.group,
            "scope": "Namespaced",
            "names": names,
            "versions": versions,
        },
    }


async def define(cluster: Cluster) -> None:
    """Define all kinds that are played."""
    for played in KINDS:
        await cluster.must("POST", DEFINITIONS, definition(played))
