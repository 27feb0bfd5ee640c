"""The oracle of the cluster counts by the rules of the pages for each chain of owners."""

from typing import Any

import pytest
from support.oracles.cluster_oracle import CARDS, ClusterLabels, Manifest, Snapshot, lines_of

LINE = f"limits.{CARDS}"
POD_SPEC: Manifest = {"containers": [{"name": "main", "resources": {"limits": {CARDS: "1"}}}]}
OF_ROOT, OF_PODS = {"group": "root"}, {"group": "pods"}


def named(kind: str, name: str, labels: dict[str, str], **more: Any) -> Manifest:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": labels}
    return {"kind": kind, "metadata": metadata | more.pop("metadata", {}), **more}


def root(kind: str, replicas: int) -> Manifest:
    template = {"metadata": {"labels": OF_PODS}, "spec": POD_SPEC}
    spec = {"template": template} | ({} if kind == "DaemonSet" else {"replicas": replicas})
    return named(kind, "web", OF_ROOT, spec=spec)


def pod(number: int) -> Manifest:
    owner = {"kind": "any", "name": "web", "uid": "uid-web", "controller": True}
    return named("Pod", f"p{number}", OF_PODS, metadata={"ownerReferences": [owner]}, spec=POD_SPEC)


def snapshot(kind: str, **policy: Any) -> Snapshot:
    """Return a workload whose labels are other ones than those of its two pods."""
    return Snapshot(
        ClusterLabels("east"),
        namespaces=[{"metadata": {"name": "team"}}],
        pods=[pod(1), pod(2)],
        workloads=[root(kind, 2)],
        quotas=[],
        universe=[
            {
                "metadata": {"name": labels["group"]},
                "spec": {"hard": {LINE: "9"}, "objectSelector": {"matchLabels": labels}},
            }
            for labels in (OF_ROOT, OF_PODS)
        ],
        policies=[{"metadata": {"name": "p"}, "spec": policy}],
    )


@pytest.mark.parametrize(
    ("kind", "policy", "by_root", "by_pods"),
    [
        ("ReplicaSet", {}, 2, 0),
        ("ReplicaSet", {"podsOnly": True}, 0, 2),
        ("ReplicaSet", {"onExceeded": "pending"}, 0, 2),
        ("DaemonSet", {}, 0, 2),
    ],
)
def test_pods_count_by_the_labels_of_their_root_only_where_that_is_charged(
    kind: str, policy: dict[str, Any], by_root: int, by_pods: int
) -> None:
    lines = lines_of(snapshot(kind, **policy))
    assert lines == {("", "root", LINE): by_root, ("", "pods", LINE): by_pods}
