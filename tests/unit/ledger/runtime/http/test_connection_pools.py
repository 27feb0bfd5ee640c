"""The connection that a full pool replaces."""

from ledger.runtime.http.connection_pools import Pool, address_of


class Member:
    def __init__(self, name: str, *, busy: bool = False) -> None:
        self.name, self.busy, self.dropped = name, busy, False

    def is_busy(self) -> bool:
        return self.busy

    def drop(self) -> None:
        self.dropped = True


def names(pool: Pool[Member]) -> set[str]:
    return {member.name for member in pool}


def filled(pool: Pool[Member], **counts: int) -> dict[str, list[Member]]:
    """Add so many members of each address."""
    made = {host: [Member(f"{host}{n}") for n in range(many)] for host, many in counts.items()}
    for address, members in made.items():
        for member in members:
            assert pool.add(address, member)
    return made


def test_a_newcomer_takes_the_place_of_the_fullest_address() -> None:
    pool: Pool[Member] = Pool(6)
    made = filled(pool, a=4, b=2)
    assert pool.add("c", Member("c0"))
    assert names(pool) == {"a1", "a2", "a3", "b0", "b1", "c0"}
    assert made["a"][0].dropped
    assert not made["a"][1].dropped


def test_the_least_used_goes_first() -> None:
    pool: Pool[Member] = Pool(3)
    made = filled(pool, a=3)
    pool.used("a", made["a"][0])
    assert pool.add("a", Member("new"))
    assert names(pool) == {"a0", "a2", "new"}


def test_address_with_many_connections_loses_its_own() -> None:
    pool: Pool[Member] = Pool(10)
    filled(pool, quiet=2)
    for number in range(100):
        assert pool.add("loud", Member(f"loud{number}"))
    assert {"quiet0", "quiet1"} <= names(pool)
    assert len(pool) == 10


def test_one_address_has_a_bound_of_its_own() -> None:
    pool: Pool[Member] = Pool(100, 3)
    filled(pool, a=5, b=1)
    assert names(pool) == {"a2", "a3", "a4", "b0"}


def test_a_busy_member_keeps_its_place() -> None:
    pool: Pool[Member] = Pool(3)
    made = filled(pool, a=3)
    made["a"][0].busy = True
    assert pool.add("b", Member("b0"))
    assert names(pool) == {"a0", "a2", "b0"}


def test_where_the_fullest_address_is_busy_another_gives_a_place() -> None:
    pool: Pool[Member] = Pool(3)
    made = filled(pool, a=2, b=1)
    for member in made["a"]:
        member.busy = True
    assert pool.add("c", Member("c0"))
    assert names(pool) == {"a0", "a1", "c0"}


def test_where_all_are_busy_there_is_no_room() -> None:
    pool: Pool[Member] = Pool(2)
    for member in filled(pool, a=2)["a"]:
        member.busy = True
    assert not pool.has_room()
    assert not pool.add("b", Member("b0"))
    assert not pool.add("a", Member("a2"))
    assert len(pool) == 2


def test_who_leaves_makes_room_once() -> None:
    pool: Pool[Member] = Pool(2)
    made = filled(pool, a=2)
    pool.remove("a", made["a"][0])
    pool.remove("a", made["a"][0])
    assert len(pool) == 1
    assert pool.add("b", Member("b0"))
    assert names(pool) == {"a1", "b0"}


def test_dropped_connection_is_ignored_when_it_is_used_or_leaves() -> None:
    pool: Pool[Member] = Pool(1)
    first = filled(pool, a=1)["a"][0]
    pool.add("a", Member("a1"))
    pool.used("a", first)
    pool.remove("a", first)
    assert names(pool) == {"a1"}
    assert len(pool) == 1


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    assert address_of("2001:db8::1") == address_of("2001:db8::ffff:2%eth0")
    assert address_of("2001:db8::1") != address_of("2001:db8:0:1::1")
    assert address_of("::ffff:192.0.2.1") == address_of("192.0.2.1") == "192.0.2.1"
    assert address_of("192.0.2.1") != address_of("192.0.2.2")
    assert address_of("") == ""
