"""The likely container of an Allocate call is a first one without cards, with as many devices."""

from support.harness.device_plugin import container, share

from vgpu_native.plugin.allocation.likely_container import candidates, choose

NO_KEYS: set[tuple[str, str]] = set()


def test_only_the_first_container_without_cards_is_a_candidate() -> None:
    fetch = container("a", share(0), name="fetch")
    train = container("a", share(0), name="train", order=1)
    assert candidates([train, fetch], NO_KEYS, 1) == [fetch]
    assert candidates([train, fetch], {fetch.key}, 1) == [train]
    assert candidates([train, fetch], {fetch.key, train.key}, 1) == []


def test_a_container_with_another_count_is_not_a_candidate() -> None:
    fetch = container("a", share(0), share(1), name="fetch")
    train = container("a", share(0), name="train", order=1)
    assert candidates([fetch, train], NO_KEYS, 1) == [], "the first container has no cards yet"
    assert candidates([fetch, train], NO_KEYS, 2) == [fetch]


def test_the_pod_of_the_last_response_precedes_older_pods() -> None:
    old, new = container("old", share(0), time=1), container("new", share(1), time=2)
    assert candidates([new, old], NO_KEYS, 1) == [old, new]
    assert candidates([new, old], NO_KEYS, 1, latest="new-uid") == [new, old]


def test_the_choice_reports_whether_candidates_differ() -> None:
    alike = choose([container("a", share(0, 5)), container("b", share(0, 5))])
    assert alike is not None
    assert (alike.same_cards, alike.alike) == (True, True)
    amounts = choose([container("a", share(0, 5)), container("b", share(0, 6))])
    assert amounts is not None
    assert (amounts.same_cards, amounts.alike) == (True, False)
    cards = choose([container("a", share(0, 5)), container("b", share(1, 5))])
    assert cards is not None
    assert (cards.same_cards, cards.alike) == (False, False)
    alone = choose([container("a", share(0, exclusive=True)), container("b", share(0))])
    assert alone is not None
    assert not alone.same_cards, "one of them runs without the library"
    assert choose([]) is None
