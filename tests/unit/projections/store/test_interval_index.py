"""An interval is found from every position in it, by looking in few places."""

from hypothesis import given
from hypothesis import strategies as st

from projections.store.interval_index import fork, forks_around

POSITIONS = st.integers(1, 2**40)


@given(POSITIONS, st.integers(1, 2**40), st.data())
def test_an_interval_is_filed_where_each_of_its_positions_looks(
    opened: int, length: int, data: st.DataObject
) -> None:
    closed = opened + length
    position = data.draw(st.integers(opened, closed - 1))
    assert fork(opened, closed) in forks_around(position, closed)


@given(POSITIONS)
def test_few_places_are_looked_at(position: int) -> None:
    assert len(forks_around(position, position)) <= position.bit_length() + 1


def test_short_intervals_of_another_time_are_not_looked_at() -> None:
    filed = {fork(position, position + 2) for position in range(1_000, 2_000)}
    assert len(filed & set(forks_around(500_000, 1_000_000))) <= 2
