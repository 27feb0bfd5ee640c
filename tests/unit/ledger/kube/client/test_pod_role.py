"""The role of a pod, as the API server answers reads and writes of its label."""

from typing import Any

import msgspec
import pytest

from ledger.kube.api.cluster_errors import Malformed, NotFound
from ledger.kube.client import pod_role
from ledger.kube.client.pod_role import LABEL, REVIEWER, PodRole


class Answers:
    """An API client that returns one body, or raises NotFound without a body."""

    def __init__(self, body: bytes | None) -> None:
        self._body = body

    async def request(self, _: str, path: str, **__: Any) -> bytes:
        if self._body is None:
            raise NotFound(path)
        return self._body


def client(body: bytes | None) -> Any:
    return Answers(body)


def pod(ready: str, **metadata: Any) -> bytes:
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]
    return msgspec.json.encode({"metadata": metadata, "status": {"conditions": conditions}})


@pytest.mark.parametrize(
    ("body", "role"),
    [
        (pod("True", labels={LABEL: REVIEWER}), PodRole(labelled=True, serving=True)),
        (pod("True", labels={LABEL: "other"}), PodRole(labelled=False, serving=True)),
        (pod("False", labels={LABEL: REVIEWER}), PodRole(labelled=True, serving=False)),
        (pod("True", deletionTimestamp="2026-01-01T00:00:00Z"), PodRole(False, False)),
        (b'{"metadata": {}}', PodRole(labelled=False, serving=False)),
    ],
    ids=["reviewer", "another role", "not ready", "being deleted", "new"],
)
async def test_a_pod_serves_while_it_is_ready_and_not_deleted(body: bytes, role: PodRole) -> None:
    assert await pod_role.read(client(body), "own", "a") == role


async def test_the_label_of_a_pod_that_is_gone_needs_no_removal() -> None:
    assert await pod_role.take(client(None), "own", "a") is None


async def test_an_unreadable_pod_is_an_error_of_the_cluster() -> None:
    with pytest.raises(Malformed, match="pods/a does not decode"):
        await pod_role.read(client(b"[]"), "own", "a")
