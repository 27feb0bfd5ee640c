"""Whether every card kept its limits at every position of the log, and not only in the end."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from gpuledger.storage import archive_file
from ledger.core.invariants import excesses, violations
from ledger.core.model.accounts import AccountKind, kind
from ledger.core.model.state import State
from ledger.log import records
from tests.e2e.harness.service import Service

COMPLAINTS_MAX: Final = 10
STRIDE: Final = 100
"""How many records lie between two looks at the whole state, which take long in a large one."""


async def complaints(service: Service, folder: Path) -> list[str]:
    """Copy the log, fold it, and return the first few violations, a sentence each."""
    file = folder / "log.archive"
    file.unlink(missing_ok=True)
    await service.answer("backup", str(file))
    return list(islice(_wrong(file), COMPLAINTS_MAX))


def _wrong(file: Path) -> Iterator[str]:
    state = State()
    frames = archive_file.read(file)
    next(frames)  # the header
    for payload in frames:
        records.fold(state, state.position + 1, payload)
        for line, over in excesses(state).items():
            account, key = state.names[line]
            if kind(account) is AccountKind.CARD:
                yield f"position {state.position}: {account} is {over} over its {key}"
        if state.position % STRIDE == 0:
            yield from _violated(state)
    yield from _violated(state)


def _violated(state: State) -> Iterator[str]:
    return (f"position {state.position}: {wrong}" for wrong in violations(state))
