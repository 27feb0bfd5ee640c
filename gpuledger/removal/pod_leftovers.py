"""Pod leftovers: scheduling gates and an annotation of this product on pods.

Annotations of `hami.io/` stay: HAMi's scheduler and device plugin, and a new installation, read
from them which cards a running pod has. All labels stay, because controllers of tenants may select
pods by any of them: without it, a pod would run on beside a new one.
"""

import functools
from collections.abc import Collection
from typing import Final

from gpuledger.removal.removal_tasks import RemovalTask, RemovedThing, Undo, merging
from ledger.kube.api.api_resources import PODS
from ledger.kube.api.objects import ObjectMeta, Pod, PodList
from ledger.kube.api.pod_gates import GATE, is_gated
from ledger.kube.client import quota_and_gate_writes
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import list_watch
from ledger.kube.watch.list_watch import CollectionSource

_STAMP: Final = "gpuledger.io/stamp"
"""The annotation that earlier versions wrote into new pods."""

POD: Final = "pod"
"""The kind of these things."""


async def count_gated(client: ApiClient) -> int:
    """Return the number of pods that wait behind the gate. Raises ClusterError."""
    source = CollectionSource(
        PODS.collection(), Pod, page_type=PodList, keep=lambda pod: is_gated(pod.spec)
    )
    return sum((await list_watch.list_all(client, source)).objects)


async def find_pods(client: ApiClient) -> list[RemovalTask]:
    """Return the gated and the marked pods of all namespaces. Raises ClusterError."""
    source = CollectionSource(
        PODS.collection(), Pod, page_type=PodList, keep=functools.partial(_tasks, client)
    )
    listed = await list_watch.list_all(client, source)
    return [task for tasks in listed.objects for task in tasks]


def _tasks(client: ApiClient, pod: Pod) -> list[RemovalTask]:
    meta = pod.metadata
    tasks = []
    if is_gated(pod.spec):
        thing = RemovedThing(POD, meta.full_name(), f"remove the scheduling gate {GATE}")
        tasks.append(RemovalTask(thing, _opening(client, meta)))
    marks = marks_of(meta, (_STAMP,), ())
    if marks:
        path = PODS.object(meta.namespace, meta.name)
        thing = RemovedThing(POD, meta.full_name(), f"remove {', '.join(names_in(marks))}")
        tasks.append(RemovalTask(thing, merging(client, path, {"metadata": marks})))
    return tasks


def _opening(client: ApiClient, meta: ObjectMeta) -> Undo:
    async def undo() -> None:
        # Of any version, because a tenant may change the pod all the time.
        await quota_and_gate_writes.remove_gate(client, meta.namespace, meta.name, GATE)

    return undo


def marks_of(
    meta: ObjectMeta, notes: Collection[str], labels: Collection[str]
) -> dict[str, dict[str, None]]:
    """Return these annotations and labels as null, by `annotations` and `labels`, if it has any."""
    marks: dict[str, dict[str, None]] = {
        "annotations": {key: None for key in meta.annotations or {} if key in notes},
        "labels": {key: None for key in meta.labels or {} if key in labels},
    }
    return {field: keys for field, keys in marks.items() if keys}


def names_in(marks: dict[str, dict[str, None]]) -> list[str]:
    """Return the keys of marks."""
    return sorted({key for keys in marks.values() for key in keys})
