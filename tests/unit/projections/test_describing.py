"""Events in words: what people read in history and audit."""

import pytest

from ledger.core import events
from ledger.core.commands import BARRED
from ledger.core.traits import Reach, Requirement
from projections.describing import describe

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
            "may not draw from the controller it names, stands on its own",
        ),
        (
            events.Reserved(*POD, root="jobs.batch/j", forced=True),
            "draws from jobs.batch/j; not refused, by policy",
        ),
        (
            events.Observed("c1/red", "pods/p", "u", 7, {}, "moved", root="jobs.batch/j"),
            "draws from jobs.batch/j",
        ),
        (events.Reserved(*POD), ""),
        (events.Raised(*POD, forced=True), "not refused, by policy"),
    ],
)
def test_a_note_says_in_words_what_the_other_fields_leave_open(
    event: events.AnyEvent, note: str
) -> None:
    assert describe(event).note == note


def test_an_event_tells_its_root_and_its_traits() -> None:
    told = describe(events.Reserved(*POD, root="jobs.batch/j", traits=("app=a",)))
    assert (told.root, told.traits) == ("jobs.batch/j", ("app=a",))
    assert describe(events.Reserved(*POD, root=BARRED)).root == ""


def test_what_is_said_of_a_namespace_is_its_own_history_and_of_a_cluster_is_not() -> None:
    of_namespace = describe(events.Described("c1/red", "tier=gold"))
    assert (of_namespace.cluster, of_namespace.namespace) == ("c1", "red")
    of_cluster = describe(events.Described("c1", "tier=gold"))
    assert (of_cluster.cluster, of_cluster.namespace) == ("c1", "")
    assert (of_cluster.key, of_cluster.type) == ("c1", "Described")
