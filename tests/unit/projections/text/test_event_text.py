"""Events in words: what people read in history and audit."""

import pytest

from ledger.core.model import events
from ledger.core.model.cards import Card, Part, Phase, Share, Stage
from ledger.core.model.commands import BARRED
from ledger.core.model.traits import Reach, Requirement
from projections.text.event_text import describe

PARTS = (
    Part("proxy", Phase.SIDECAR),
    Part("main", Phase.APP, (Share("GPU-a", 8_000, 30), Share("GPU-b", 40_000, 100, True))),
)
ON_CARDS = "main on card GPU-a 8000 MiB 30 %, main on card GPU-b 40000 MiB 100 % alone"
CUT = (Part("main", Phase.APP, (Share("GPU-a", 10_000, 28, False, "2g.10gb", 4, 2),)),)
MANY = (Part("main", Phase.APP, tuple(Share(f"GPU-{n}", 1, 0) for n in range(11))),)
CARDS = (
    Card("GPU-a", 0, "T4", 15_000, 100, 10, healthy=False),
    Card("GPU-b", 1, "T4", 15_000, 100, 10, cordoned=True),
)
PLACED = ("c1/red", "pods/p", "u")

POD = ("c1/red", "pods/p", "u", 0, {"nvidia.com/gpu": 1})
GOLD = (Requirement("tier", "In", ("gold", "silver")),)
IN_THE_WEST = (Requirement("!region", "NotIn", ("east",)), Requirement("gpu", "Exists"))


def limit(reach: Reach | None, *selects: Requirement) -> events.LimitSet:
    return events.LimitSet("universe/all", (), (), reach=reach, selects=selects)


@pytest.mark.parametrize(
    ("event", "note"),
    [
        (limit(None), ""),
        (limit(Reach()), "covers all namespaces of all clusters"),
        (
            limit(Reach(IN_THE_WEST, GOLD)),
            "covers namespaces with tier in (gold, silver)"
            " of clusters with region not in (east) and gpu",
        ),
        (
            limit(
                None, Requirement("!priority", "In", ("high",)), Requirement("x", "DoesNotExist")
            ),
            "counts objects with priority class in (high) and no x",
        ),
        (
            limit(Reach(), Requirement("!terminating", "Exists")),
            "covers all namespaces of all clusters; counts objects with scope Terminating",
        ),
        (events.Described("c1/red", "!name=red,tier=gold"), "is name=red, tier=gold"),
        (events.Described("c1/red", ""), "is gone"),
        (
            events.Reserved(*POD, root=BARRED),
            "may not draw from the controller it names, is charged on its own",
        ),
        (
            events.Reserved(*POD, root="jobs.batch/j", forced=True),
            "draws from jobs.batch/j; not refused, by policy",
        ),
        (
            events.Observed("c1/red", "pods/p", "u", 7, {}, "moved", root="jobs.batch/j"),
            "draws from jobs.batch/j",
        ),
        (events.Placed(*PLACED, "c1/n1", PARTS, {}), f"placed on node n1: {ON_CARDS}"),
        (
            events.Placed(*PLACED, "c1/n1", CUT, {}, "seen"),
            "seen placed on node n1: main on card GPU-a 10000 MiB 28 % as 2g.10gb at 4",
        ),
        (
            events.Placed(*PLACED, "c1/n1", MANY, {}),
            "placed on node n1: "
            + ", ".join(f"main on card GPU-{n} 1 MiB 0 %" for n in range(8))
            + " and 3 more",
        ),
        (events.Advanced(*PLACED, Stage.BOUND, False, {}), "bound to the node"),
        (
            events.Advanced(*PLACED, Stage.ALLOCATED, True, {}),
            "the node has handed its cards out; init containers are over",
        ),
        (events.Resized(*PLACED, PARTS, {}), f"resized: {ON_CARDS}"),
        (events.Unplaced(*PLACED, "unbound"), "gives its cards back"),
        (
            events.Claimed(*PLACED, "c1/n1", PARTS, (("c1/blue", "pods/q", "v"),)),
            f"kept on node n1: {ON_CARDS}; while blue/pods/q leave",
        ),
        (events.Withdrawn(*PLACED, "expired"), "no cards are kept for it any more"),
        (
            events.CardsRegistered("c1/n1", "hami", CARDS, ((0, 1, 2), (3, 4, 5))),
            "2 cards, kept by hami; not healthy: GPU-a; cordoned: GPU-b",
        ),
        (events.CardsRegistered("c1/n1", "hami", (), ()), "0 cards, kept by hami"),
        (events.NodeRemoved("c1/n1"), "is gone, and its cards with it"),
        (events.Reserved(*POD), ""),
        (events.Raised(*POD, forced=True), "not refused, by policy"),
    ],
)
def test_note_has_the_data_that_no_other_field_has(event: events.AnyEvent, note: str) -> None:
    assert describe(event).note == note


def test_event_has_its_root_and_traits() -> None:
    told = describe(events.Reserved(*POD, root="jobs.batch/j", traits=("app=a",)))
    assert (told.root, told.traits) == ("jobs.batch/j", ("app=a",))
    assert describe(events.Reserved(*POD, root=BARRED)).root == ""


def test_history_of_a_namespace_excludes_events_of_its_cluster() -> None:
    of_namespace = describe(events.Described("c1/red", "tier=gold"))
    assert (of_namespace.cluster, of_namespace.namespace) == ("c1", "red")
    of_cluster = describe(events.Described("c1", "tier=gold"))
    assert (of_cluster.cluster, of_cluster.namespace) == ("c1", "")
    assert (of_cluster.key, of_cluster.type) == ("c1", "Described")


def test_what_happens_to_the_cards_of_a_pod_is_part_of_its_namespace() -> None:
    told = describe(events.Placed(*PLACED, "c1/n1", PARTS, {"nvidia.com/gpumem": 48_000}, "seen"))
    assert (told.cluster, told.namespace, told.key, told.uid) == ("c1", "red", "pods/p", "u")
    assert (told.cause, told.amounts) == ("seen", {"nvidia.com/gpumem": 48_000})


def test_what_happens_to_a_node_is_part_of_no_namespace() -> None:
    told = describe(events.NodeRemoved("c1/n1"))
    assert (told.cluster, told.namespace, told.key) == ("c1", "", "c1/n1")
