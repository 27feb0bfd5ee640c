"""Selections: what accounts select, where that is not simply everything that they name."""

from typing import Final

import msgspec

from ledger.core.traits import Numbered, Reach, Selection
from projections.reading import View


class Selected(msgspec.Struct, frozen=True):
    """Which namespaces an account covers, when it selects them, and which objects it counts."""

    reach: Reach | None
    selects: Selection


async def selections(view: View, position: int) -> dict[str, Selected]:
    """Return what every account that selects anything selected at a position, by account."""
    async with view.connection.execute(_SELECTIONS, {"position": position}) as rows:
        return {
            account: Selected(_reaches.decode(reach), _selections.decode(selects))
            async for account, reach, selects in rows
        }


_reaches: Final = msgspec.json.Decoder(Reach | None)
_selections: Final = msgspec.json.Decoder(tuple[Numbered, ...])

_SELECTIONS: Final = """
    SELECT accounts.name, reach, selects
    FROM selections JOIN accounts ON accounts.number = selections.account
    WHERE selections.opened <= :position
    AND (selections.closed IS NULL OR selections.closed > :position)
"""
