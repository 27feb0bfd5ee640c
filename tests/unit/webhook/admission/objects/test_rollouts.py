"""A rollout that cannot end is warned of when it begins, and the warning costs no write."""

import asyncio
from copy import deepcopy
from typing import Any

import pytest
from support.builders.admission_reviews import GPU, CoreLedger, pod, review, serving
from support.fakes.owner_cluster import (
    DEPLOYMENTS,
    Manifest,
    OwnerCluster,
    around,
    manifest,
    of,
    template,
)

from ledger.core.model.commands import AnyCommand, Reserve
from ledger.core.model.denials import Denial
from ledger.log.ledger_port import Accepted
from webhook.api.admission_review import WARNING_CHARACTERS_MAX
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.namespace_policies import NamespacePolicy

NO_POD_MISSING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
OLD_PODS_FIRST = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
NEVER = "this rollout can never end: "
NOT_NOW = "this rollout stalls until there is room: "


class RollOutLedger(CoreLedger):
    """A ledger that fails, or never answers, when it is asked whether a rollout could end."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        if dry_run and isinstance(command, Reserve):
            self.asked += 1
            if self.error is not None:
                raise self.error
            await asyncio.Event().wait()
        return await super().submit(command, dry_run=dry_run)


def web(image: str = "v1", replicas: int = 3, **spec: Any) -> Manifest:
    deployment = deepcopy(manifest(DEPLOYMENTS, "web", replicas=replicas))
    deployment["spec"] |= {"strategy": NO_POD_MISSING, "template": template()} | spec
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return deployment


async def answered(
    ledger: CoreLedger,
    new: Manifest,
    old: Manifest | None,
    deadline: float = 9.0,
    **namespace: Any,
) -> dict[str, Any]:
    context = around(ledger, OwnerCluster(), default=NamespacePolicy(**namespace))
    operation = "CREATE" if old is None else "UPDATE"
    settings = AdmissionSettings(deadline=deadline)
    async with serving(ledger, policy=settings, context=context) as service:
        return await service.post(review(new, old, operation=operation, **of(DEPLOYMENTS)))


async def rolled(ledger: CoreLedger, **options: Any) -> dict[str, Any]:
    """Return the response to another image of a Deployment that exists."""
    assert (await answered(ledger, web(), None))["allowed"]
    return await answered(ledger, web("v2"), web(), **options)


async def test_a_roll_out_that_can_never_end_is_let_in_with_a_warning() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=3)
    response = await rolled(ledger)
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning.startswith(NEVER)
    assert len(warning) <= WARNING_CHARACTERS_MAX
    assert ledger.used() == {f"limits.{GPU}": 3}


async def test_rollout_stalls_when_others_leave_no_room() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=4)
    async with serving(ledger, context=around(ledger)) as service:
        assert (await service.post(review(pod({GPU: "1"}))))["allowed"]
    [warning] = (await rolled(ledger))["warnings"]
    assert warning.startswith(NOT_NOW)


@pytest.mark.parametrize(
    ("cards", "new"),
    [
        (4, web("v2")),
        (3, web("v2", strategy=OLD_PODS_FIRST)),
        (3, web("v2", strategy={"type": "Recreate"})),
        (3, web()),
        (3, web("v2", replicas=2)),
    ],
    ids=["room", "old pods first", "recreated", "no other template", "fewer pods"],
)
async def test_a_roll_out_that_can_end_is_not_commented_on(cards: int, new: Manifest) -> None:
    ledger = CoreLedger()
    ledger.limit(cards=cards)
    await answered(ledger, web(), None)
    old = web(strategy=new["spec"]["strategy"])
    assert "warnings" not in await answered(ledger, new, old)


@pytest.mark.parametrize(
    ("before", "after", "needed"),
    [("1", "2", 7), ("2", "1", 7), ("1", "1", 4)],
    ids=["larger pods", "smaller pods", "equal pods"],
)
async def test_rollout_needs_all_pods_of_one_template_with_one_of_the_other(
    before: str, after: str, needed: int
) -> None:
    for cards, told in ((needed, False), (needed - 1, True)):
        ledger = CoreLedger()
        ledger.limit(cards=cards)
        old = web(template=template({GPU: before}))
        new = web("v2", template=template({GPU: after}))
        assert (await answered(ledger, old, None))["allowed"]
        assert ("warnings" in await answered(ledger, new, old)) is told, cards


async def test_a_new_deployment_replaces_nothing() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=3)
    assert "warnings" not in await answered(ledger, web(), None)


async def test_a_surge_that_is_reserved_is_not_asked_about_again() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=4)
    assert "warnings" not in await rolled(ledger, surge="reserve")


@pytest.mark.parametrize("namespace", [{"pods_only": True}, {"on_exceeded": "pending"}])
async def test_where_pods_alone_are_charged_only_what_can_never_end_is_warned_of(
    namespace: dict[str, Any],
) -> None:
    ledger = CoreLedger()
    ledger.limit(cards=3)
    [warning] = (await answered(ledger, web("v2"), web(), **namespace))["warnings"]
    assert warning.startswith(NEVER)
    ledger.limit(cards=4)
    assert "warnings" not in await answered(ledger, web("v2"), web(), **namespace)


async def test_a_ledger_that_does_not_answer_about_a_roll_out_costs_no_write() -> None:
    ledger = RollOutLedger()
    ledger.limit(cards=4)
    assert (await answered(ledger, web(), None))["allowed"]
    response = await answered(ledger, web("v2", replicas=4), web(), deadline=3.0)
    assert response["allowed"]
    assert "warnings" not in response
    assert ledger.asked == 1
    assert ledger.used() == {f"limits.{GPU}": 4}


async def test_a_question_about_a_roll_out_that_fails_costs_no_write() -> None:
    ledger = RollOutLedger(RuntimeError("a planted defect"))
    ledger.limit(cards=3)
    response = await rolled(ledger)
    assert response["allowed"]
    assert "warnings" not in response
    assert ledger.asked == 1


async def test_what_is_refused_anyway_is_not_asked_about() -> None:
    ledger = RollOutLedger()
    ledger.limit(cards=3)
    assert (await answered(ledger, web(), None))["allowed"]
    assert not (await answered(ledger, web("v2", replicas=4), web()))["allowed"]
    assert ledger.asked == 0
