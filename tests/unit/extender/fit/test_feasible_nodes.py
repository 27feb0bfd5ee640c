"""Where a pod fits, and on which cards: one case for each rule and policy."""

from typing import Any

import numpy as np
import pytest
from support.builders.fit_requests import PLAIN, answer, but, card, node, parts, pod
from support.harness.fit_harness import answers, arrays_of
from support.oracles.card_offers import OneNode, Terms

from extender.fit.feasible_nodes import FitQuestion, fit
from extender.fit.node_failure_reasons import reasons_of
from extender.inventory.unrecorded_card_use import UsageOverlay
from ledger.core.model.card_bookings import Booking, booked
from ledger.core.model.cards import Part, Phase, Profile, Share
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    DeviceRequest,
    DeviceSelector,
    PodDeviceRequest,
    Weights,
)

WHOLE = DeviceRequest("nvidia", 1, 0, 100, 100, exclusive=True)
HALF = DeviceRequest("nvidia", 1, 0, 50, 10, exclusive=False)
SMALL = Profile("1g.10gb", 9_856, 14, 1, ((0, 1), (1, 1)))
MIDDLE = Profile("2g.20gb", 19_968, 28, 2, ((0, 2),))


def of(**fields: Any) -> DeviceRequest:
    return but(PLAIN, choice=DeviceSelector(**fields))


def chosen(host: OneNode, wish: PodDeviceRequest, *policies: str, room: int = -1) -> list[str]:
    return [share.uuid for part in parts(host, wish, *policies, room=room) for share in part.shares]


@pytest.mark.parametrize(
    ("bad", "wish", "reason"),
    [
        ({"healthy": False}, PLAIN, "CardNotHealthy"),
        ({"cordoned": True}, PLAIN, "CardCordoned"),
        ({"type": "NVIDIA T4"}, of(use_types=("a100", "A10")), "CardTypeMismatch"),
        ({"type": "NVIDIA T4"}, of(nouse_types=("t4",)), "CardTypeMismatch"),
        ({"mode": "mps"}, of(mode="hami-core"), "CardTypeMismatch"),
        ({}, of(use_uuids=("good",)), "CardUuidMismatch"),
        ({}, of(nouse_uuids=("bad",)), "CardUuidMismatch"),
        ({"used_slots": 10}, PLAIN, "CardTimeSlicingExhausted"),
        ({"used_slots": 1, "alone": 1}, PLAIN, "ExclusiveDeviceAllocateConflict"),
        ({"used_slots": 1}, WHOLE, "ExclusiveDeviceAllocateConflict"),
        ({"used_slots": 1, "cores": 200}, WHOLE, "ExclusiveDeviceAllocateConflict"),
        ({"used_memory": 20_000}, PLAIN, "CardInsufficientMemory"),
        ({"used_cores": 95}, PLAIN, "CardInsufficientCore"),
        ({"used_cores": 100}, but(PLAIN, cores=0), "CardComputeUnitsExhausted"),
        ({"mode": "mig"}, PLAIN, "CardMigTopologyInfeasible"),
    ],
)
def test_a_card_that_breaks_a_rule_is_passed_over_and_named(
    bad: dict[str, Any], wish: DeviceRequest, reason: str
) -> None:
    host = node(card("bad", **bad), card("good", 1))
    assert chosen(host, pod(wish), "binpack") == ["good"]
    if bad.get("mode") != "mig":
        refused = answer(host, pod(but(wish, count=2))).reason
        assert refused == f"1/2 {reason}, 1/2 AllocatedCardsInsufficientRequest"


def test_a_card_in_use_is_passed_over_where_only_unused_ones_will_do() -> None:
    host = node(card("used", used_slots=1), card("unused", 1))
    assert chosen(host, pod(PLAIN), "mutex", "binpack") == ["unused"]
    assert "1/2 Exclusive" in answer(host, pod(but(PLAIN, count=2)), "mutex").reason


def test_the_most_frequent_reason_is_named_first() -> None:
    ill = [card(f"ill-{place}", place, healthy=False) for place in range(2)]
    full = [card(f"full-{place}", 2 + place, used_memory=20_000) for place in range(6)]
    reason = answer(node(*ill, *full), pod(PLAIN)).reason
    assert reason == "6/8 CardInsufficientMemory, 2/8 CardNotHealthy"


def test_node_without_cards_is_unregistered_and_with_few_insufficient() -> None:
    assert answer(node(), pod(PLAIN)).reason == "NodeUnregistered"
    other = node(card("a"), card("b", 1, vendor="hygon"))
    assert answer(other, pod(but(PLAIN, count=2))).reason == "NodeInsufficientDevice"


@pytest.mark.parametrize(
    ("host", "wish", "helps"),
    [
        (node(card("a", used_slots=10)), PLAIN, True),
        (node(card("a", used_slots=1, alone=1)), WHOLE, True),
        (node(card("a", healthy=False)), PLAIN, False),
        (node(card("a", used_memory=20_000)), but(PLAIN, memory=30_000), False),
        (node(card("a")), of(use_types=("h100",)), False),
        (node(card("a")), but(PLAIN, count=2), False),
        (node(), PLAIN, False),
    ],
)
def test_evicting_helps_only_where_the_pod_would_fit_on_empty_cards(
    host: OneNode, wish: DeviceRequest, helps: bool
) -> None:
    assert answer(host, pod(wish)).resolvable is helps


def test_a_percentage_is_of_each_card_and_rounded_down() -> None:
    host = node(card("a", memory=1_001), card("b", 1, memory=2_001))
    shares = parts(host, pod(but(HALF, count=2)))[0].shares
    assert {share.uuid: share.memory for share in shares} == {"a": 500, "b": 1_000}


def test_quotas_bound_what_the_containers_of_a_pod_take_together() -> None:
    host = node(card("a"), card("b", 1))
    both = pod(but(PLAIN, count=2))
    assert chosen(host, both, room=16_000) == ["a", "b"]
    reason = answer(host, both, room=15_999).reason
    assert reason == "1/2 ResourceQuotaNotFit, 1/2 AllocatedCardsInsufficientRequest"


def test_quotas_are_asked_for_what_the_instance_has() -> None:
    host = node(card("a", mode="mig", memory=81_920, profiles=(SMALL, MIDDLE)))
    assert chosen(host, pod(PLAIN), room=9_856) == ["a"]
    assert answer(host, pod(PLAIN), room=9_855).reason == "1/1 ResourceQuotaNotFit"


def test_the_smallest_instance_that_fits_is_taken_at_the_first_free_place() -> None:
    host = node(card("a", mode="mig", memory=81_920, profiles=(MIDDLE, SMALL), taken={0}))
    assert parts(host, pod(PLAIN))[0].shares == (
        Share("a", 9_856, 14, profile="1g.10gb", start=1, size=1),
    )
    large = but(PLAIN, memory=12_000)
    assert answer(host, pod(large)).reason == "1/1 CardMigTopologyInfeasible"


def test_one_card_gives_several_instances() -> None:
    host = node(card("a", mode="mig", memory=81_920, profiles=(SMALL,)))
    shares = parts(host, pod(but(PLAIN, count=2)))[0].shares
    assert [(share.uuid, share.start) for share in shares] == [("a", 1), ("a", 0)]
    assert answer(host, pod(but(PLAIN, count=3))).parts is None


def test_a_whole_card_that_is_cut_is_its_largest_instance() -> None:
    host = node(card("a", mode="mig", memory=81_920, profiles=(SMALL, MIDDLE)))
    assert parts(host, pod(WHOLE))[0].shares[0].profile == "2g.20gb"


def test_cards_of_one_container_are_on_the_numa_node_where_they_are_best() -> None:
    cards = [
        card(f"{numa}{place}", 2 * numa + place, numa=numa) for numa in (0, 1) for place in (0, 1)
    ]
    cards[0].used_slots = 5
    two = pod(but(PLAIN, count=2), numa_bind=True)
    assert chosen(node(*cards), two, "spread") == ["10", "11"]
    assert chosen(node(*cards), two, "binpack") == ["00", "01"]
    torn = answer(node(*cards), pod(but(PLAIN, count=3), numa_bind=True))
    assert (torn.reason, torn.resolvable) == ("4/4 NumaNotFit", False)


@pytest.mark.parametrize(
    ("policies", "best"),
    [
        (("binpack",), "full"),
        (("spread",), "empty"),
        (("whole",), "tight"),
        (("numa", "spread"), "tight"),
        (("mutex",), "empty"),
        (("numa", "binpack"), "full"),
    ],
)
def test_a_policy_chooses_the_card(policies: tuple[str, ...], best: str) -> None:
    host = node(
        card("empty", 0, numa=1),
        card("full", 1, used_slots=8, used_memory=12_000, used_cores=80),
        card("tight", 2, used_slots=1, used_memory=16_000),
    )
    assert chosen(host, pod(PLAIN), *policies) == [best]


def test_weights_define_the_fullness_of_a_card() -> None:
    host = node(card("slots", used_slots=8), card("memory", 1, used_memory=12_000))
    for weights, best in [(Weights(1, 0, 0), "slots"), (Weights(0, 0, 1), "memory")]:
        given = answers([host], pod(PLAIN), Terms("binpack", ("binpack",), weights))[0]
        assert given.parts is not None
        assert given.parts[0].shares[0].uuid == best


def test_ties_go_to_the_lowest_index_then_uuid() -> None:
    host = node(card("b", 1), card("c", 1), card("a", 2))
    for policy in ("binpack", "spread", "whole", "numa", "mutex", "topology-aware"):
        assert chosen(host, pod(PLAIN), policy) == ["b"], policy


def test_linked_cards_are_chosen_together_and_one_card_breaks_no_good_link() -> None:
    pairs = {("a", "b"): 10, ("a", "c"): 200, ("b", "c"): 10, ("c", "d"): 20}
    host = node(*(card(name, place) for place, name in enumerate("abcd")), pairs=pairs)
    assert sorted(chosen(host, pod(but(PLAIN, count=2)), "topology-aware")) == ["a", "c"]
    assert chosen(host, pod(PLAIN), "topology-aware") == ["b"]


def test_links_of_many_cards_are_followed_without_trying_all_sets() -> None:
    names = [f"{place:02}" for place in range(16)]
    pairs = {
        (name, other): 100 if (name < "08") == (other < "08") else 1
        for name in names
        for other in names
        if name < other
    }
    host = node(*(card(name, place) for place, name in enumerate(names)), pairs=pairs)
    host.cards[0].healthy = False
    eight = pod(but(PLAIN, count=8))
    assert sorted(chosen(host, eight, "topology-aware")) == names[8:]


def test_a_tight_quota_does_not_shrink_the_choice_of_linked_cards() -> None:
    host = node(*(card(name, place) for place, name in enumerate("abc")), pairs={("b", "c"): 200})
    assert sorted(chosen(host, pod(but(PLAIN, count=2)), "topology-aware", room=16_000)) == [
        "b",
        "c",
    ]


def test_containers_add_up_and_init_containers_use_what_the_pod_has() -> None:
    wish = PodDeviceRequest(
        (
            ContainerDeviceRequests("early", Phase.INIT, (but(PLAIN, memory=20_000),)),
            ContainerDeviceRequests("side", Phase.SIDECAR, (but(PLAIN, memory=4_000),)),
            ContainerDeviceRequests("late", Phase.INIT, (but(PLAIN, memory=20_000),)),
            ContainerDeviceRequests("none", Phase.APP),
            ContainerDeviceRequests("app", Phase.APP, (but(PLAIN, memory=20_000),)),
        )
    )
    given = parts(node(card("a"), card("b", 1)), wish, "binpack")
    assert [part.container for part in given] == ["early", "side", "late", "none", "app"]
    assert given[3] == Part("none", Phase.APP)
    assert booked(given) == {"a": Booking(24_000, 20, 2)}


def test_init_containers_do_not_fit_beside_a_sidecar_that_leaves_no_room() -> None:
    side = ContainerDeviceRequests("side", Phase.SIDECAR, (but(PLAIN, memory=20_000),))
    init = ContainerDeviceRequests("init", Phase.INIT, (PLAIN,))
    assert answer(node(card("a")), PodDeviceRequest((init, side))).parts is not None
    assert (
        answer(node(card("a")), PodDeviceRequest((side, init))).reason
        == "1/1 CardInsufficientMemory"
    )


def test_two_containers_of_one_pod_do_not_share_a_card_that_one_has_alone() -> None:
    wish = PodDeviceRequest(
        (
            ContainerDeviceRequests("a", Phase.APP, (WHOLE,)),
            ContainerDeviceRequests("b", Phase.APP, (PLAIN,)),
        )
    )
    assert answer(node(card("a")), wish).parts is None
    assert chosen(node(card("a"), card("b", 1)), wish) == ["a", "b"]


def test_card_over_its_cores_is_not_shared_within_a_pod_either() -> None:
    wish = PodDeviceRequest(
        (
            ContainerDeviceRequests("a", Phase.APP, (but(WHOLE, percentage=10),)),
            ContainerDeviceRequests("b", Phase.APP, (PLAIN,)),
        )
    )
    reason = answer(node(card("a", cores=300)), wish).reason
    assert reason == "1/1 ExclusiveDeviceAllocateConflict"


def test_an_init_container_rather_uses_a_card_of_the_pod_than_a_better_one() -> None:
    wish = PodDeviceRequest(
        (
            ContainerDeviceRequests("init", Phase.INIT, (PLAIN,)),
            ContainerDeviceRequests("app", Phase.APP, (PLAIN,)),
        )
    )
    host = node(card("full", used_slots=8, used_cores=85), card("empty", 1))
    assert chosen(host, wish, "binpack") == ["full", "full"]
    larger = PodDeviceRequest(
        (ContainerDeviceRequests("init", Phase.INIT, (but(PLAIN, cores=20),)), wish.containers[1])
    )
    assert chosen(host, larger, "binpack") == ["empty", "full"]


def test_a_node_is_as_full_as_its_fullest_moment() -> None:
    app = ContainerDeviceRequests("app", Phase.APP, (PLAIN,))
    init = ContainerDeviceRequests("init", Phase.INIT, (but(PLAIN, memory=24_000),))
    host = node(card("a"))
    assert (
        answer(host, PodDeviceRequest((init, app))).score
        > answer(host, PodDeviceRequest((app,))).score
    )


def test_several_cards_are_taken_of_a_numa_node_that_has_enough() -> None:
    host = node(card("a"), card("b", 1, numa=1), card("c", 2, numa=1))
    assert chosen(host, pod(but(PLAIN, count=2)), "numa") == ["b", "c"]
    assert chosen(host, pod(but(PLAIN, count=3)), "numa") == ["a", "b", "c"]


def test_cards_of_several_vendors_are_given_to_one_pod() -> None:
    host = node(card("a"), card("b", 1, vendor="hygon"))
    assert chosen(host, pod(PLAIN, but(PLAIN, vendor="hygon"))) == ["a", "b"]


def test_what_is_being_placed_counts_as_used() -> None:
    hosts = [node(card("a"), card("b", 1))]
    arrays, overlay = arrays_of(hosts), UsageOverlay(1, 2)
    overlay.add("uid", 0, {0: Booking(8_000, 10, 1)}, {0})
    fits = fit(arrays, overlay, FitQuestion(pod(but(PLAIN, count=2)), np.array([0])))
    assert reasons_of(fits) == [
        "1/2 ExclusiveDeviceAllocateConflict, 1/2 AllocatedCardsInsufficientRequest"
    ]
    assert overlay.memory.tolist() == [[8_000, 0]], "fitting leaves no trace"
    assert not arrays.used_memory.any()
    for booking, reason in [
        (Booking(20_000, 0, 1), "1/2 CardInsufficientMemory"),
        (Booking(0, 95, 1), "1/2 CardInsufficientCore"),
        (Booking(0, 0, 10), "1/2 CardTimeSlicingExhausted"),
    ]:
        overlay.add("uid", 0, {0: booking})
        fits = fit(arrays, overlay, FitQuestion(pod(but(PLAIN, count=2)), np.array([0])))
        assert reasons_of(fits)[0].startswith(reason)
