"""The overhead of pods is computed from readings, and counts against their limits."""

from pathlib import Path

from structlog.testing import capture_logs

from ledger.core.model.cards import Share
from vgpu_native.agent.bypass_detection import DriverUsage
from vgpu_native.agent.limits_page_writer import LimitsWriter
from vgpu_native.agent.memory_overhead import (
    MemoryOverhead,
    count_against_limits,
    overhead_by_page,
)
from vgpu_native.shared import limits_page
from vgpu_native.shared.container_limits import limits_of

WHERE = ("u", "c")


def test_overhead_continues_when_a_card_reports_nothing() -> None:
    memory, much = MemoryOverhead(), [DriverUsage("u", "c", 16, 1)]
    for _ in range(2):
        memory.update({WHERE: 5}, much)
    assert memory.update({WHERE: 5}, [], {"c"}) == {WHERE: 11}
    assert memory.update({WHERE: 5}, much) == {WHERE: 11}
    assert memory.update({}, [], {"c"}) == {}, "the pod is gone"


def test_overhead_is_that_of_pods_with_one_container(tmp_path: Path) -> None:
    pages = [("u", tmp_path / "1"), ("v", tmp_path / "2"), ("v", tmp_path / "3")]
    assert overhead_by_page({WHERE: 7, ("v", "c"): 8}, pages) == {str(tmp_path / "1"): {"c": 7}}


def test_overhead_is_written_to_the_other_pages_when_one_is_missing(tmp_path: Path) -> None:
    page = tmp_path / "limits"
    limits_page.write(page, limits_of((Share("GPU-a", 100, 30),)))
    limits = LimitsWriter()
    with capture_logs() as lines:
        count_against_limits(limits, {str(tmp_path / "none"): {}, str(page): {"GPU-a": 5}})
    assert [line["event"] for line in lines] == ["overhead_not_written"]
    assert limits_page.read(page).devices[0].overhead == 5
    limits.close()
