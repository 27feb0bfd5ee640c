"""The trips of requests through the files do not become longer, and counting them is exact."""

import pytest

from tests.bench.trips import profiled_trips
from tests.bench.trips.call_profile import Entry, Figures, Profile, figures, pairs
from tests.bench.trips.trip_report import TITLES

BOUNDS = {
    "review": 66,
    "mutate": 14,
    "select": 50,
    "filter": 42,
    "prioritize": 17,
    "bind": 81,
    "release": 54,
    "project": 29,
}
"""The most moves between files that a trip may take; lower a bound when its trip is shorter."""

REMEDY = (
    "`python -m tests.bench.trips --way {trip}` prints the files in order and the pairs with the"
    " most moves between them. Read a value once and pass it on, make a property that computes"
    " nothing an attribute, or move a fragment to its only caller. Raise the bound in"
    " tests/unit/bench/test_trips.py only with the reason in the commit message"
)


@pytest.fixture(scope="module")
def profiled() -> dict[str, list[Entry]]:
    return profiled_trips.profiled()


def test_every_trip_has_a_title_and_a_bound(profiled: dict[str, list[Entry]]) -> None:
    assert list(profiled) == list(TITLES) == list(BOUNDS)


@pytest.mark.parametrize("trip", BOUNDS)
def test_trip_stays_within_its_bound(profiled: dict[str, list[Entry]], trip: str) -> None:
    moves = figures(profiled[trip]).moves
    assert moves <= BOUNDS[trip], (
        f"the trip {trip} takes {moves} moves between files, {BOUNDS[trip]} are allowed:"
        f" {REMEDY.format(trip=trip)}"
    )


def test_profile_is_the_same_in_each_run(profiled: dict[str, list[Entry]]) -> None:
    assert profiled_trips.profiled() == profiled


@pytest.mark.parametrize("trip", ["review", "bind", "release"])
@pytest.mark.parametrize("package", ["ledger/core/", "ledger/log/"])
def test_trip_that_writes_leads_through_the_ledger(
    profiled: dict[str, list[Entry]], trip: str, package: str
) -> None:
    assert any(entry.file.startswith(package) for entry in profiled[trip])


def test_figures_count_the_first_call_and_each_change_of_file() -> None:
    calls = [Entry("a.py", "f"), Entry("b.py", "g"), Entry("b.py", "h"), Entry("a.py", "f")]
    assert figures(calls) == Figures(files=2, functions=3, calls=4, moves=3, back=1)
    assert pairs(calls) == {("a.py", "b.py"): 1, ("b.py", "a.py"): 1}


def test_profile_leaves_out_tests_and_libraries() -> None:
    with Profile() as profile:
        figures([Entry("a.py", "f")])
    assert profile.entries == []
