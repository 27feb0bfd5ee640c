"""Certificate reload: a client CA that is removed while files are loaded stays removed."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.tls_server import ClientAuthority

from ledger.runtime.tls import certificate_reload
from ledger.runtime.tls.certificate_reload import Tls


async def test_removed_client_ca_does_not_return_with_a_slow_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = Tls(certificate_reload.own(tmp_path / "tls", ("localhost",)))
    tls.use_client_ca(ClientAuthority(tmp_path / "clients").file)
    load, loading, removed = certificate_reload._in_memory, threading.Event(), threading.Event()

    @contextlib.contextmanager
    def slow(content: bytes) -> Iterator[str]:
        if threading.current_thread() is not threading.main_thread():
            loading.set()
            removed.wait(0.2)
        with load(content) as path:
            yield path

    monkeypatch.setattr(certificate_reload, "_in_memory", slow)
    tls._marks = ()  # as after a change of a file
    refreshing = asyncio.create_task(asyncio.to_thread(tls.refresh))
    await asyncio.to_thread(loading.wait, 5)
    tls.use_client_ca("")
    removed.set()
    assert await refreshing
    assert tls.context.verify_mode is ssl.CERT_NONE
    assert tls.authorities == ()
