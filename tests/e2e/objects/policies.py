"""A LedgerPolicy on the namespace of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.e2e.harness.polling import eventually
from tests.e2e.objects.definitions import POLICIES, policy
from tests.e2e.objects.pods import pod
from tests.e2e.objects.team import QUOTA, Team

GATED_SECONDS: Final = 30.0


@asynccontextmanager
async def under(team: Team, hard: dict[str, str], **spec: Any) -> AsyncIterator[None]:
    """Put a policy on a namespace, with the default quota that limits it.

    The service makes that quota: when it is there, the service has the policy. Where pods wait,
    the API server has to receive it, too.
    """
    quota = {"name": QUOTA, "hard": hard}
    manifest = policy(namespaces=[team.namespace], defaultQuota=quota, **spec)
    made = await team.cluster.must("POST", POLICIES, manifest)
    try:
        await team.limits_are(hard)
        if spec.get("onExceeded") == "pending":
            await _pods_get_a_gate(team)
        yield
    finally:
        await team.cluster.must("DELETE", f"{POLICIES}/{made['metadata']['name']}")


async def _pods_get_a_gate(team: Team) -> None:
    """Wait until the API server asks the mutating webhook about every pod that asks for cards."""

    async def look() -> bool:
        shown = await team.create(pod("canary"), params={"dryRun": "All"})
        return bool(shown.body.get("spec", {}).get("schedulingGates"))

    await eventually(look, bool, within=GATED_SECONDS, what="pods get a scheduling gate")
