"""Node leftovers: annotations and labels of this product on nodes, and its agents' registrations.

The cards that our agent has announced in HAMi's annotations are removed, because no device plugin
offers them any more. Announcements of HAMi's own device plugin stay.
"""

import functools
from typing import Final

from gpuledger.removal.pod_leftovers import marks_of, names_in
from gpuledger.removal.removal_tasks import RemovalTask, RemovedThing, merging
from ledger.core.model.cards import OWN
from ledger.kube.api.api_resources import NODES
from ledger.kube.api.objects import ApiNode, NodeList
from ledger.kube.client.api_client import ApiClient
from ledger.kube.hami import annotation_keys
from ledger.kube.watch import list_watch
from ledger.kube.watch.list_watch import CollectionSource

_NOTES: Final = (
    annotation_keys.KEEPER,
    annotation_keys.MEMORY_SCALING,
    annotation_keys.CORES_SCALING,
    annotation_keys.ROOM_FOUND,
)
_LABELS: Final = ("gpuledger.io/agent",)
"""The annotations and the label by which nodes are chosen and set up."""

_REGISTRATION: Final = (
    annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register,
    annotation_keys.HANDSHAKE,
    annotation_keys.PAIR_SCORES,
    annotation_keys.LOCK,
)
"""Annotations of a node that the agent or the extender writes if the agent keeps its cards."""


async def find_nodes(client: ApiClient) -> list[RemovalTask]:
    """Return the marked nodes. Raises ClusterError."""
    source = CollectionSource(
        NODES.collection(), ApiNode, page_type=NodeList, keep=functools.partial(_task, client)
    )
    listed = await list_watch.list_all(client, source)
    return [task for task in listed.objects if task is not None]


def _task(client: ApiClient, node: ApiNode) -> RemovalTask | None:
    meta = node.metadata
    is_ours = (meta.annotations or {}).get(annotation_keys.KEEPER) == OWN
    marks = marks_of(meta, (*_NOTES, *(_REGISTRATION if is_ours else ())), _LABELS)
    if not marks:
        return None
    thing = RemovedThing("node", meta.name, f"remove {', '.join(names_in(marks))}")
    path = NODES.object("", meta.name)
    return RemovalTask(thing, merging(client, path, {"metadata": marks}))
