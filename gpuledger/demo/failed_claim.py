"""Failed claim: the error that ends the demo early."""


class FailedClaim(Exception):
    """A claim that did not hold: what was claimed, and what was found instead."""

    def __init__(self, claim: str, observed: str) -> None:
        super().__init__(f"{claim}: {observed}")
