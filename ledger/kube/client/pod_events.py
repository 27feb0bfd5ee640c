"""Pod events: the events that `kubectl describe pod` shows."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from ledger.kube.api.api_resources import EVENTS, PODS
from ledger.kube.api.cluster_ports import PodEvent
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.quota_and_gate_writes import send

INSTANCE_MAX: Final = 128
"""Maximum length of an instance's name at the API server."""


class EventReporter(msgspec.Struct, frozen=True):
    """The reporting component of events, with Kubernetes' fields, and the labels of its events."""

    controller: str
    instance: str
    labels: dict[str, str] = {}


SERVICE: Final = EventReporter("gpuledger.io/gpuledger", "gpuledger.io/gpuledger")


def agent_of(node: str) -> EventReporter:
    """Return the reporter of a node's agent; admission policies select its events by the label."""
    labels = {"gpuledger.io/reporter": "agent"}
    return EventReporter("gpuledger.io/agent", node[:INSTANCE_MAX], labels)


NOTE_BYTES_MAX: Final = 1_024
"""Maximum length of a note at the API server."""

_CUT: Final = "…"


async def create(client: ApiClient, event: PodEvent, reporter: EventReporter = SERVICE) -> None:
    """Report an event of a pod. Raises ClusterError.

    The API server generates the name, so two events never have the same name.
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
    """Return a note, cut to the maximum length."""
    text = note.encode()
    if len(text) <= NOTE_BYTES_MAX:
        return note
    return text[: NOTE_BYTES_MAX - len(_CUT.encode())].decode(errors="ignore") + _CUT
