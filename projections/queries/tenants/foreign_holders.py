"""Foreign holders: stored denials for readers who may not list holders in all namespaces.

A stored denial names the namespaces that share a full quota, with their sums. Such a reader gets
these as one sum.
"""

from typing import Final

import msgspec

from ledger.core.model import accounts
from ledger.core.model.accounts import AccountKind
from ledger.core.model.denials import Denial, Holder, sentence
from projections.queries.denial_history import PastDenial

OTHERS: Final = "other namespaces together"
"""The key of the sum in a list of holders."""


def without_foreign_names(past: PastDenial) -> PastDenial:
    """Return a denial whose holders in other namespaces are one sum, also in its message."""
    denial = summed(past.denial)
    if denial is past.denial:
        return past
    return msgspec.structs.replace(past, denial=denial, message=sentence(denial))


def summed(denial: Denial) -> Denial:
    """Return a denial whose holders in other namespaces are one sum after its own holders."""
    lines = denial.shortages
    if lines and accounts.kind(lines[0].account) is AccountKind.QUOTA:
        return denial
    # Only holders of the requesting namespace have a time.
    own = tuple(holder for holder in denial.holders if holder.since)
    others = sum(holder.amount for holder in denial.holders if not holder.since)
    if not others:
        return denial
    return msgspec.structs.replace(denial, holders=(*own, Holder(OTHERS, others, 0)))
