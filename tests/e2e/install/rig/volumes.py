"""Volumes of a rig: a default StorageClass whose volumes are folders that every node can mount.

As on most clouds, a volume is made when the scheduler has chosen a node for the first pod that
mounts the claim. They are `local` volumes, to which a kubelet applies `fsGroup` as to a disk. A new
folder belongs to root, as a new disk does.
"""

import shutil
from pathlib import Path
from typing import Final

from tests.e2e.harness.cluster import Cluster, Manifest

CLASS: Final = "rig"
PROVISIONER: Final = "rig.gpuledger.io/folders"
CHOSEN_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation with which the scheduler asks for a volume."""

_VOLUMES: Final = "/api/v1/persistentvolumes"


def storage_class() -> Manifest:
    """Return the default StorageClass."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": default},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


async def provision(cluster: Cluster, folder: Path) -> None:
    """Make the volumes that claims wait for; remove those whose claims are gone."""
    claims = await cluster.items("/api/v1/persistentvolumeclaims")
    volumes = await cluster.items(_VOLUMES)
    made = {volume["metadata"]["name"] for volume in volumes}
    for claim in claims:
        if _waits(claim) and _name(claim) not in made:
            place = folder / _name(claim)
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
            await cluster.must("POST", _VOLUMES, volume_of(claim, place))
    for volume in volumes:
        released = volume.get("status", {}).get("phase") == "Released"
        if released and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
            name = volume["metadata"]["name"]
            await cluster.ask("DELETE", f"{_VOLUMES}/{name}")
            shutil.rmtree(folder / name, ignore_errors=True)


def _waits(claim: Manifest) -> bool:
    """Return whether a claim of the class has a consumer and is not being deleted."""
    metadata = claim["metadata"]
    chosen = CHOSEN_NODE in metadata.get("annotations", {})
    of_class = claim["spec"].get("storageClassName") == CLASS
    return of_class and chosen and "deletionTimestamp" not in metadata


def volume_of(claim: Manifest, place: Path) -> Manifest:
    """Return the volume of a claim."""
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": _name(claim),
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{key: metadata[key] for key in ("namespace", "name", "uid")},
            },
            "local": {"path": str(place)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [linux]}]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
        },
    }


def _name(claim: Manifest) -> str:
    return f"pvc-{claim['metadata']['uid']}"
