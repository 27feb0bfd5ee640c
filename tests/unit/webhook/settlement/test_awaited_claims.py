"""Settlement never raises a charge for claims that do not exist, and keeps what is not known."""

import msgspec
import pytest
from support.claims.claim_reviews import (
    GI,
    ClaimTeam,
    claim_template,
    claiming_pod,
    generated,
    read,
    resource_claim,
    resource_slice,
)
from support.fakes.owner_cluster import CATALOG, DEPLOYMENTS, Manifest, manifest

from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Reserve
from ledger.core.model.events import Cause
from ledger.kube.api.cluster_ports import Interrupted
from ledger.kube.api.objects import Pod, Workload
from ledger.kube.api.pod_gates import GATE
from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.settlement.observation_commands import ObservedObject, with_promised_demand
from webhook.settlement.pod_observation import observe_counted_pod
from webhook.settlement.resource_claims.claim_observation import observe_claim
from webhook.settlement.workloads.charging_modes import ChargingMode
from webhook.settlement.workloads.workload_observation import observe_workload

MEMORY = "nvidia.com/gpumem"
ROOT = "deployments.apps/web"
[DEPLOYMENT] = [kind for kind in CATALOG if kind.name == DEPLOYMENTS.name]


def charge(team: ClaimTeam, key: str, uid: str, gi: int) -> None:
    team.ledger.apply(Reserve("east/team", key, uid, {MEMORY: gi * GI}))


def seen_pod(team: ClaimTeam, pod: Manifest | None = None) -> ObservedObject:
    body = pod or claiming_pod()
    body["metadata"]["resourceVersion"] = "7"
    seen = observe_counted_pod(msgspec.convert(body, Pod), "east", team.context.rules)
    return with_promised_demand(team.ledger.state, seen)


def seen_root(
    team: ClaimTeam,
    replicas: int = 3,
    *,
    template_uid: str = "",
    created: int = 0,
    template_created: int = 0,
) -> ObservedObject:
    body = manifest(DEPLOYMENTS, "web", replicas=replicas)
    template = body["spec"]["template"]
    template["metadata"]["uid"] = template_uid
    if created:
        dated(body, created)
    if template_created:
        dated(template, template_created)
    template["spec"]["containers"] = [{"name": "main"}]
    template["spec"]["resourceClaims"] = claiming_pod()["spec"]["resourceClaims"]
    workload = msgspec.convert(body, Workload)
    mode = ChargingMode(surge="opportunistic", elastic_max=False, pods_only=False)
    observed = observe_workload(DEPLOYMENT, workload, "east", team.context.rules, mode)
    return with_promised_demand(team.ledger.state, observed.seen)


def mib(demand: Amounts) -> int:
    return demand.get(MEMORY, 0)


def test_pod_keeps_its_charge_when_a_template_is_made_larger() -> None:
    team = ClaimTeam()
    charge(team, "pods/p", "u-p", 8)
    team.list_templates(claim_template(gi=80))
    assert mib(seen_pod(team).demand) == 8 * GI


def test_pod_is_charged_less_when_a_template_is_made_smaller() -> None:
    team = ClaimTeam()
    charge(team, "pods/p", "u-p", 8)
    team.list_templates(claim_template(gi=2))
    assert mib(seen_pod(team).demand) == 2 * GI


def test_pod_without_a_charge_is_not_charged_for_a_later_template() -> None:
    team = ClaimTeam()
    assert seen_pod(team).demand == {}
    charge(team, "pods/p", "u-other", 80)
    assert seen_pod(team).demand == {}


def test_pod_is_charged_for_an_existing_claim_without_a_review() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(generated(claiming_pod(), gi=40)))
    assert mib(seen_pod(team).demand) == 40 * GI


def test_gated_pod_asks_for_all_of_its_claims() -> None:
    team = ClaimTeam()
    seen = seen_pod(team, claiming_pod(gate=GATE))
    assert (seen.gated, mib(seen.demand)) == (True, 8 * GI)


def test_pod_keeps_its_charge_and_traits_while_templates_are_not_listed() -> None:
    team = ClaimTeam()
    charge(team, "pods/p", "u-p", 8)
    expected = seen_pod(team)
    team.list_templates()
    team.store.templates.take(Interrupted("forbidden"))
    kept = seen_pod(team)
    assert (mib(kept.demand), kept.traits) == (8 * GI, expected.traits)


def test_root_keeps_its_charge_when_a_template_is_made_larger() -> None:
    team = ClaimTeam()
    charge(team, ROOT, "u-web", 24)
    team.list_templates(claim_template(gi=80))
    assert mib(seen_root(team).demand) == 24 * GI
    assert mib(seen_root(team, 9).demand) == 24 * GI


def test_root_without_a_charge_is_not_charged_for_a_later_template() -> None:
    team = ClaimTeam()
    assert seen_root(team).demand == {}


def test_root_keeps_its_charge_while_templates_are_not_listed() -> None:
    """Else each root would be released whenever a service starts."""
    team = ClaimTeam()
    charge(team, ROOT, "u-web", 24)
    team.list_templates()
    assert seen_root(team).cause == Cause.MOVED
    team.store.templates.take(Interrupted("forbidden"))
    seen = seen_root(team)
    assert (seen.cause, mib(seen.demand)) == ("", 24 * GI)


def test_root_keeps_its_charge_while_classes_are_not_listed() -> None:
    team = ClaimTeam()
    charge(team, ROOT, "u-web", 24)
    team.list_classes()
    assert seen_root(team).demand == {}
    team.store.classes.take(Interrupted("forbidden"))
    assert mib(seen_root(team).demand) == 24 * GI


@pytest.mark.parametrize("gi", [10**6, 4 * 10**8])
def test_root_is_not_released_for_a_template_beyond_all_amounts(gi: int) -> None:
    team = ClaimTeam()
    charge(team, ROOT, "u-web", 24)
    team.list_templates(claim_template(gi=gi))
    seen = seen_root(team, 10**6)
    assert (seen.problem, seen.cause, mib(seen.demand)) == ("", "", 24 * GI)


def test_template_cannot_name_the_pod_whose_claims_count() -> None:
    """A tenant writes the uid of a pod with a small claim into a template's metadata."""
    team = ClaimTeam()
    charge(team, ROOT, "u-web", 24)
    team.store.note_claim(read(generated(claiming_pod(), gi=1)))
    assert mib(seen_root(team, template_uid="u-p").demand) == 24 * GI


def dated(body: Manifest, second: int) -> Manifest:
    body["metadata"]["creationTimestamp"] = f"2026-11-28T00:00:{second:02}Z"
    return body


@pytest.mark.parametrize(
    ("second", "expected"), [(4, 72), (5, 72), (6, 24)], ids=["older", "same", "younger"]
)
def test_root_is_charged_for_its_pods_by_a_template_of_every_review(
    second: int, expected: int
) -> None:
    """The Deployment was scaled without a review."""
    team = ClaimTeam()
    charge(team, ROOT, "u-web", 24)
    team.list_templates(dated(claim_template(), second))
    assert mib(seen_root(team, 9, created=5).demand) == expected * GI


@pytest.mark.parametrize(("second", "expected"), [(5, 24), (6, 0)], ids=["same", "younger"])
def test_root_that_was_never_reviewed_is_charged_by_an_older_template(
    second: int, expected: int
) -> None:
    team = ClaimTeam()
    team.list_templates(dated(claim_template(), second))
    assert mib(seen_root(team, created=5).demand) == expected * GI


def test_template_cannot_name_a_later_creation_of_its_workload() -> None:
    """A tenant writes a creation into the metadata of the pod template."""
    team = ClaimTeam()
    charge(team, ROOT, "u-web", 24)
    team.list_templates(dated(claim_template(gi=80), 6))
    assert mib(seen_root(team, created=5, template_created=7).demand) == 24 * GI


def test_pod_keeps_its_charge_when_an_older_template_is_larger() -> None:
    """Its claim is reviewed when it is made, so it is charged then."""
    team = ClaimTeam()
    charge(team, "pods/p", "u-p", 8)
    team.list_templates(dated(claim_template(gi=80), 4))
    assert mib(seen_pod(team, dated(claiming_pod(), 5)).demand) == 8 * GI


def seen_claim(team: ClaimTeam, claim: ResourceClaim) -> ObservedObject:
    demand = team.store.of_claim(claim)
    seen = observe_claim(claim, "east", demand, given=None, traits=("t",))
    return with_promised_demand(team.ledger.state, seen)


def whole_card() -> Manifest:
    claim = resource_claim("own")
    del claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
    return claim


@pytest.mark.parametrize("lost", ["classes", "slices"])
def test_claim_keeps_its_charge_when_its_supply_is_gone(lost: str) -> None:
    """Else room is given away twice: the supply comes back before the allocation."""
    team = ClaimTeam()
    team.list_slices(resource_slice(shared=False))
    claim = read(whole_card())
    charge(team, "resourceclaims.resource.k8s.io/own", claim.metadata.uid, 80)
    assert mib(seen_claim(team, claim).demand) == 80 * GI
    getattr(team, f"list_{lost}")()
    seen = seen_claim(team, claim)
    assert (mib(seen.demand), seen.traits) == (80 * GI, ("t",))


def test_claim_keeps_its_charge_when_its_largest_device_is_gone() -> None:
    team = ClaimTeam()
    small, large = (resource_slice(f"n{gi}", gi=gi, shared=False) for gi in (40, 80))
    team.list_slices(small, large)
    claim = read(whole_card())
    charge(team, "resourceclaims.resource.k8s.io/own", claim.metadata.uid, 80)
    team.list_slices(small)
    assert mib(seen_claim(team, claim).demand) == 80 * GI


def test_claim_without_a_charge_is_not_charged_for_an_unknown_class() -> None:
    team = ClaimTeam()
    team.list_classes()
    assert seen_claim(team, read(whole_card())).demand == {}


def test_claim_and_pod_of_devices_for_administration_have_traits() -> None:
    """Else each quota that selects by labels is incomplete while they exist."""
    team = ClaimTeam()
    request = {"deviceClassName": "gpu", "adminAccess": True}
    spec = {"devices": {"requests": [{"name": "main", "exactly": request}]}}
    seen = seen_claim(team, read(resource_claim("own", spec)))
    assert (seen.demand, seen.traits) == ({}, ("t",))
    template = claim_template()
    template["spec"]["spec"] = spec
    team.list_templates(template)
    pod = seen_pod(team)
    assert (pod.demand, pod.traits) == ({}, ("!best-effort",))


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("lost", ["classes", "slices"])
def test_pod_keeps_its_charge_when_its_supply_is_gone(lost: str, exists: bool) -> None:
    team = ClaimTeam()
    team.list_slices(resource_slice(shared=False))
    whole = claim_template()
    del whole["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
    team.list_templates(whole)
    if exists:
        made = generated(claiming_pod())
        del made["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
        team.store.note_claim(read(made))
    charge(team, "pods/p", "u-p", 80)
    assert mib(seen_pod(team).demand) == 80 * GI
    getattr(team, f"list_{lost}")()
    seen = seen_pod(team)
    assert (mib(seen.demand), bool(seen.traits)) == (80 * GI, True)
