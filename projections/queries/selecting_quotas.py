"""Selecting quotas: the namespaces and objects that selecting quotas count, as of a position."""

from typing import Final

import msgspec

from ledger.core.model.traits import Numbered, Reach, Selection
from projections.store.readers import ProjectionView


class AccountSelection(msgspec.Struct, frozen=True):
    """The namespaces that an account covers, if it selects them, and the objects that it counts.

    With `asked_only` it counts only the requested part of envelopes.
    """

    reach: Reach | None
    selects: Selection
    asked_only: bool = False


EVERYTHING: Final = AccountSelection(None, ())
"""The selection of an account without a row."""


async def selections(view: ProjectionView, position: int) -> dict[str, AccountSelection]:
    """Return the selections at a position, by account; accounts without one are left out."""
    async with view.connection.execute(_SELECTIONS, {"position": position}) as rows:
        return {
            account: AccountSelection(
                _reaches.decode(reach), _selections.decode(selects), bool(asked_only)
            )
            async for account, reach, selects, asked_only in rows
        }


_reaches: Final = msgspec.json.Decoder(Reach | None)
_selections: Final = msgspec.json.Decoder(tuple[Numbered, ...])

_SELECTIONS: Final = """
    SELECT accounts.name, reach, selects, asked_only
    FROM selections JOIN accounts ON accounts.number = selections.account
    WHERE selections.opened <= :position
    AND (selections.closed IS NULL OR selections.closed > :position)
"""
