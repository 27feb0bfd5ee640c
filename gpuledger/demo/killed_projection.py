"""What a killed service leaves behind: its projection, exactly as far as it had come."""

from pathlib import Path
from typing import Final

from gpuledger.storage.store_projection import projecting
from gpuledger.wiring import store_layout
from ledger.runtime.settings.settings import Settings
from projections.store.digest import Digest, digest
from projections.store.readers import Readers

QUIET_SECONDS: Final = 15.0
"""How long a process of the killed service may still have the projection."""


async def leftover(store: Path) -> Digest:
    """Return the position of the store's projection and its digest there; nothing is projected.

    Raises StoreBusy while a service has it, StoreError when there is none.
    """
    async with (
        projecting(Settings(store_dir=str(store)), QUIET_SECONDS),
        Readers(store / store_layout.PROJECTION) as readers,
        readers.view() as view,
    ):
        return await digest(view, view.head.position)
