"""Refused pods are bounded by namespace and tried in turn; pods with one request are a group."""

from typing import Final

import msgspec
from support.harness.extender_harness import CLUSTER, RULES, pod

from extender.scheduler_api.scheduling_request import SchedulingRequest, request_for
from extender.verbs.refused_pods import (
    GROUPS_MAX,
    NAMESPACES_MAX,
    REFUSED_SECONDS,
    TRIED_MAX,
    UIDS_MAX,
    CardsVersion,
    RefusedPods,
)
from ledger.core.model.denials import Denial
from ledger.kube.requests.device_request_parser import device_request_of

BEFORE: Final = CardsVersion(1, 0)
AFTER: Final = CardsVersion(2, 0)


def request(name: str, memory: int = 1_000, namespace: str = "team") -> SchedulingRequest:
    made = pod(name, gpu=1, gpumem=memory)
    devices = device_request_of(made, RULES)
    assert not isinstance(devices, Denial)
    qualified = f"{CLUSTER}/{namespace}"
    return msgspec.structs.replace(request_for(made, devices, CLUSTER), namespace=qualified)


def due(pods: RefusedPods, version: CardsVersion = AFTER, now: float = 1.0) -> list[str]:
    """Return the newest pods of the groups that are due."""
    return [group.request.key.removeprefix("pods/") for group in pods.due(version, now)]


def test_a_group_is_due_when_the_cards_have_changed():
    pods = RefusedPods()
    pods.add(request("a"), b"", BEFORE, 0.0)
    assert due(pods, BEFORE) == []
    assert due(pods, AFTER) == ["a"]
    assert due(pods, CardsVersion(1, 1)) == ["a"]


def test_pods_that_ask_for_the_same_on_the_same_nodes_are_one_group():
    pods = RefusedPods()
    for name in ("a", "b"):
        pods.add(request(name), b"", BEFORE, 0.0)
    pods.add(request("c"), b"\x80", BEFORE, 0.0)
    pods.add(request("d", memory=2_000), b"", BEFORE, 0.0)
    assert due(pods) == ["b", "c", "d"]


def test_a_group_ends_with_its_last_pod():
    pods = RefusedPods()
    for name in ("a", "b"):
        pods.add(request(name), b"", BEFORE, 0.0)
    pods.discard(request("b"))
    assert len(pods) == 1
    pods.discard(request("a"))
    assert len(pods) == 0


def test_a_group_with_more_pods_than_are_known_stays_until_it_expires():
    pods = RefusedPods()
    for number in range(UIDS_MAX + 1):
        pods.add(request(f"p-{number}"), b"", BEFORE, 0.0)
    for number in range(UIDS_MAX):
        pods.discard(request(f"p-{number}"))
    assert len(pods) == 1
    assert due(pods, now=REFUSED_SECONDS) == []
    assert len(pods) == 0


def test_a_group_of_many_pods_may_have_any_with_its_request():
    pods = RefusedPods()
    for number in range(UIDS_MAX):
        pods.add(request(f"p-{number}"), b"", BEFORE, 0.0)
    [group] = pods.due(AFTER, 0.0)
    assert (group.may_have(request("p-0")), group.may_have(request("p"))) == (True, False)
    pods.add(request("last"), b"", BEFORE, 0.0)
    assert group.may_have(request("p"))
    assert not group.may_have(request("p", memory=2_000))
    assert not group.may_have(request("p", namespace="other"))


def test_a_pod_with_another_request_leaves_its_group():
    pods = RefusedPods()
    pods.add(request("a"), b"", BEFORE, 0.0)
    pods.add(request("a", memory=2_000), b"", BEFORE, 0.0)
    assert len(pods) == 1


def test_a_group_is_not_due_when_one_of_its_pods_was_refused_again():
    pods = RefusedPods()
    for name in ("a", "b"):
        pods.add(request(name), b"", BEFORE, 0.0)
    [group] = pods.due(AFTER, 0.0)
    group.fit = True
    pods.add(request("a"), b"", AFTER, 0.0)
    assert due(pods, AFTER) == []


def test_many_groups_of_some_namespaces_displace_only_their_own():
    pods = RefusedPods()
    for number in range(1_000):
        for namespace in ("flood-1", "flood-2", "flood-3"):
            pods.add(request(f"p-{number}", 1 + number, namespace), b"", BEFORE, 0.0)
    pods.add(request("mine", namespace="small"), b"", BEFORE, 0.0)
    assert len(pods) == 3 * GROUPS_MAX + 1
    assert "mine" in due(pods)


def test_all_groups_of_a_namespace_come_in_turn():
    pods = RefusedPods()
    names = {(f"ns-{number}", memory) for number in range(TRIED_MAX) for memory in (1, 2)}
    for namespace, memory in sorted(names):
        pods.add(request(f"{namespace}-{memory}", memory, namespace), b"", BEFORE, 0.0)
    rounds = [due(pods) for _ in range(2)]
    assert {name for tried in rounds for name in tried} == {
        f"{namespace}-{memory}" for namespace, memory in names
    }


def test_namespaces_are_bounded_and_all_come_in_turn():
    pods = RefusedPods()
    for number in range(NAMESPACES_MAX + 10):
        pods.add(request(f"p-{number}", namespace=f"ns-{number}"), b"", BEFORE, 0.0)
    assert len(pods) == NAMESPACES_MAX
    rounds = [due(pods) for _ in range(NAMESPACES_MAX // TRIED_MAX)]
    assert {name for tried in rounds for name in tried} == {
        f"p-{number}" for number in range(10, NAMESPACES_MAX + 10)
    }
