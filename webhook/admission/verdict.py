"""Verdicts: what was decided about a request, before it becomes an answer or an explanation."""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial

RESERVED: Final = "Reserved"
"""The outcome of what is charged."""

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
"""Not ours to judge."""
