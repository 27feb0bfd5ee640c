"""Changes of what quotas select by: joining a quota needs room, leaving one is refused."""

from copy import deepcopy
from typing import Any

import pytest
from support.builders.admission_reviews import GPU, NAMESPACE, CoreLedger, review, serving
from support.fakes.owner_cluster import (
    DEPLOYER,
    DEPLOYMENTS,
    REPLICATOR,
    SETS,
    Manifest,
    OwnerCluster,
    around,
    controlled_by,
    manifest,
    of,
    template,
)

from ledger.core.decide.decider import decide
from ledger.core.model.commands import AnyCommand, Observe, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.traits import Requirement
from ledger.kube.api.api_resources import PODS, Resource
from ledger.log.ledger_port import Accepted
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.namespace_policies import NamespacePolicy

GOLD = (Requirement("tier", "In", ("gold",)),)
HIGH = (Requirement("!priority", "In", ("high",)),)
GATE = [{"name": "gpuledger.io/quota"}]


class Team:
    """A namespace with a quota of two cards over what has the label tier=gold."""

    def __init__(self, *objects: Manifest, selects: Any = GOLD, **policy: Any) -> None:
        self.ledger = CoreLedger()
        self.ledger.limit(selects=selects, cards=2)
        self.policy: AdmissionSettings | None = None
        self.cluster = OwnerCluster(*objects)
        self.context = around(self.ledger, self.cluster, default=NamespacePolicy(**policy))

    async def ask(
        self, resource: Resource, new: Manifest, old: Manifest | None = None, user: str = "ada"
    ) -> dict[str, Any]:
        operation = "CREATE" if old is None else "UPDATE"
        info, ledger, policy = {"username": user, "groups": []}, self.ledger, self.policy
        async with serving(ledger, policy=policy, context=self.context) as service:
            request = review(new, old, operation=operation, userInfo=info, **of(resource))
            return await service.post(request)

    async def created(self, resource: Resource, new: Manifest, user: str = "ada") -> None:
        assert (await self.ask(resource, new, user=user))["allowed"]

    def used(self) -> int:
        return self.ledger.used()[f"limits.{GPU}"]


def pod(
    name: str, *, owner: Manifest | None = None, gated: bool = False, **labels: str
) -> Manifest:
    new_pod = manifest(PODS, name, labels=labels, owner=owner)
    new_pod["spec"] = template()["spec"] | ({"schedulingGates": GATE} if gated else {})
    return new_pod


def changed(thing: Manifest, **labels: str) -> Manifest:
    copied = deepcopy(thing)
    copied["metadata"]["labels"] = labels
    return copied


def reasons(response: dict[str, Any]) -> list[str]:
    return [cause["reason"] for cause in response["status"]["details"]["causes"]]


async def test_a_label_that_no_quota_selects_by_costs_nothing() -> None:
    team = Team()
    await team.created(PODS, pod("p", tier="gold"))
    before = len(team.ledger.submitted)
    answer = await team.ask(PODS, pod("p", tier="gold", app="other"), pod("p", tier="gold"))
    assert answer["allowed"]
    assert len(team.ledger.submitted) == before


@pytest.mark.parametrize("gated", [False, True])
async def test_a_pod_is_labelled_onto_a_quota_only_where_there_is_room(gated: bool) -> None:
    team = Team()
    for name in ("a", "b", "c"):
        await team.created(PODS, pod(name, gated=gated))
    for name in ("a", "b"):
        gold = pod(name, gated=gated, tier="gold")
        assert (await team.ask(PODS, gold, pod(name, gated=gated)))["allowed"]
    last = await team.ask(PODS, pod("c", gated=gated, tier="gold"), pod("c", gated=gated))
    assert reasons(last) == ["QuotaExceeded"]
    assert team.used() == 2


@pytest.mark.parametrize("labels", [{}, {"tier": "silver"}])
@pytest.mark.parametrize("gated", [False, True])
async def test_a_pod_is_not_labelled_off_a_quota(labels: dict[str, str], gated: bool) -> None:
    team = Team()
    stored = pod("a", gated=gated, tier="gold")
    await team.created(PODS, stored)
    answer = await team.ask(PODS, changed(stored, **labels), stored)
    assert reasons(answer) == ["LeavesQuota"]


class Sparing(CoreLedger):
    """A ledger that records nothing new, once it has a reason."""

    reason: Reason | None = None

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        if self.reason is not None and isinstance(command, Reserve):
            decision = decide(self.state, command)
            if decision and not isinstance(decision, Denial):
                return Denial(self.reason, "not now", transient=True)
        return await super().submit(command, dry_run=dry_run)


def sparing() -> tuple[Team, Sparing]:
    """Return a team whose quota counts every object with the label tier, and its ledger."""
    team = Team(selects=(Requirement("tier", "Exists", ()),))
    team.ledger.__class__ = Sparing
    assert isinstance(team.ledger, Sparing)
    return team, team.ledger


@pytest.mark.parametrize(
    ("reason", "is_allowed"),
    [
        (Reason.LOG_SHARE_EXCEEDED, False),
        (Reason.LOG_FULL, False),
        (Reason.LEDGER_UNAVAILABLE, True),
    ],
)
async def test_labels_that_a_quota_selects_by_are_not_changed_again_and_again(
    reason: Reason, is_allowed: bool
) -> None:
    """Each change is recorded, also one that no quota counts otherwise."""
    team, ledger = sparing()
    stored = pod("a", tier="1")
    await team.created(PODS, stored)
    assert (await team.ask(PODS, changed(stored, tier="2"), stored))["allowed"]
    ledger.reason = reason
    answer = await team.ask(PODS, changed(stored, tier="3"), stored)
    assert answer["allowed"] is is_allowed
    assert (await team.ask(PODS, changed(stored, tier="1", app="x"), stored))["allowed"]


async def test_pending_pod_is_labelled_onto_a_quota_when_there_is_room() -> None:
    team = Team(on_exceeded="pending")
    for name in ("a", "b"):
        await team.created(PODS, pod(name, tier="gold"))
    await team.created(PODS, pod("c", gated=True))
    assert team.used() == 2
    last = await team.ask(PODS, pod("c", gated=True, tier="gold"), pod("c", gated=True))
    assert reasons(last) == ["QuotaExceeded"]


async def test_replica_without_a_gated_pod_in_its_state_asks_for_room_too() -> None:
    team = Team()
    behind = deepcopy(team.ledger.state)
    for name in ("a", "b", "c"):
        await team.created(PODS, pod(name, gated=True))
    team.context.view = CoreLedger()
    team.context.view.state = behind
    for name in ("a", "b"):
        gold = pod(name, gated=True, tier="gold")
        assert (await team.ask(PODS, gold, pod(name, gated=True)))["allowed"]
    last = await team.ask(PODS, pod("c", gated=True, tier="gold"), pod("c", gated=True))
    assert reasons(last) == ["QuotaExceeded"]


async def test_charged_gated_pod_is_enlarged_when_there_is_room() -> None:
    team = Team(selects=())
    await team.created(PODS, pod("a", gated=True))
    await team.created(PODS, pod("b"))
    larger = pod("a", gated=True)
    larger["spec"] = deepcopy(larger["spec"])
    [container] = larger["spec"]["containers"]
    container["resources"]["limits"][GPU] = "2"
    assert reasons(await team.ask(PODS, larger, pod("a", gated=True))) == ["QuotaExceeded"]


async def test_where_an_unavailable_ledger_lets_pass_a_full_log_does_too() -> None:
    team, ledger = sparing()
    team.policy = AdmissionSettings(allow_unavailable=True)
    stored = pod("a", tier="1")
    await team.created(PODS, stored)
    for reason, is_allowed in ((Reason.LOG_FULL, True), (Reason.LOG_SHARE_EXCEEDED, False)):
        ledger.reason = reason
        answer = await team.ask(PODS, changed(stored, tier="2"), stored)
        assert answer["allowed"] is is_allowed


async def test_what_a_quota_lacks_does_not_let_labels_change_again_and_again() -> None:
    """A pod of an envelope that was never reserved would be refused for want of room."""
    team, ledger = sparing()
    root, key, demand = "deployments.apps/d", "pods/a", {GPU: 5}
    ledger.apply(Observe(NAMESPACE, root, "u-d", 1, demand, traits=("tier=1",)))
    stored = pod("a", tier="1")
    uid, version = stored["metadata"]["uid"], int(stored["metadata"]["resourceVersion"])
    ledger.apply(Observe(NAMESPACE, key, uid, version, {GPU: 1}, root=root, traits=("tier=1",)))
    ledger.reason = Reason.LOG_SHARE_EXCEEDED
    assert not (await team.ask(PODS, changed(stored, tier="2"), stored))["allowed"]


async def test_a_pod_that_has_ended_may_be_labelled_as_one_likes() -> None:
    team = Team()
    stored = pod("a", tier="gold")
    await team.created(PODS, stored)
    stored["status"] = {"phase": "Succeeded"}
    assert (await team.ask(PODS, changed(stored), stored))["allowed"]


@pytest.mark.parametrize("is_seen", [True, False])
async def test_template_stays_on_its_quota_when_it_asks_for_nothing_between(
    is_seen: bool,
) -> None:
    team = Team()
    stored = manifest(DEPLOYMENTS, template=template(tier="gold"), replicas=2)
    await team.created(DEPLOYMENTS, stored)
    [created] = [command for command in team.ledger.commands() if isinstance(command, Reserve)]
    asked, traits = created.demand, created.traits
    where = (created.namespace, created.key, created.uid)
    await team.ledger.submit(Observe(*where, 2, asked, traits=traits, generation=1))
    for number in range(2):
        child = (created.namespace, f"pods/p-{number}", f"u-p-{number}", 3)
        half = {name: amount // 2 for name, amount in asked.items()}
        await team.ledger.submit(Observe(*child, half, root=created.key, traits=traits))
    nothing = deepcopy(stored)
    nothing["metadata"]["resourceVersion"] = "4"
    nothing["spec"] |= {"paused": True}
    nothing["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert (await team.ask(DEPLOYMENTS, nothing, stored))["allowed"]
    if is_seen:
        await team.ledger.submit(Observe(*where, 4, {}, generation=2))
    other = deepcopy(nothing)
    other["spec"]["template"] = template()
    assert reasons(await team.ask(DEPLOYMENTS, other, nothing)) == ["LeavesQuota"]
    gold = deepcopy(nothing)
    gold["spec"]["template"] = template(tier="gold")
    assert (await team.ask(DEPLOYMENTS, gold, nothing))["allowed"]
    assert team.used() == 2


@pytest.mark.parametrize("replicas", [0, 2])
async def test_template_stays_on_its_quota_with_any_replicas(replicas: int) -> None:
    team = Team()
    stored = manifest(DEPLOYMENTS, template=template(tier="gold"), replicas=2)
    await team.created(DEPLOYMENTS, stored)
    stored["spec"] |= {"replicas": replicas, "paused": True}
    other = deepcopy(stored)
    other["spec"]["template"] = template()
    assert reasons(await team.ask(DEPLOYMENTS, other, stored)) == ["LeavesQuota"]
    assert team.used() == 2


async def test_a_template_keeps_a_priority_class_that_a_quota_selects_by() -> None:
    team = Team(selects=HIGH)
    stored = manifest(DEPLOYMENTS, template=template(), replicas=2)
    stored["spec"]["template"]["spec"]["priorityClassName"] = "high"
    await team.created(DEPLOYMENTS, stored)
    other = deepcopy(stored)
    other["spec"]["template"]["spec"]["priorityClassName"] = "low"
    assert reasons(await team.ask(DEPLOYMENTS, other, stored)) == ["LeavesQuota"]


async def test_exempt_users_may_take_an_object_off_a_quota() -> None:
    team = Team(exempt_users=("ada",))
    stored = pod("a", tier="gold")
    await team.created(PODS, stored)
    assert (await team.ask(PODS, changed(stored), stored))["allowed"]


def adopting() -> tuple[Manifest, Manifest, Manifest]:
    """Return a Deployment that no quota counts, a ReplicaSet that one does, and it adopted."""
    web = manifest(DEPLOYMENTS, replicas=1)
    stored = manifest(SETS, "set", template=template(tier="gold"), replicas=2)
    adopted = deepcopy(stored)
    adopted["metadata"]["ownerReferences"] = [controlled_by(web)]
    return web, stored, adopted


@pytest.mark.parametrize("charged", [False, True])
async def test_what_a_quota_counts_is_not_adopted_by_what_it_does_not(charged: bool) -> None:
    web, stored, adopted = adopting()
    team = Team(web)
    await team.created(SETS, stored)
    if charged:
        await team.created(DEPLOYMENTS, web)
    assert reasons(await team.ask(SETS, adopted, stored, DEPLOYER)) == ["LeavesQuota"]


async def test_an_exempt_controller_may_adopt_it() -> None:
    web, stored, adopted = adopting()
    team = Team(web, exempt_users=(DEPLOYER,))
    await team.created(SETS, stored)
    assert (await team.ask(SETS, adopted, stored, DEPLOYER))["allowed"]


async def test_an_owner_that_cannot_be_read_lets_an_adoption_pass() -> None:
    _, stored, adopted = adopting()
    team = Team()
    await team.created(SETS, stored)
    assert (await team.ask(SETS, adopted, stored, DEPLOYER))["allowed"]


async def test_a_pod_is_not_adopted_by_what_a_quota_does_not_count() -> None:
    owner = manifest(SETS, "set", replicas=1)
    team = Team(owner)
    await team.created(SETS, owner)
    stored = pod("a", tier="gold")
    await team.created(PODS, stored)
    adopted = pod("a", tier="gold", owner=owner)
    assert reasons(await team.ask(PODS, adopted, stored, REPLICATOR)) == ["LeavesQuota"]
    gold = [command for command in team.ledger.commands() if isinstance(command, Reserve)]
    assert len(gold) == 2
