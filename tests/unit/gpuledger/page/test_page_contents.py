"""Contents of pages: requests that fit, estimates of a wait, charts and texts."""

import pytest

from gpuledger.page.contents.amount_lists import RESOURCES_MAX, amounts_text
from gpuledger.page.contents.duration_text import duration_text
from gpuledger.page.contents.fitting_requests import FittingRequest, fitting_requests
from gpuledger.page.contents.step_chart import HEIGHT, TICK_TOP, WIDTH, step_chart
from gpuledger.page.contents.wait_estimate import wait_estimate
from gpuledger.page.quantity_texts import second_text, time_text, with_breaks
from projections.queries.moments import LAST
from projections.queries.quota_usage import Usage
from projections.queries.tenants.card_room import CardRoom, FreeShare
from projections.queries.tenants.past_lifetimes import PastLifetimes
from projections.queries.timeline.usage_steps import LineStretch, UsagePoint

KINDS = ("event", "limit-change")
HOUR = 3_600_000_000
EMPTY = FreeShare(16_000, 100, 10, whole=True)
HALF = FreeShare(8_000, 50, 9, whole=False)


def line(resource: str, free: int) -> Usage:
    return Usage("c1", "red", "q", resource, free, 0, 0, 0, free)


def fitting(shares: dict[FreeShare, int], *lines: Usage, vendor: str = "nvidia") -> FittingRequest:
    room = CardRoom(vendor, "NVIDIA V100", sum(shares.values()), 0, 0, shares)
    (fits,) = fitting_requests([room], list(lines))
    return fits


def test_without_quotas_the_cards_alone_decide() -> None:
    fits = fitting({EMPTY: 2, HALF: 3})
    assert (fits.memory, fits.cores, fits.shared, fits.whole) == (16_000, 100, 2, 2)
    assert fits.limits == []


@pytest.mark.parametrize(
    ("resource", "free", "memory", "shared", "whole"),
    [
        ("requests.nvidia.com/gpu", 1, 16_000, 1, 1),
        ("limits.nvidia.com/gpumem", 4_000, 4_000, 1, 0),
        ("limits.nvidia.com/gpumem", 16_000, 16_000, 1, 1),
        ("limits.nvidia.com/gpucores", 150, 16_000, 2, 1),
        ("limits.v100.nvidia.com/gpu", 1, 16_000, 1, 1),
        ("limits.nvidia.com/gpumem", -5, 0, 0, 0),
        ("requests.nvidia.com/gpu", 0, 0, 0, 0),
    ],
)
def test_a_quota_bounds_what_the_cards_would_allow(
    resource: str, free: int, memory: int, shared: int, whole: int
) -> None:
    fits = fitting({EMPTY: 2}, line(resource, free))
    assert (fits.memory, fits.shared, fits.whole) == (memory, shared, whole)
    assert fits.limits == [f"q ({resource})"]


def test_a_quota_of_another_type_of_card_does_not_count() -> None:
    fits = fitting({EMPTY: 2}, line("limits.a100.nvidia.com/gpu", 0), line("limits.cpu", 0))
    assert (fits.shared, fits.limits) == (2, [])


def test_the_tightest_quota_counts_and_slots_bound_the_pods() -> None:
    few = FreeShare(16_000, 100, 1, whole=True)
    memory = "limits.nvidia.com/gpumem"
    fits = fitting({few: 1}, line(memory, 9_000), line(memory, 4_000))
    assert (fits.memory, fits.shared) == (4_000, 1)


def test_full_cards_fit_nothing_and_other_vendors_are_not_computed() -> None:
    full = FreeShare(16_000, 0, 5, whole=False)
    fits = fitting({full: 1})
    assert (fits.memory, fits.cores, fits.shared, fits.whole) == (0, 0, 0, 0)
    assert "huawei-x" in fitting({EMPTY: 1}, vendor="huawei-x").problem


def test_an_estimate_is_one_mean_interval_for_each_place() -> None:
    estimate = wait_estimate(PastLifetimes(6, HOUR, 10 * HOUR), 16 * HOUR)
    assert estimate.at(3) == "about 3 h"
    assert "6 holders of this namespace ended in the last 6 h, one in 1 h" in estimate.basis
    assert "at most 1 h" in estimate.basis


def test_few_ended_holders_give_no_estimate_but_a_reason() -> None:
    estimate = wait_estimate(PastLifetimes(4, HOUR, 10 * HOUR), 16 * HOUR)
    assert estimate.at(1) == "no estimate"
    assert "4 holders" in estimate.basis


def test_a_chart_has_steps_marks_within_and_the_highest_amount() -> None:
    points = [
        UsagePoint(1, 100, 8, 2, 0),
        UsagePoint(2, 150, 8, 10, 1),
        UsagePoint(3, 200, 4, 0, 0),
    ]
    chart = step_chart(
        [LineStretch(points, was_open=True, closed=LAST)],
        100,
        200,
        [(150, "event", "e"), (99, "event", "before")],
    )
    assert chart.top == 10
    assert chart.limit == f"M0 40H{WIDTH}V120H{WIDTH}"
    assert chart.used == f"M0 160H500V0H{WIDTH}V200H{WIDTH}V{HEIGHT}H0Z"
    assert [(tick.x, tick.title) for tick in chart.ticks] == [(500, "e")]


def test_a_chart_has_a_gap_where_the_line_was_not_open() -> None:
    stretches = [
        LineStretch([UsagePoint(1, 100, 8, 2, 0)], was_open=True, closed=140),
        LineStretch([UsagePoint(3, 180, 4, 0, 0)], was_open=False, closed=LAST),
    ]
    chart = step_chart(stretches, 100, 200, [])
    assert chart.limit == f"M0 0H400M800 100H{WIDTH}"
    assert chart.used == f"M0 150H400V200H0ZM800 200H{WIDTH}V200H800Z"


def test_many_events_are_few_ticks_below_the_areas_of_a_chart() -> None:
    line, second = (
        [LineStretch([UsagePoint(1, HOUR, 8, 2, 0)], was_open=True, closed=LAST)],
        1_000_000,
    )
    marks = [(HOUR + n * second, kind, f"{kind} {n}") for n in range(1_000) for kind in KINDS]
    ticks = step_chart(line, HOUR, HOUR + 1_000 * second, marks).ticks
    assert [sum(tick.kind == kind for tick in ticks) for kind in KINDS] == [100, 100]
    assert all(HEIGHT < TICK_TOP < tick.bottom <= HEIGHT + 30 for tick in ticks)
    assert ticks[0].title == "10 events, 1970-01-01T01:00:00Z to 1970-01-01T01:00:09Z"
    assert ticks[-1].title.startswith("10 changes of the limit")
    (alone,) = step_chart(line, HOUR, HOUR + 1_000 * second, marks[:1]).ticks
    assert alone.bottom < ticks[0].bottom


def test_a_chart_of_one_moment_stays_within_its_place() -> None:
    chart = step_chart(
        [LineStretch([UsagePoint(1, 100, 0, 0, 0)], was_open=True, closed=LAST)], 100, 100, []
    )
    assert chart.used == f"M0 200H{WIDTH}V{HEIGHT}H0Z"


def test_amounts_and_durations_as_text() -> None:
    assert amounts_text({}) == "nothing"
    text = amounts_text({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2_048, "x.io/y": 3})
    assert text == "1 GPU, 2 GiB, 3 x.io/y"
    many = amounts_text({f"x.io/{n}": 1 for n in range(RESOURCES_MAX + 2)})
    assert many.endswith("2 more resources")
    one_more = amounts_text({f"x.io/{n}": 1 for n in range(RESOURCES_MAX + 1)})
    assert one_more.endswith("1 more resource")
    texts = [duration_text(HOUR * n // 2) for n in (0, 1, 2, 3, 49)]
    assert texts == ["0 s", "30 min", "1 h", "1 h 30 min", "1 d"]


def test_amounts_of_all_cards_come_before_those_of_types() -> None:
    """The first are those of most quotas; a claim may have amounts of many types."""
    names = {"gpu": 1, "gpucores": 10, "gpumem": 2_048}
    types = [f"{card_type}.nvidia.com" for card_type in ("a100", "h100")]
    typed = {f"{domain}/{name}": amount for domain in types for name, amount in names.items()}
    text = amounts_text(typed | {f"nvidia.com/{name}": amount for name, amount in names.items()})
    assert text == (
        "1 GPU, 10 % of a card, 2 GiB, 1 GPU (a100.nvidia.com/gpu),"
        " 10 % of a card (a100.nvidia.com/gpucores), 2 GiB (a100.nvidia.com/gpumem),"
        " 1 GPU (h100.nvidia.com/gpu), 10 % of a card (h100.nvidia.com/gpucores), 1 more resource"
    )


def test_times_are_rfc_3339_in_utc_to_the_second() -> None:
    assert time_text(1_767_225_600_123_456) == "2026-01-01T00:00:00Z"
    assert time_text(0) == "never"
    assert second_text("2026-01-01T00:00:00.999999Z") == "2026-01-01T00:00:00Z"
    assert second_text("2026-01-01T01:00:00+01:00") == "2026-01-01T00:00:00Z"
    assert second_text("") == ""


def test_a_name_breaks_after_slash_and_dot_and_is_escaped() -> None:
    assert with_breaks("a.io/gpu") == "a.<wbr>io/<wbr>gpu"
    assert with_breaks("<b>/") == "&lt;b&gt;/"
