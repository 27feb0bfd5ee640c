"""Pod events: what `kubectl describe pod` shows under Events."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from ledger.kube.api.api_resources import EVENTS, PODS
from ledger.kube.api.cluster_ports import PodEvent
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.quota_and_gate_writes import send

INSTANCE_MAX: Final = 128
"""Longest name of an instance that the API server takes."""


class EventReporter(msgspec.Struct, frozen=True):
    """Who reports events, as Kubernetes wants it named, and the labels of its events."""

    controller: str
    instance: str
    labels: dict[str, str] = {}


SERVICE: Final = EventReporter("gpuledger.io/gpuledger", "gpuledger.io/gpuledger")


def agent_of(node: str) -> EventReporter:
    """Return the agent of a node; policies of the cluster look at its events by their label."""
    labels = {"gpuledger.io/reporter": "agent"}
    return EventReporter("gpuledger.io/agent", node[:INSTANCE_MAX], labels)


NOTE_BYTES_MAX: Final = 1_024
"""Longest note that the API server takes."""

_CUT: Final = "…"


async def create(client: ApiClient, event: PodEvent, reporter: EventReporter = SERVICE) -> None:
    """Report an event of a pod. Raises ClusterError.

    The name is left to the API server: two events are never one, whoever tells them.
    """
    body = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "generateName": f"{event.name}-",
            "namespace": event.namespace,
            "labels": reporter.labels,
        },
        "regarding": {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "namespace": event.namespace,
            "name": event.name,
            "uid": event.uid,
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "action": event.action,
        "note": shortened(event.note),
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
    }
    await send(client, "POST", EVENTS.collection(event.namespace), body)


def shortened(note: str) -> str:
    """Return a note as long as it may be."""
    text = note.encode()
    if len(text) <= NOTE_BYTES_MAX:
        return note
    return text[: NOTE_BYTES_MAX - len(_CUT.encode())].decode(errors="ignore") + _CUT
