"""Resource claims: what a pod with a generated claim costs, and what a review of a claim costs."""

from tests.bench.claims.claim_creation import run

__all__ = ["run"]
