"""Objects under another workload are charged with it if its expected controller made them."""

from copy import deepcopy

import pytest
from support.builders.admission_reviews import GPU, MEMORY
from support.builders.reviewed_namespaces import ReviewedNamespace, changed, reasons
from support.fakes.owner_cluster import (
    DEPLOYER,
    DEPLOYMENTS,
    SETS,
    controlled_by,
    manifest,
    remember,
    template,
)

from ledger.core.model.commands import BARRED
from webhook.kinds.kind_catalog import KindCatalog

DEMAND = {GPU: 3, MEMORY: 24_000}
TRAITS = ("!best-effort",)
WEB = "deployments.apps/web"
DEPLOYMENT = manifest(DEPLOYMENTS, "web", replicas=3)

SET = manifest(SETS, "web-1", owner=DEPLOYMENT, replicas=3)


async def test_what_the_expected_controller_makes_is_charged_with_its_root() -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    response = await team.answer(SETS, SET, userInfo={"username": DEPLOYER})
    assert response == {"uid": "call-1", "allowed": True}
    assert team.ledger.submitted == []


async def test_the_expected_controller_may_be_a_group() -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    user = {"username": "controller-1", "groups": ["system:kube-controller-manager"]}
    await team.answer(SETS, SET, userInfo=user)
    assert team.ledger.submitted == []


async def test_object_counts_by_itself_for_good_when_another_user_makes_it() -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    assert (await team.answer(SETS, SET))["allowed"]
    [reserve] = team.reserved()
    assert (reserve.key, reserve.root, reserve.demand) == (
        "replicasets.apps/web-1",
        BARRED,
        DEMAND,
    )
    more = changed(SET, replicas=4)
    assert (await team.answer(SETS, more, SET, userInfo={"username": DEPLOYER}))["allowed"]
    assert [command.root for command in team.reserved()] == [BARRED, BARRED]


async def test_forged_owner_is_refused_when_there_are_no_replicas() -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    assert reasons(await team.answer(SETS, changed(SET, replicas=0))) == ["ForgedOwner"]


async def test_a_forged_owner_that_begins_to_ask_counts_by_itself() -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    plain = changed(SET, template=template({"cpu": "1"}))
    assert (await team.answer(SETS, SET, plain))["allowed"]
    [reserve] = team.reserved()
    assert (reserve.root, reserve.base) == (BARRED, 5)


async def test_an_update_of_what_the_controller_made_stays_with_its_root() -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    assert (await team.answer(SETS, changed(SET, replicas=9), SET))["allowed"]
    assert team.ledger.submitted == []


@pytest.mark.parametrize(("username", "root"), [(DEPLOYER, ""), ("ada", BARRED)])
async def test_under_an_owner_that_is_not_found_an_object_counts_by_itself(
    username: str, root: str
) -> None:
    team = ReviewedNamespace()
    assert (await team.answer(SETS, SET, userInfo={"username": username}))["allowed"]
    assert [reserve.root for reserve in team.reserved()] == [root]


async def test_what_is_restored_may_name_owners_that_are_gone() -> None:
    assert (await ReviewedNamespace().answer(SETS, changed(SET, replicas=0)))["allowed"]


async def test_an_update_under_an_owner_that_is_gone_is_asked_for() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(cards=3)
    assert reasons(await team.answer(SETS, changed(SET, replicas=4), SET)) == ["ExceedsLimit"]
    assert [reserve.root for reserve in team.reserved()] == [""]


@pytest.mark.parametrize(("username", "allowed"), [("ada", False), (DEPLOYER, True)])
async def test_a_controller_may_be_added_by_that_controller_alone(
    username: str, allowed: bool
) -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    orphan = manifest(SETS, "web-1", replicas=3)
    response = await team.answer(SETS, SET, orphan, userInfo={"username": username})
    assert response["allowed"] is allowed
    if not allowed:
        assert reasons(response) == ["ForgedOwner"]
        assert "Deployment web" in response["status"]["message"]
        [cause] = response["status"]["details"]["causes"]
        assert cause["field"] == "metadata.ownerReferences"


async def test_any_user_may_add_a_reference_that_controls_nothing() -> None:
    team = ReviewedNamespace(DEPLOYMENT)
    orphan = manifest(SETS, "web-1", replicas=3)
    new = deepcopy(orphan)
    new["metadata"]["ownerReferences"] = [controlled_by(DEPLOYMENT, controller=False)]
    assert (await team.answer(SETS, new, orphan))["allowed"]


async def test_further_controllers_are_named_by_a_setting() -> None:
    team = ReviewedNamespace(
        DEPLOYMENT, catalog=KindCatalog.load(controllers={"deployments.apps": ("ada",)})
    )
    await team.answer(SETS, SET)
    assert team.ledger.submitted == []


async def test_an_owner_that_is_remembered_is_not_read() -> None:
    team = ReviewedNamespace()
    await remember(team.context, DEPLOYMENTS, DEPLOYMENT)
    await team.answer(SETS, SET, userInfo={"username": DEPLOYER})
    assert (team.ledger.submitted, team.cluster.asked) == ([], [])
