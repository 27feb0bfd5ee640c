"""Interning: equal values share one object, in bounded caches, and never become other values."""

import pytest
from support.builders.decide_and_fold import record

from ledger.core import snapshot_format
from ledger.core.model import accounts, commands, interning
from ledger.core.model.interning import interned_amounts, interned_text, interned_traits
from ledger.core.model.state import State
from ledger.log import records

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"


def copied(text: str) -> str:
    """Return an equal text that is another object."""
    return bytes(text, "utf-8").decode()


def test_equal_texts_share_one_object() -> None:
    shared = interned_text("ReplicaSet/web-1")
    assert interned_text(copied("ReplicaSet/web-1")) is shared


def test_long_texts_are_not_cached() -> None:
    text = "x" * (interning.TEXT_CHARACTERS_MAX + 1)
    assert interned_text(text) is text
    assert interned_text(copied(text)) is not text


def test_equal_amounts_share_one_object_with_their_order() -> None:
    shared = interned_amounts({GPU: 1, MEMORY: 8_000})
    assert interned_amounts({copied(GPU): 1, copied(MEMORY): 8_000}) is shared
    turned = interned_amounts({MEMORY: 8_000, GPU: 1})
    assert turned is not shared
    assert list(turned) == [MEMORY, GPU]


def test_amounts_that_are_changed_later_leave_the_shared_ones() -> None:
    given = {GPU: 3, MEMORY: 77}
    shared = interned_amounts(given)
    given[MEMORY] = 0
    assert shared == interned_amounts({GPU: 3, MEMORY: 77}) == {GPU: 3, MEMORY: 77}


def test_amounts_with_swapped_numbers_stay_different() -> None:
    assert interned_amounts({GPU: 1, MEMORY: 2}) == {GPU: 1, MEMORY: 2}
    assert interned_amounts({GPU: 2, MEMORY: 1}) == {GPU: 2, MEMORY: 1}
    assert interned_amounts({GPU: 2}) == {GPU: 2}
    assert interned_amounts({}) == {}


def test_amounts_of_many_or_long_resources_are_not_cached() -> None:
    many = {f"r{number}": 1 for number in range(interning.RESOURCES_MAX + 1)}
    assert interned_amounts(many) is many
    assert interned_amounts(dict(many)) is not many
    long = {"x" * (interning.TEXT_CHARACTERS_MAX + 1): 1}
    assert interned_amounts(dict(long)) is not interned_amounts(long)


def test_the_cache_of_amounts_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "AMOUNTS_MAX", 8)
    interning._amounts.clear()
    for number in range(1, 100):
        assert interned_amounts({GPU: number}) == {GPU: number}
        assert len(interning._amounts) <= 8


def test_equal_traits_share_one_object() -> None:
    shared = interned_traits(("app=web", "app=db"))
    assert interned_traits((copied("app=web"), copied("app=db"))) is shared
    long = ("x" * (interning.TRAITS_CHARACTERS_MAX + 1),)
    assert interned_traits(long) is long


def test_a_folded_state_shares_what_pods_repeat() -> None:
    state, folded = State(), State()
    limits = {f"limits.{GPU}": 100}
    made: list[commands.AnyCommand] = [
        commands.SetLimits(accounts.quota("c1", f"ns{number}", "q"), (f"c1/ns{number}",), limits)
        for number in range(2)
    ]
    pods: list[commands.AnyCommand] = [
        commands.Reserve(
            f"c1/ns{number}",
            "pods/p",
            f"u{number}",
            {GPU: 1_000 - 999, MEMORY: 8_000},
            owner="ReplicaSet/web",
            actor="system:controller",
            root="deployments.apps/web",
            traits=("app=web",),
        )
        for number in range(2)
    ]
    for position, batch in enumerate((made, pods), start=1):
        payload = record(state, batch, time=position)
        assert payload is not None
        records.fold(folded, position, payload)
    holds = [folded.namespaces[f"c1/ns{number}"].entries["pods/p"].holds[0] for number in range(2)]
    for field in ("demand", "owner", "actor", "root", "traits"):
        assert getattr(holds[0], field) is getattr(holds[1], field), field
    assert folded.names[0][1] is folded.names[1][1]
    assert snapshot_format.encode(folded) == snapshot_format.encode(state)


def test_equal_sources_share_all_of_their_parts() -> None:
    first = interning.interned_source("owner-a", "actor-b", "root-c", ("app=d",))
    parts = (copied("owner-a"), copied("actor-b"), copied("root-c"), (copied("app=d"),))
    again = interning.interned_source(*parts)
    assert all(one_part is other for one_part, other in zip(first, again, strict=True))
    swapped = interning.interned_source("actor-b", "owner-a", "root-c", ("app=d",))
    assert swapped == ("actor-b", "owner-a", "root-c", ("app=d",))


def test_the_cache_of_sources_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "SOURCES_MAX", 8)
    interning._sources.clear()
    for number in range(100):
        assert interning.interned_source(f"o{number}", "", "", ())[0] == f"o{number}"
        assert len(interning._sources) <= 8
    long = "x" * (interning.TEXT_CHARACTERS_MAX + 1)
    before = len(interning._sources)
    assert interning.interned_source(long, "", "", ()) == (long, "", "", ())
    assert len(interning._sources) == before
