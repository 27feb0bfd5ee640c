"""The text of device ids in a status is bounded."""

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
def test_the_text_of_ids_is_bounded(ids: list[str], shown: str) -> None:
    assert shown_ids(ids) == shown
