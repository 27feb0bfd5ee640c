"""Verdicts: what was decided about a request, before it becomes an answer or an explanation."""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, Reason, brief

RESERVED: Final = "Reserved"
"""The outcome of a request that is charged."""

_STRICT: Final = frozenset((Reason.RESERVED_ANNOTATION, Reason.FORGED_OWNER))
"""Reasons that hold in every mode: they guard the records, not the limits."""

_NOTHING: Final[Amounts] = {}


class Verdict(msgspec.Struct, frozen=True):
    """Allowed unless there is a `denial`. `namespace` is qualified, `key` the storage key.

    `decision` is empty when the ledger was not asked; `demand` is what would be charged. `outcome`
    is what the API server's audit log gets for what is allowed: the reason, in the place of
    RESERVED, when policy let in what was not charged.
    """

    denial: Denial | None = None
    decision: str = ""
    namespace: str = ""
    key: str = ""
    demand: Amounts = _NOTHING
    outcome: str = RESERVED
    warnings: tuple[str, ...] = ()


UNTOUCHED = Verdict()
"""The verdict on a request that is neither charged nor refused."""


def softened(verdict: Verdict) -> Verdict:
    """Return the verdict where limits refuse nothing: a denial for want of room warns only."""
    denial = verdict.denial
    if denial is None or denial.reason in _STRICT:
        return verdict
    warnings = (f"not refused here: {brief(denial, overruled=True)}", *verdict.warnings)
    return msgspec.structs.replace(verdict, denial=None, outcome=denial.reason, warnings=warnings)
