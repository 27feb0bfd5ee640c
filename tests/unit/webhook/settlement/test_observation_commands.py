"""Commands that follow from an observation or a missing object."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from support.fakes.apiserver import pod_body

from ledger.core.model.commands import End, Observe, Refute
from ledger.core.model.state import Entry, Hold, Object
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import DemandRules
from webhook.settlement.absence_proof import refute_unwritten
from webhook.settlement.objects_missing_from_list import end_missing
from webhook.settlement.observation_commands import ObservedObject, command_if_changed, is_reserved
from webhook.settlement.pod_observation import observe_pod

ONE = {"nvidia.com/gpu": 1}
TWO = {"nvidia.com/gpu": 2}
NOW = 1_800_000_000_000_000
SEEN = ObservedObject("c/red", "pods/p", "u1", 20, ONE)


def hold(uid: str = "u1", base: int = 0, demand=ONE) -> Hold:
    return Hold(uid, base, demand, 0, "", "", "")


def entry(*holds: Hold, stored: Object | None = None) -> Entry:
    return Entry(stored, holds, ONE)


def stored(uid: str = "u1", version: int = 10, demand=ONE) -> Object:
    return Object(uid, version, demand, 0)


def pod(**metadata) -> Pod:
    body = pod_body("p", gpumem=0, gpucores=0)
    body["metadata"] |= {"namespace": "red", "uid": "u1", "resourceVersion": "20", **metadata}
    return msgspec.convert(body, Pod)


def see(given: Pod, *, now: int = NOW, deleted: bool = False) -> ObservedObject:
    return observe_pod(given, "c", DemandRules(worst_card_memory=80_000), now, deleted=deleted)


def test_pod_observation_has_qualified_key_version_and_demand():
    seen = see(pod())
    assert (seen.namespace, seen.key, seen.uid, seen.version) == ("c/red", "pods/p", "u1", 20)
    assert seen.demand["nvidia.com/gpu"] == 1
    assert seen.cause == ""


@pytest.mark.parametrize(
    ("phase", "cause"),
    [("Pending", ""), ("Running", ""), ("Succeeded", "finished"), ("Failed", "finished")],
)
def test_pod_counts_until_its_phase_is_terminal(phase, cause):
    phased = msgspec.structs.replace(
        pod(), status=msgspec.convert({"phase": phase}, type(pod().status))
    )
    assert see(phased).cause == cause


def test_terminating_pod_counts_until_its_grace_period_ends():
    instant = datetime.fromtimestamp(NOW / 1e6, UTC)
    terminating = pod(
        deletionTimestamp=instant.isoformat(),
        deletionGracePeriodSeconds=30,
    )
    ends = NOW + timedelta(seconds=30) // timedelta(microseconds=1)
    assert see(terminating).grace_ends == ends
    assert see(terminating, now=ends).cause == ""
    assert see(terminating, now=ends + 1).cause == "finished"


def test_invalid_request_has_a_problem_and_no_demand():
    body = pod_body("p")
    body["metadata"] |= {"namespace": "red", "uid": "u1", "resourceVersion": "20"}
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "16Gi"
    seen = see(msgspec.convert(body, Pod))
    assert seen.demand == {}
    assert "16Gi" in seen.problem


def test_open_creation_is_observed_when_its_object_exists():
    assert command_if_changed(entry(hold()), SEEN, "a") == Observe(
        "c/red", "pods/p", "u1", 20, ONE, "a"
    )


def test_unknown_pod_is_observed_when_it_has_a_demand():
    assert isinstance(command_if_changed(None, SEEN, "a"), Observe)
    assert command_if_changed(None, msgspec.structs.replace(SEEN, demand={}), "a") is None


def test_change_of_status_needs_no_command():
    assert command_if_changed(entry(stored=stored()), SEEN, "a") is None


def test_change_of_demand_is_observed():
    assert isinstance(command_if_changed(entry(stored=stored(demand=TWO)), SEEN, "a"), Observe)


def test_update_ends_when_a_newer_version_is_observed():
    assert isinstance(command_if_changed(entry(hold(base=19), stored=stored()), SEEN, "a"), Observe)


def test_update_stays_open_when_its_base_is_observed():
    assert command_if_changed(entry(hold(base=20), stored=stored()), SEEN, "a") is None


def test_another_object_at_the_key_is_observed():
    assert isinstance(command_if_changed(entry(stored=stored("u0")), SEEN, "a"), Observe)


def test_end_is_sent_only_when_the_ledger_has_the_uid():
    over = msgspec.structs.replace(SEEN, cause="deleted")
    assert command_if_changed(None, over, "a") is None
    assert command_if_changed(entry(stored=stored("u0")), over, "a") is None
    for known in (entry(hold()), entry(hold(base=5)), entry(stored=stored())):
        assert command_if_changed(known, over, "a") == End(
            "c/red", "pods/p", "u1", 20, "deleted", "a"
        )


def absent(known: Entry, *, present: str = "", version: int = 30, proven=None) -> list:
    return list(end_missing("c/red", "pods/p", known, present, version, "a", proven))


def test_known_object_is_deleted_when_it_is_not_listed():
    assert absent(entry(stored=stored())) == [End("c/red", "pods/p", "u1", 30, "deleted", "a")]


def test_object_stays_when_observed_after_the_list():
    assert absent(entry(stored=stored(version=31))) == []


def test_listed_object_is_not_missing():
    assert absent(entry(stored=stored()), present="u1", proven=lambda _: True) == []


def test_unobserved_creation_is_refuted_only_with_proof():
    assert absent(entry(hold())) == []
    assert absent(entry(hold()), proven=lambda _: False) == []
    proof = Refute("c/red", "pods/p", "u1", 0, "absent", "a")
    assert absent(entry(hold()), proven={("u1", 0)}.__contains__) == [proof]


def test_update_ends_when_its_object_is_deleted():
    assert absent(entry(hold(base=15))) == [End("c/red", "pods/p", "u1", 30, "deleted", "a")]
    assert absent(entry(hold(base=31))) == []


def test_update_is_refuted_only_with_proof_and_a_stored_base():
    known = entry(hold(base=20), hold("u2", 20), stored=stored())
    assert list(refute_unwritten(known, SEEN, "a", lambda _: False)) == []
    refuted = list(refute_unwritten(known, SEEN, "a", lambda _: True))
    assert refuted == [Refute("c/red", "pods/p", "u1", 20, "absent", "a", raises=0)]
    assert list(refute_unwritten(entry(hold(base=19)), SEEN, "a", lambda _: True)) == []


GATED = msgspec.structs.replace(SEEN, gated=True, traits=("tier=gold",))


def with_traits(held: Hold, *traits: str) -> Hold:
    return msgspec.structs.replace(held, traits=traits)


@pytest.mark.parametrize(
    "known",
    [
        entry(stored=stored()),
        entry(hold(base=0)),
        entry(with_traits(hold(base=10), "tier=gold")),
    ],
    ids=["charged", "created", "changed"],
)
def test_gated_pod_is_observed_when_its_demand_is_reserved(known):
    assert is_reserved(known, GATED)
    assert isinstance(command_if_changed(known, GATED, "settlement"), Observe)
    assert not list(refute_unwritten(known, GATED, "settlement", lambda _: True))


@pytest.mark.parametrize(
    "held",
    [
        with_traits(hold(base=10), "tier=silver"),
        with_traits(hold(base=20), "tier=gold"),
        with_traits(hold(base=10, demand={"nvidia.com/gpumem": 1}), "tier=gold"),
        with_traits(hold(uid="u2", base=10), "tier=gold"),
    ],
    ids=["another quota", "not written", "less", "another pod"],
)
def test_gated_pod_waits_when_another_change_holds_the_amounts(held):
    assert not is_reserved(entry(held), GATED)
    assert command_if_changed(entry(held), GATED, "settlement") is None
    ends = list(refute_unwritten(entry(held), GATED, "settlement", lambda _: True))
    assert [(command.uid, command.base) for command in ends] == (
        [("u1", held.base)] if held.uid == "u1" else []
    )
    assert not list(refute_unwritten(entry(held), GATED, "settlement", lambda _: False))
