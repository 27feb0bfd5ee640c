"""Verdict: the decision about a request, and how the mode `warn` turns denials into warnings.

The webhook turns a verdict into its answer, and `explain` turns it into an explanation.
"""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, Reason, brief

RESERVED: Final = "Reserved"
"""The outcome of a request that is charged."""

_STRICT: Final = frozenset((Reason.RESERVED_ANNOTATION, Reason.FORGED_OWNER))
"""Reasons that refuse in every mode, because they guard the records and not the limits."""

_NOTHING: Final[Amounts] = {}


class Verdict(msgspec.Struct, frozen=True):
    """Allowed unless there is a `denial`. `namespace` is qualified, `key` the storage key.

    `decision` is empty if the ledger was not asked. `demand` is the amount that would be charged.
    `outcome` is written to the API server's audit log if the request is allowed: RESERVED, or the
    reason of a denial that the policy overruled.
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
    """Return the verdict with the denial as a warning, unless its reason refuses in every mode."""
    denial = verdict.denial
    if denial is None or denial.reason in _STRICT:
        return verdict
    warnings = (f"not refused here: {brief(denial, overruled=True)}", *verdict.warnings)
    return msgspec.structs.replace(verdict, denial=None, outcome=denial.reason, warnings=warnings)
