"""Labels that quotas select by: what changes them is judged, and what exists is charged.

A quota over everything selects by a label. No object gets onto it over its limit, or off it, by
labels that are written after the object was reviewed.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import pytest

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Row
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.policies import under
from tests.e2e.objects.team import SEEN_SECONDS, Team
from tests.e2e.objects.workloads import TeamWorkloads, replicated
from tests.e2e.settlement.test_universe import universe, used

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
HUGE: Final = {f"filler-{number:05}": "x" * 63 for number in range(14_000)}
"""1.1 MB of labels: with what the API server adds to them, all that etcd takes."""

large = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


class Group(NamedTuple):
    """A quota of two cards over what has a label of its own."""

    team: Team
    name: str
    key: str

    def labels(self, **more: str) -> dict[str, str]:
        return {self.key: "in", **more}

    async def counts(self, cards: int) -> None:
        """Wait until ledger and cluster agree that the quota counts so many cards."""
        assert await used(self.name, self.team) == cards

    def space(self) -> TeamWorkloads:
        return TeamWorkloads(self.team)

    def deployment(self, replicas: int, name: str = "web", **labels: str) -> Manifest:
        made = replicated("Deployment", replicas, name)
        return carrying(made, **labels)


def carrying(made: Manifest, **labels: str) -> Manifest:
    """Give the template of a workload labels that its selector does not have."""
    meta = made["spec"]["template"]["metadata"]
    meta["labels"] = meta["labels"] | labels
    return made


@pytest.fixture
async def group(team: Team) -> AsyncIterator[Group]:
    """Make a quota of two cards that selects by a label which nothing has yet."""
    key = f"group-{uuid.uuid4().hex[:8]}"
    selector = {"matchLabels": {key: "in"}}
    async with universe(team, 2, objectSelector=selector) as name:
        await conditions_have(team, key)
        yield Group(team, name, key)


async def conditions_have(team: Team, key: str) -> None:
    """Wait until changes of a label are reviewed."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger"

    async def look() -> str:
        return str(await team.cluster.must("GET", path))

    await eventually(look, lambda seen: key in seen, within=SEEN_SECONDS, what=f"{key} is reviewed")
    # An API server takes up a changed configuration a moment after it has stored it.
    await asyncio.sleep(1.0)


async def relabelled(space: TeamWorkloads, kind: str, name: str, **labels: str | None) -> Any:
    return await space.change(kind, name, {"metadata": {"labels": labels}})


def refused(answer: Any) -> None:
    assert answer.status == 403, answer
    assert "LeavesQuota" in answer.message


async def test_a_running_pod_is_not_labelled_onto_a_full_quota(group: Group) -> None:
    space = group.space()
    await space.created(pod("a", labels=group.labels()))
    await space.created(pod("b", labels=group.labels()))
    await space.created(pod("c"))
    answer = await relabelled(space, "Pod", "c", **group.labels())
    assert answer.status == 403
    assert "allows 2, 2 are used" in answer.message
    await group.counts(2)
    assert (await relabelled(space, "Pod", "c", other="x")).status == 200


async def test_a_running_pod_is_not_labelled_off_a_quota(group: Group) -> None:
    space = group.space()
    for name in ("a", "b"):
        await space.created(pod(name, labels=group.labels()))
    await group.counts(2)
    refused(await relabelled(space, "Pod", "a", **{group.key: None}))
    refused(await relabelled(space, "Pod", "b", **{group.key: "out"}))
    await group.counts(2)


@pytest.mark.parametrize("how", ["paused", "at zero replicas", "of the root itself"])
async def test_a_deployment_is_not_taken_off_a_quota(group: Group, how: str) -> None:
    space = group.space()
    made = group.deployment(2, **({} if how.startswith("of") else group.labels()))
    if how.startswith("of"):
        made["metadata"]["labels"] = group.labels()
    await space.created(made)
    await space.pods_are(2)
    if how == "at zero replicas":
        assert (await space.scale("Deployment", "web", 0)).status == 200
    elif how == "paused":
        assert (await space.change("Deployment", "web", {"spec": {"paused": True}})).status == 200
    off: Manifest = {"metadata": {"labels": {group.key: None}}}
    refused(
        await space.change(
            "Deployment", "web", off if how.startswith("of") else {"spec": {"template": off}}
        )
    )
    await group.counts(0 if how == "at zero replicas" else 2)


async def test_a_deployment_without_cards_is_counted_with_its_remaining_pods(
    group: Group,
) -> None:
    space = group.space()
    await space.created(group.deployment(2, **group.labels()))
    await space.pods_are(2)
    await group.counts(2)
    plain = {"containers": [{"name": "main", "image": "busybox"}]}
    template = {"metadata": {"labels": {group.key: None}}, "spec": plain}
    change = {"paused": True, "template": template}
    assert (await space.change("Deployment", "web", {"spec": change})).status == 200
    again = await space.create(pod("more", labels=group.labels()))
    assert again.status == 403, again
    assert len(await space.live()) == 2


async def test_a_replica_set_is_not_adopted_by_a_deployment_outside_the_quota(
    group: Group,
) -> None:
    space = group.space()
    made = replicated("ReplicaSet", 2, "web")
    made["metadata"]["labels"] = {"app": "web", "pod-template-hash": "x"}
    carrying(made, **group.labels())
    await space.created(made)
    await space.pods_are(2)
    await group.counts(2)
    await space.created(group.deployment(1))
    await asyncio.sleep(3.0)  # the controller tries to adopt it
    stored = await space.get("ReplicaSet", "web")
    assert not stored["metadata"].get("ownerReferences")
    assert await used_now(group) == 2


async def test_pods_are_not_adopted_by_a_replica_set_outside_the_quota(
    group: Group,
) -> None:
    space = group.space()
    for name in ("a", "b"):
        await space.created(pod(name, labels=group.labels(app="web")))
    await group.counts(2)
    await space.created(replicated("ReplicaSet", 2, "web"))
    await asyncio.sleep(3.0)  # the controller tries to adopt them
    for name in ("a", "b"):
        stored = await space.get("Pod", name)
        assert not stored["metadata"].get("ownerReferences")
    assert await used_now(group) == 2


async def test_an_exempt_controller_may_adopt_what_a_quota_counts(group: Group) -> None:
    space = group.space()
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    async with under(group.team, {LINE: "9"}, exempt={"users": [controller]}):
        await space.created(pod("a", labels=group.labels(app="web")))
        await group.counts(1)
        await space.created(replicated("ReplicaSet", 1, "web"))

        async def owners() -> list[Any]:
            stored = await space.get("Pod", "a")
            return list(stored["metadata"].get("ownerReferences", ()))

        await eventually(owners, bool, within=SEEN_SECONDS, what="the pod is adopted")


async def test_a_pod_behind_a_gate_of_its_own_is_charged_and_judged(group: Group) -> None:
    space = group.space()
    for number in range(4):
        made = pod(f"p-{number}")
        made["spec"]["schedulingGates"] = [{"name": "gpuledger.io/quota"}]
        await space.created(made)
    answers = [
        (await relabelled(space, "Pod", f"p-{number}", **group.labels())).status
        for number in range(4)
    ]
    assert answers == [200, 200, 403, 403]
    await group.counts(2)


async def used_now(group: Group) -> int:
    rows: list[Row] = await group.team.service.get("/v1/usage", limit="5000")
    [row] = [
        candidate
        for candidate in rows
        if (candidate["namespace"], candidate["quota"]) == ("", group.name)
    ]
    return int(row["used"])


@large
@pytest.mark.parametrize("mode", ["warn", "off"])
async def test_pods_with_a_megabyte_of_labels_are_charged(group: Group, mode: str) -> None:
    space = group.space()
    async with under(group.team, {LINE: "9"}, mode=mode):
        for number in range(3):
            await space.created(pod(f"p-{number}", labels=group.labels(**HUGE)))
        await group.counts(3)


@large
async def test_a_workload_of_any_kind_with_a_megabyte_of_labels_is_charged(group: Group) -> None:
    space = group.space()
    made = group.deployment(2, **group.labels())
    made["metadata"]["labels"] = HUGE
    await space.created(made)
    await space.pods_are(2)
    await group.counts(2)
    assert (await space.create(pod("more", labels=group.labels()))).status == 403


@pytest.mark.long
@large
async def test_labels_that_no_quota_selects_by_do_not_fill_the_log(group: Group) -> None:
    space = group.space()
    await space.created(pod("p", labels=group.labels()))
    await group.counts(1)
    before = await group.team.service.metric("gpuledger_log_bytes")
    for turn in range(20):
        filler = dict.fromkeys(HUGE, f"{turn:063}")
        assert (await relabelled(space, "Pod", "p", **filler)).status == 200
    await space.created(pod("q", labels=group.labels()))
    await group.counts(2)
    # 18 MB of labels were written. The log records only that none of them are of interest.
    grown = await group.team.service.metric("gpuledger_log_bytes") - before
    assert grown < 100_000, grown
