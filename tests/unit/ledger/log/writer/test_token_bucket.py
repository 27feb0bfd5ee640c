"""How many bytes each of many may add."""

from ledger.log.writer.token_bucket import TokenBuckets


def test_some_may_be_added_at_once_and_so_many_per_second_after_that() -> None:
    rates = TokenBuckets(burst=100, rate=10, keys_max=10)
    assert rates.wait("a", 0.0) == 0.0
    rates.take("a", 150, 0.0)
    assert rates.wait("a", 0.0) == 5.0
    assert rates.wait("b", 0.0) == 0.0
    assert rates.wait("a", 4.0) == 1.0
    assert rates.wait("a", 5.0) == 0.0
    rates.take("a", 20, 5.0)
    assert rates.wait("a", 5.0) == 2.0
    assert rates.wait("a", 1000.0) == 0.0


def test_the_number_of_buckets_is_bounded_and_those_that_lack_most_stay() -> None:
    rates = TokenBuckets(burst=1, rate=1, keys_max=8)
    for number in range(100):
        rates.take(f"k{number}", number + 1, 0.0)
        assert len(rates) <= 8
    assert rates.wait("k99", 0.0) == 99.0
