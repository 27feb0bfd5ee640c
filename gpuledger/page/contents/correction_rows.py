"""Correction rows: corrections of the ledger with their causes in words."""

from typing import Final

import msgspec

from gpuledger.page.contents.amount_lists import amounts_text
from gpuledger.page.quantity_texts import part_text, second_text
from ledger.core.model.display_names import display
from ledger.core.model.events import Cause
from projections.queries.drift_report import Correction

_CAUSES: Final[dict[str, str]] = {
    Cause.UNRESERVED: "The object exists without a reservation: its request did not pass the"
    " webhook, or a quota is newer. The ledger charged it.",
    Cause.LATE: "The object was stored after its reservation had ended. The ledger charged it"
    " again.",
    Cause.ALLOCATED: "Resource claims gave the object devices that take more than was reserved. The"
    " ledger charged it.",
    Cause.ABSENT: "A complete list does not have the object. The ledger ended its charge.",
    Cause.DELETED: "The object was deleted, and no event reported it. The ledger ended its charge.",
    Cause.FINISHED: "The object has finished, and no event reported it. The ledger ended its"
    " charge.",
    Cause.FENCED: "A newer version of the object exists. The ledger ended the reservation.",
}


class CorrectionRow(msgspec.Struct, frozen=True):
    """A correction. `over` are the lines that were over their limit after it, as texts."""

    position: int
    time: str
    cluster: str
    namespace: str
    key: str
    cause: str
    explanation: str
    amounts: str
    over: list[str]


def correction_row(correction: Correction) -> CorrectionRow:
    """Return the row of a correction."""
    return CorrectionRow(
        correction.position,
        second_text(correction.time),
        correction.cluster,
        correction.namespace,
        correction.key,
        correction.cause,
        _CAUSES.get(correction.cause, ""),
        amounts_text(correction.amounts),
        [
            f"{display(line.account)}: {part_text(line.used, line.limit, line.resource)}"
            for line in correction.over
        ],
    )
