"""Uninstall run: removes what an installation has written, in the order in which it blocks.

The order: webhooks, so that pods are created again; the parts that would write again; webhooks that
a part has registered meanwhile; then gates, quotas, marks of pods and nodes, and statuses. Each
step is repeated until nothing is left or all rounds are over, so a run may be interrupted and
repeated. The service is not needed.
"""

import asyncio
from typing import Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.removal.pod_leftovers import POD
from gpuledger.removal.removal_plan import RemovalPlan, plan_removal
from gpuledger.removal.removal_scope import RemovalScope
from gpuledger.removal.removal_tasks import RemovalWrites, RemovedThing
from gpuledger.removal.stopped_parts import PartPod, find_running
from gpuledger.removal.webhook_leftovers import find_webhooks
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.client.api_client import ApiClient

ROUNDS_MAX: Final = 6
"""Rounds of removal; each removes what the one before it could not, such as a pod that changed. An
API server calls deleted webhooks for a second or two."""

ROUND_PAUSE_SECONDS: Final = 0.5
"""Pause before the second round; it doubles with each round."""

STOP_SECONDS: Final = 60.0
"""Longest wait of a run for the pods of stopped parts, which have 30 s for their end. Those of a
lost node end later or never."""

STOP_LOOK_SECONDS: Final = 0.5

RETURN_SECONDS: Final = 8.0
"""Wait for webhooks that a service elsewhere registers again: it looks every 5 s."""

AGAIN: Final = "it is there again; does a service still run?"

OF_ITS_OWNER: Final = (
    "it came after the webhooks were deleted: its owner writes that, not a service"
)


class RemovalReport(msgspec.Struct, frozen=True):
    """The result: removed things, things that are left with the reason, and reported ones."""

    removed: list[RemovedThing]
    left: list[RemovedThing]
    reported: list[RemovedThing]


def refuse_elsewhere(plan: RemovalPlan) -> None:
    """Raise CommandError if the installation is in another namespace than the named one."""
    if plan.elsewhere:
        thing = plan.elsewhere[0]
        raise CommandError(
            Exit.USAGE, f"nothing was removed; {thing.kind} {thing.name}: {thing.problem}"
        )


async def remove(client: ApiClient, scope: RemovalScope) -> RemovalReport:
    """Remove everything. Raises CommandError if the installation is in another namespace.

    Lists that cannot be read are things that are left.
    """
    plan = await plan_removal(client, scope)
    refuse_elsewhere(plan)
    may_return = plan.may_return
    run = _RemovalRun(client, scope)
    plan = await run.repeat(plan)
    if may_return and not plan.webhooks:
        await asyncio.sleep(RETURN_SECONDS)
        plan = await plan_removal(client, scope)
    return run.report(plan)


class _RemovalRun:
    """The rounds of one run."""

    def __init__(self, client: ApiClient, scope: RemovalScope) -> None:
        self._client = client
        self._scope = scope
        self._planned: dict[RemovedThing, None] = {}
        self._problems: dict[RemovedThing, str] = {}
        self._stop_end: float | None = None

    async def repeat(self, plan: RemovalPlan) -> RemovalPlan:
        """Do a plan and those after it until nothing is left; return the last one."""
        for round_number in range(ROUNDS_MAX):
            if not (plan.tasks() or plan.unread or self._awaited(plan)):
                break
            if round_number:
                await asyncio.sleep(ROUND_PAUSE_SECONDS * 2 ** (round_number - 1))
            self._planned.update(dict.fromkeys(plan.things()))
            self._problems = await self._remove_once(plan)
            plan = await plan_removal(self._client, self._scope)
        return plan

    def _awaited(self, plan: RemovalPlan) -> list[PartPod]:
        """Return the pods that another round may find ended."""
        return [pod for pod in plan.running if self._stop_end is None or not pod.is_ending]

    async def _remove_once(self, plan: RemovalPlan) -> dict[RemovedThing, str]:
        """Do the tasks of a plan in their order; return the problems."""
        writes = RemovalWrites()
        problems = await writes.run(plan.webhooks)
        problems |= await writes.run(plan.parts)
        if plan.parts or plan.running:
            try:
                await self._until_stopped()
                again = await find_webhooks(self._client, self._scope)
            except ClusterError:
                pass  # the next plan reports it
            else:
                problems |= await writes.run(again.tasks)
        return problems | await writes.run(plan.marks)

    async def _until_stopped(self) -> None:
        """Wait until no pod of the parts is left, or the time of the run is over."""
        clock = asyncio.get_running_loop().time
        if self._stop_end is None:
            self._stop_end = clock() + STOP_SECONDS
        while clock() < self._stop_end:
            if not await find_running(self._client, self._scope):
                return
            await asyncio.sleep(STOP_LOOK_SECONDS)

    def report(self, plan: RemovalPlan) -> RemovalReport:
        """Return the result of a run that ends with this plan."""
        there, of_owners = set(plan.things()), self._of_owners(plan)
        left = [
            _with(thing, self._problems.get(thing, AGAIN))
            for thing in plan.things()
            if thing not in of_owners
        ]
        left += [_running(pod) for pod in plan.running if not pod.is_ending]
        reported = [_with(thing, OF_ITS_OWNER) for thing in of_owners]
        reported += [_ending(pod) for pod in plan.running if pod.is_ending]
        return RemovalReport(
            [thing for thing in self._planned if thing not in there],
            [*left, *plan.elsewhere, *plan.unread],
            [*plan.reported, *reported],
        )

    def _of_owners(self, plan: RemovalPlan) -> dict[RemovedThing, None]:
        """Return the marks of pods that tenants have written after no webhook was left.

        They must not decide whether an uninstall succeeds.
        """
        if plan.webhooks:
            return {}
        pods = (task.thing for task in plan.marks if task.thing.kind == POD)
        return {thing: None for thing in pods if thing not in self._problems}


def _with(thing: RemovedThing, problem: str) -> RemovedThing:
    return msgspec.structs.replace(thing, problem=problem)


def _running(pod: PartPod) -> RemovedThing:
    return RemovedThing("pod", f"{pod.namespace}/{pod.name}", "stop", "it has not ended")


def _ending(pod: PartPod) -> RemovedThing:
    """Return a deleted pod that does not end: only its kubelet, or force, can end it."""
    problem = (
        f"it is deleted and has not ended; if its node {pod.node} is lost: kubectl delete pod"
        f" --namespace {pod.namespace} --force --grace-period=0 {pod.name}"
    )
    return RemovedThing("pod", f"{pod.namespace}/{pod.name}", "wait for its end", problem)
