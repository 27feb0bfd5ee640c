"""Preemption claims: the cards that are kept for preemptors. A pod has at most one claim.

`placement_charges` ends the claim of a pod that is placed, or that no longer counts.
"""

from ledger.core.evolve.line_charges import InvariantError, Postings
from ledger.core.model import events
from ledger.core.model.cards import PreemptionClaim
from ledger.core.model.state import State, drop, put


def claimed(state: State, event: events.Claimed, time: int) -> Postings:
    """Apply a claim, which replaces an earlier claim of the pod."""
    claim = PreemptionClaim(event.namespace, event.key, event.uid, event.parts, event.victims, time)
    end_claim(state, event.namespace, event.key)
    put(state, state.claims, event.node, (*state.claims.get(event.node, ()), claim))
    return []


def withdrawn(state: State, event: events.Withdrawn, time: int) -> Postings:
    """Apply the end of a claim."""
    if not end_claim(state, event.namespace, event.key):
        raise InvariantError(f"nothing is kept for {event.namespace}/{event.key}")
    return []


def claim_of(state: State, namespace: str, key: str) -> PreemptionClaim | None:
    """Return the claim of a pod, None without one."""
    for claims in state.claims.values():
        for claim in claims:
            if (claim.namespace, claim.key) == (namespace, key):
                return claim
    return None


def end_claim(state: State, namespace: str, key: str) -> bool:
    """Drop the claim of a pod; return whether there was one."""
    for node, claims in state.claims.items():
        left = tuple(claim for claim in claims if (claim.namespace, claim.key) != (namespace, key))
        if len(left) != len(claims):
            if left:
                put(state, state.claims, node, left)
            else:
                drop(state, state.claims, node)
            return True
    return False
