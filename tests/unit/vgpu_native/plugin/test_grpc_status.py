"""What the kubelet is told of ids that it should not have sent."""

import pytest

from vgpu_native.plugin.grpc_status import shown_ids


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        ((), ""),
        (("GPU-a-0", "GPU-b-1"), "GPU-a-0, GPU-b-1"),
        ([str(number) for number in range(8)], "0, 1, 2, 3, 4, 5, 6, 7"),
        ([str(number) for number in range(10_000)], "0, 1, 2, 3, 4, 5, 6, 7, …"),
        (["x" * 64], "x" * 64),
        (["x" * 300_000, "y"], "x" * 64 + "…, y"),
    ],
)
def test_ids_are_named_in_a_line_that_has_an_end(ids: list[str], shown: str) -> None:
    assert shown_ids(ids) == shown
