"""Every test here runs on asyncio's event loop and on the one that is shipped."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop
from support.servers.tls_server import ClientAuthority

from ledger.runtime.tls import certificate_reload, server_certificate


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test of this directory on asyncio's loop and on the one that is shipped."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def clients(tmp_path: Path) -> ClientAuthority:
    """The CA that the server trusts for clients."""
    return ClientAuthority(tmp_path / "clients")


@pytest.fixture
def strangers(tmp_path: Path) -> ClientAuthority:
    """A CA that the server does not trust."""
    return ClientAuthority(tmp_path / "strangers")


@pytest.fixture
def own(tmp_path: Path) -> Callable[[], server_certificate.CertificateFiles]:
    """Certificates made by the service itself."""
    return certificate_reload.own(tmp_path / "tls", ())
