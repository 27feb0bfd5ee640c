"""A LedgerPolicy on the namespace of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.definitions import POLICIES, policy
from tests.e2e.team import QUOTA, Team


@asynccontextmanager
async def under(team: Team, hard: dict[str, str], **spec: Any) -> AsyncIterator[None]:
    """Put a policy on a namespace, with the default quota that limits it.

    The service makes that quota: when it is there, the service knows the policy.
    """
    quota = {"name": QUOTA, "hard": hard}
    manifest = policy(namespaces=[team.namespace], defaultQuota=quota, **spec)
    made = await team.cluster.must("POST", POLICIES, manifest)
    try:
        await team.limits_are(hard)
        yield
    finally:
        await team.cluster.must("DELETE", f"{POLICIES}/{made['metadata']['name']}")
