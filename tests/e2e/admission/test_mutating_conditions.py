"""About which new pods a real API server asks the mutating webhook, as the policies have it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest
from support.fakes.owner_cluster import policy

from ledger.kube.api.cluster_ports import Changed, Listed
from ledger.kube.client.api_client import ApiClient
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import NVIDIA
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.review_recorder import (
    BOTH,
    VALIDATE,
    ReviewedNamespace,
    Seen,
    plane,
    setting,
)
from tests.e2e.objects.pods import CARDS, CORES, MEMORY, pod
from webhook.configurations.mutating_conditions import MutatingCondition
from webhook.context.card_schedulers import CardSchedulers
from webhook.context.namespace_labels import Namespaces
from webhook.context.namespace_policies import NamespacePolicy, Policies

__all__ = ["plane", "setting"]

pytestmark = pytest.mark.e2e

WITHIN: Final = 30.0
VALIDATED: Final = [(VALIDATE, "CREATE", "")]
PERCENTAGE: Final = "nvidia.com/gpumem-percentage"
CARDS_SCHEDULER: Final = "gpuledger-scheduler"
PLAIN: Final = CardSchedulers()


def asking(**spec: Any) -> Manifest:
    """Return a pod of one container for the cards' scheduler, with these limits by short name."""
    names = {"cards": CARDS, "memory": MEMORY, "cores": CORES, "percentage": PERCENTAGE}
    manifest = pod("a")
    limits = {names[name]: spec.pop(name) for name in list(spec) if name in names}
    manifest["spec"]["containers"][0]["resources"] = {"limits": limits}
    manifest["spec"].update({"schedulerName": CARDS_SCHEDULER, **spec})
    return manifest


async def seen_of(setting: ReviewedNamespace, manifest: Manifest) -> list[Seen]:
    """Return which reviews the creation of a pod makes; nothing is stored."""
    return await setting.created(manifest, params={"dryRun": "All"})


async def becomes(setting: ReviewedNamespace, manifest: Manifest, wanted: list[Seen]) -> None:
    """Wait until the creation of a pod makes these reviews."""
    await eventually(
        lambda: seen_of(setting, manifest),
        lambda seen: seen == wanted,
        within=WITHIN,
        what=f"the reviews are {wanted}",
    )


@asynccontextmanager
async def narrowed(
    at: ControlPlane, policies: Policies, schedulers: CardSchedulers = PLAIN, **rules: Any
) -> AsyncIterator[None]:
    """Keep the registration narrow while the block runs."""
    async with await ApiClient.connect(at.kubeconfig(ADMIN)) as client:
        narrowing = MutatingCondition(
            client, policies, rules=DemandRules(**rules), schedulers=schedulers
        )
        task = asyncio.create_task(narrowing.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def known(default: NamespacePolicy | None = None) -> Policies:
    """Return the policies of a cluster in which there is none."""
    policies = Policies(default or NamespacePolicy(), Namespaces(None))
    policies.take(Listed(1, []))
    return policies


WHOLE: Final = asking(cards="1", cores="100")


async def test_a_registration_is_wide_at_first(setting: ReviewedNamespace) -> None:
    assert await seen_of(setting, WHOLE) == BOTH


async def test_a_pod_or_namespace_that_ignores_hamis_webhook_is_validated_alone(
    setting: ReviewedNamespace,
) -> None:
    ignored = asking(memory="1000")
    ignored["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert await seen_of(setting, ignored) == VALIDATED
    ignored["metadata"]["labels"] = {"hami.io/webhook": "other"}
    assert await seen_of(setting, ignored) == BOTH
    namespace = f"/api/v1/namespaces/{setting.namespace}"
    labelled = {"metadata": {"labels": {"hami.io/webhook": "ignore"}}}
    assert (await setting.cluster.patch(namespace, labelled)).status == 200
    await becomes(setting, asking(memory="1000"), VALIDATED)


async def test_only_pods_that_leave_something_out_are_asked_about(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    async with narrowed(plane, known()):
        await becomes(setting, WHOLE, VALIDATED)
        for complete in (
            asking(cards="1", memory="1000", cores="10"),
            asking(cards="1", memory="1000"),
            asking(cards="1", percentage="50"),
        ):
            assert await seen_of(setting, complete) == VALIDATED, complete
        for incomplete in (
            asking(memory="1000", cores="10"),
            asking(cards="1"),
            asking(cards="1", percentage="100"),
            asking(cards="1", memory="0"),
        ):
            assert await seen_of(setting, incomplete) == BOTH, incomplete
        init = asking(cards="1", memory="1000")
        init["spec"]["initContainers"] = [
            {**asking(cards="1")["spec"]["containers"][0], "name": "i"}
        ]
        assert await seen_of(setting, init) == BOTH
        plain = asking()
        assert await seen_of(setting, plain) == []


async def test_with_default_cores_pods_that_leave_them_out_are_asked_about(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    vendors = (msgspec.structs.replace(NVIDIA, default_cores=10),)
    async with narrowed(plane, known(), vendors=vendors):
        await becomes(setting, WHOLE, VALIDATED)
        assert await seen_of(setting, asking(cards="1", memory="1000")) == BOTH


async def test_pods_of_the_default_scheduler_are_reviewed_when_another_is_named(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    default = "default-scheduler"
    other = asking(cards="1", schedulerName="other")
    async with narrowed(plane, known(), CardSchedulers("cards")):
        await becomes(setting, other, VALIDATED)
        for name in (default, ""):
            complete = asking(cards="1", cores="100", schedulerName=name)
            assert await seen_of(setting, complete) == BOTH, name
        assert await seen_of(setting, WHOLE) == VALIDATED


async def test_pods_of_schedulers_that_do_not_place_on_cards_are_not_asked_about(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    async with narrowed(plane, known(), CardSchedulers(further=("mine",))):
        await becomes(setting, asking(cards="1", schedulerName=""), VALIDATED)
        for name in ("default-scheduler", "other", "Gpuledger-Scheduler"):
            assert await seen_of(setting, asking(cards="1", schedulerName=name)) == VALIDATED, name
        for name in ("gpuledger-scheduler", "hami-scheduler", "mine"):
            assert await seen_of(setting, asking(cards="1", schedulerName=name)) == BOTH, name
        named = asking(cards="1", nodeName="n1")
        assert await seen_of(setting, named) == VALIDATED


async def test_a_default_scheduler_that_places_on_cards_can_be_named(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    async with narrowed(plane, known(), CardSchedulers(further=("default-scheduler",))):
        await becomes(setting, WHOLE, VALIDATED)
        for name in ("default-scheduler", ""):
            assert await seen_of(setting, asking(cards="1", schedulerName=name)) == BOTH, name


async def test_where_a_policy_has_pods_wait_all_are_asked_about_and_again_none(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    policies = known()
    async with narrowed(plane, policies):
        await becomes(setting, WHOLE, VALIDATED)
        waiting = policy("waiting", onExceeded="pending")
        policies.take(Changed(2, waiting))
        await becomes(setting, WHOLE, BOTH)
        policies.take(Changed(3, waiting, deleted=True))
        await becomes(setting, WHOLE, VALIDATED)


async def test_policies_that_let_pods_in_over_the_limit_have_none_wait(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    async with narrowed(plane, known(NamespacePolicy(mode="warn", on_exceeded="pending"))):
        await becomes(setting, WHOLE, VALIDATED)


async def test_without_a_registration_there_is_nothing_to_narrow(
    plane: ControlPlane, setting: ReviewedNamespace
) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpuledger"
    await setting.cluster.must("DELETE", path)
    async with narrowed(plane, known()):
        await becomes(setting, WHOLE, VALIDATED)
        assert (await setting.cluster.ask("GET", path)).status == 404
