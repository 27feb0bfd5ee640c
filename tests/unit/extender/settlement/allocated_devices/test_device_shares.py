"""The shares of cards that devices have: whole cards, shared cards and parts of cards."""

from support.devices.device_site import NODE, device

from extender.settlement.allocated_devices.device_shares import (
    is_of_claims,
    parts_of_devices,
)
from ledger.core.model.cards import OWN, Card, NodeCards, Part, Phase, Share

NODE_CARDS = NodeCards(OWN, (Card("GPU-0", 0, "H100", 81_559, 100, 10),))


def shares_of(*devices):
    parts = parts_of_devices(devices, NODE_CARDS, NODE)
    return {part.container: part.shares for part in parts}


def test_shared_device_takes_what_it_consumed():
    assert shares_of(device(memory=8_000, cores=30)) == {
        "resourceclaims/c": (Share("GPU-0", 8_000, 30),)
    }


def test_whole_device_is_its_card_although_the_driver_gives_another_size():
    for memory in (81_920, 81_000):
        assert shares_of(device(share="", memory=memory, cores=100)) == {
            "resourceclaims/c": (Share("GPU-0", 81_559, 100, exclusive=True),)
        }


def test_part_of_a_card_takes_its_part_of_the_cores_and_not_the_card():
    assert shares_of(device(share="", memory=40_192, cores=100)) == {
        "resourceclaims/c": (Share("GPU-0", 40_192, 49),)
    }


def test_each_claim_of_a_pod_is_a_part():
    both = shares_of(device(), device(share="s2"), device(claim="d", share="s3"))
    assert [(name, len(shares)) for name, shares in both.items()] == [
        ("resourceclaims/c", 2),
        ("resourceclaims/d", 1),
    ]


def test_devices_of_other_nodes_and_unknown_cards_are_left_out():
    assert shares_of(device(node="east/n2"), device("GPU-9"), device(admin=True)) == {}


def test_parts_of_claims_differ_from_those_of_containers():
    main = Part("main", Phase.APP, (Share("GPU-0", 1, 1),))
    claim = Part("resourceclaims/c", Phase.APP, (Share("GPU-0", 1, 1),))
    assert is_of_claims((claim,))
    assert not is_of_claims(())
    assert not is_of_claims((main, claim))
