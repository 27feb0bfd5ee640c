"""Lines: what the numbers stand for that events and balances have for them."""

from collections.abc import Iterable
from typing import Final

import msgspec

from projections.store.readers import ProjectionView


async def line_names(view: ProjectionView, numbers: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return account and quota key of lines by number."""
    wanted = msgspec.json.encode(sorted(set(numbers))).decode()
    async with view.connection.execute(_LINES, (wanted,)) as rows:
        return {number: (account, key) async for number, account, key in rows}


_LINES: Final = """
    SELECT lines.number, accounts.name, lines.key
    FROM lines JOIN accounts ON accounts.number = lines.account
    WHERE lines.number IN (SELECT value FROM json_each(?))
"""
