"""Store pages: `gpuledger page` serves the pages of a store or a backup to this machine.

Nothing else has to run. Beside a running service the pages follow it, because both read one
projection. Nothing is written but the projection.
"""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request

from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.from_store.store_source import StoreSource
from gpuledger.page.page_app import PageApp
from gpuledger.page.page_errors import PageError
from gpuledger.page.page_paths import HOME
from gpuledger.page.viewer import LocalViewer, Viewer
from gpuledger.storage import scratch_folder
from gpuledger.storage.backup import restore, shard_of
from gpuledger.storage.open_log import check_store
from gpuledger.storage.projection_catch_up import ensure, projection_of
from ledger.runtime.http import http_server
from ledger.runtime.http.http_server import Listener, ListenError
from ledger.runtime.http.loopback_access import is_local
from ledger.runtime.settings.setting_sources import LoadedSettings
from ledger.runtime.settings.settings import Settings
from projections.store.readers import Readers

PORT: Final = 8480
"""Port of the pages unless another is given; a free one where it is in use."""

KEY_BYTES: Final = 32

READ_SECONDS: Final = 12.0
"""Deadline of reading for one page."""


def main(
    loaded: LoadedSettings, backup: str, port: int | None, started: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT, in a new event loop; `started` gets the address.

    `backup` is the file of a backup, which is restored to a scratch folder, "" for the store.
    Raises CommandError, ListenError, and what finding and reading the log raises.
    """
    uvloop.run(_main(loaded, backup, port, started))


async def _main(
    loaded: LoadedSettings, backup: str, port: int | None, started: Callable[[str], None]
) -> None:
    # The default is the name of no cluster of most logs, so manifests are of those of the log.
    cluster = loaded.settings.cluster if "cluster" in loaded.sources else ""
    listener = _bound(port)
    try:
        async with _store(loaded.settings, backup) as (used, origin):
            check_store(used)
            await ensure(used)
            await _serve(used, StoreSource(used, origin, cluster=cluster), listener, started)
    finally:
        listener.close()


def _bound(port: int | None) -> Listener:
    """Bind a port of loopback: the given one, else `PORT`, else a free one. Raises ListenError."""
    if port is not None:
        return http_server.bind(f"127.0.0.1:{port}")
    try:
        return http_server.bind(f"127.0.0.1:{PORT}")
    except ListenError:
        return http_server.bind("127.0.0.1:0")


@asynccontextmanager
async def _store(settings: Settings, backup: str) -> AsyncIterator[tuple[Settings, str]]:
    """Yield the settings of the store to show, and its name in words."""
    if not backup:
        where = ", ".join(settings.nats) or settings.store_dir
        yield settings, f"the log of {where}"
        return
    with scratch_folder.folder(Path(tempfile.gettempdir())) as folder:
        store = str(folder / "store")
        restored = msgspec.structs.replace(
            settings, store_dir=store, nats=(), shard=shard_of(backup)
        )
        await restore(restored, backup)
        yield restored, f"the backup {backup}"


async def _serve(
    settings: Settings,
    source: StoreSource,
    listener: Listener,
    started: Callable[[str], None],
) -> None:
    stop = asyncio.Event()
    async with Readers(projection_of(settings), seconds=READ_SECONDS) as readers:
        key = secrets.token_bytes(KEY_BYTES)
        app = PageApp(readers, source, identify=only_local, tokens=FormTokens(lambda: key))
        with http_server.stopping_on_signals(stop):
            await http_server.serve(
                Starlette(routes=app.routes()),
                listener,
                stop,
                started=lambda: started(f"http://{listener.address}{HOME}"),
            )


async def only_local(request: Request) -> Viewer:
    """Return the viewer of a client on this machine. Raises PageError 403 for others."""
    if is_local(request.scope, request.headers):
        return LocalViewer()
    raise PageError(
        403,
        "These pages answer only this machine, by a loopback address.",
        remedy="Open the address that `gpuledger page` printed.",
    )
