"""Labels that depend on the node of a pod are never recorded."""

import pytest

from ledger.kube.requests.recorded_labels import is_recorded, labels_of


@pytest.mark.parametrize(
    "label",
    [
        "batch.kubernetes.io/job-completion-index",
        "hami.io/vgpu-node",
        "topology.kubernetes.io/zone",
    ],
)
def test_labels_of_a_pods_location_are_not_recorded(label: str) -> None:
    assert not is_recorded(label)
    assert is_recorded(f"example.com/{label.partition('/')[2]}")


def test_recorded_labels_are_sorted_and_leave_out_invalid_keys() -> None:
    recorded = labels_of({"tier": 1, "!read": 3, "team": 2, "hami.io/vgpu-node": 4})
    assert (recorded.keys, recorded.read) == (("team", "tier"), 3)
