"""Verdicts: what was decided about a request, before it becomes an answer or an explanation."""

import msgspec

from ledger.core.amounts import Amounts
from ledger.core.denials import Denial

_NOTHING: Amounts = {}


class Verdict(msgspec.Struct, frozen=True):
    """Allowed unless there is a `denial`. `namespace` is qualified, `key` the storage key.

    `decision` is empty when the ledger was not asked; `demand` is what would be charged.
    """

    denial: Denial | None = None
    decision: str = ""
    namespace: str = ""
    key: str = ""
    demand: Amounts = _NOTHING
    warnings: tuple[str, ...] = ()


UNTOUCHED = Verdict()
"""Not ours to judge."""
