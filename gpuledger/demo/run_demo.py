"""Running the demo: a directory for it, the story, and an end in every case."""

import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import aiohttp

from gpuledger.demo.demo_error import Broken
from gpuledger.demo.narration import Narrator
from gpuledger.demo.service import Service
from gpuledger.demo.story import Story
from ledger.log.embedded.store_lock import StoreBusy
from projections.store.store_writer import StoreError

_TROUBLE: Final = (Broken, StoreBusy, StoreError, TimeoutError, aiohttp.ClientError, OSError)
"""What may go wrong on the way and ends the demo with status 1; all else is a defect of it."""


async def run(keep: bool) -> bool:
    """Run the demo; returns whether every claim held. What is left is kept when asked, or if not.

    Interrupted, it ends the service and removes everything.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-demo-"))
    narrator, service = Narrator(), Service(folder)
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        stack.push_async_callback(service.close)
        held = await _told(service, narrator)
        await service.close()
        if keep or not held:
            _tell_where(service, narrator)
            stack.pop_all()
    return held


async def _told(service: Service, narrator: Narrator) -> bool:
    """Tell the story; returns whether all of it held."""
    try:
        await Story(service, narrator).tell()
    except _TROUBLE as error:
        narrator.closing(f"FAILED: {error or type(error).__name__}")
        narrator.line(f"The end of the service's log, {service.log}:")
        narrator.block("\n".join(service.tail()))
        return False
    narrator.closing(f"All {narrator.claims} claims held, in {narrator.seconds:.0f} s.")
    return True


def _tell_where(service: Service, narrator: Narrator) -> None:
    narrator.closing(f"The ledger stays in {service.store}. Look around in it:")
    for command in ("usage", "holders -n serving", "denials", "audit replay -n research"):
        narrator.command(f"gpuledger {command} --store-dir {service.store}")
    narrator.line(f"and remove it with: rm -r {service.store.parent}")
