"""Live pods: the admitted pods of an API server, against the most their quotas allowed.

They are counted from the objects, without the ledger's usage. A limit may be lowered, or a quota
created, when pods exist already. So the bound is the highest limit since the first quota of the
namespace, and there is no bound if the namespace had no quota for a while. An object that was not
admitted is left out, and so is its successor at the same key.
"""

import math
from collections.abc import Container, Iterator
from typing import Final

from ledger.core.model import events
from ledger.core.model.events import AnyEvent
from ledger.kube.api.objects import Pod
from simulation.model.apiserver import TERMINAL, SimulatedApiServer
from simulation.oracle.claim_object_oracle import ClaimObjectOracle

_QUOTA: Final = "quota/"
"""How the accounts of ResourceQuotas begin: `quota/<cluster>/<namespace>/<name>`."""


class LivePods:
    """Follows limits, and counts pods against them."""

    def __init__(self) -> None:
        self._most: dict[str, dict[str, float]] = {}
        self._used: set[str] = set()
        """Namespaces in which something was charged: a quota that comes later finds pods there."""
        self._bypassed: set[str] = set()

    def enter(self, event: AnyEvent, reviewed: Container[str]) -> None:
        """Take note of an event about limits, or of what they do not bound.

        `reviewed` holds the uids of what was let in.
        """
        if isinstance(event, events.LimitSet):
            self._limit(event)
        elif isinstance(event, events.AccountClosed):
            self._most[event.account] = {}
        elif isinstance(event, events.Reserved | events.Observed):
            self._used.add(event.namespace)
            if isinstance(event, events.Observed) and event.uid not in reviewed:
                self._bypassed.add(event.namespace)

    def excess(
        self, server: SimulatedApiServer, namespace: str, claims: ClaimObjectOracle
    ) -> Iterator[str]:
        """Yield a sentence for every line on which more lives than it ever allowed."""
        if namespace in server.lenient or f"{server.name}/{namespace}" in self._bypassed:
            return
        lives = [
            claims.least_of_pod(pod)
            for (space, _), pod in server.pods.objects.items()
            if space == namespace and pod.metadata.uid in server.reviewed and is_live(pod)
        ]
        lives += [
            claims.least(claim)
            for claim in server.claims()
            if claim.metadata.namespace == namespace and claim.metadata.uid in server.reviewed
        ]
        mine = f"{_QUOTA}{server.name}/{namespace}/"
        for account, most in self._most.items():
            for key, limit in most.items() if account.startswith(mine) else ():
                many = sum(amounts.get(key.partition(".")[2], 0) for amounts in lives)
                if many > limit:
                    yield f"{many} of {key} live, and {account} allowed {limit:g} at most"

    def _limit(self, event: events.LimitSet) -> None:
        if not event.account.startswith(_QUOTA):
            return
        known = self._most.get(event.account)
        counts_all = not event.selects
        if known is None and counts_all and not self._used.intersection(event.covers):
            known = {line.key: 0.0 for line in event.lines}
        limits = {line.key: line.limit for line in event.lines}
        self._most[event.account] = {
            key: max(most, limits.get(key, math.inf)) if counts_all else math.inf
            for key, most in (known or {}).items()
        }


def is_live(pod: Pod) -> bool:
    """Return whether a pod counts by every clock: it has not ended and is not going."""
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL
