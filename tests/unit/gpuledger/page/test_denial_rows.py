"""Rows of denials: equal ones are one row with a count, others are rows of their own."""

from msgspec import structs

from gpuledger.page.contents.denial_rows import denial_rows
from ledger.core.model.denials import Denial, Reason, Shortage
from projections.queries.denial_history import PastDenial

SHORT = Shortage("universe/all", "requests.nvidia.com/gpu", 2, 7, 8, 1, 1, message="new-9 needs 2")


def denied(number: int, **other: object) -> PastDenial:
    denial = Denial(next(iter(Reason)), f"pods/new-{number} needs 2", True, shortages=(SHORT,))
    time = f"2026-01-01T00:00:{number:02}.000000Z"
    key, demand = f"pods/new-{number}", {"nvidia.com/gpu": 2}
    past = PastDenial(number, 1, time, "c1", "red", key, "u", "hpa", demand, "", denial)
    return structs.replace(past, **other)


def test_equal_denials_are_one_row_with_count_and_times() -> None:
    rows, count = denial_rows([denied(number) for number in (9, 8, 7)], 10)
    assert count == 3
    assert [(row.key, row.times, row.objects) for row in rows] == [("pods/new-9", 3, 3)]
    assert (rows[0].first, rows[0].time) == ("2026-01-01T00:00:07Z", "2026-01-01T00:00:09Z")


def test_denials_of_other_causes_or_namespaces_are_other_rows() -> None:
    fuller = structs.replace(SHORT, used=8, free=0, short=2)
    others = [
        denied(8, denial=structs.replace(denied(8).denial, shortages=(fuller,))),
        denied(7, actor="alice"),
        denied(6, key="jobs.batch/new"),
        denied(5, amounts={"nvidia.com/gpu": 3}),
        denied(4, namespace="blue"),
        denied(3, cluster="c2"),
    ]
    rows, _ = denial_rows([denied(9), *others], 10)
    assert [row.times for row in rows] == [1] * 7


def test_a_page_ends_before_the_first_row_too_many() -> None:
    denials = [denied(9), denied(8, actor="a"), denied(7), denied(6, actor="b"), denied(5)]
    rows, count = denial_rows(denials, 2)
    assert count == 3
    assert [row.times for row in rows] == [2, 1]
