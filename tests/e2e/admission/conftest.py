"""One control plane for the modules that record reviews; each test registers its own webhook."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness.controlplane import ControlPlane

EARLIER_CLAIMS: Final = "--runtime-config=resource.k8s.io/v1beta2=true"
"""Serves resource claims in an earlier version as well, as clusters do after an upgrade."""


@pytest.fixture(scope="session")
def recorded_plane(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane."""
    folder = tmp_path_factory.mktemp("registration")
    running = ControlPlane(assets, folder, api_server_flags=[EARLIER_CLAIMS])
    running.start()
    yield running
    running.stop()
