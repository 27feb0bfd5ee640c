"""Fixtures of the tests of public names."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
TABLES = {ROOT / "ledger/runtime/settings/settings.py", ROOT / "ledger/runtime/metric_table.py"}


@pytest.fixture(scope="session")
def product() -> str:
    """The source of the product, without the tables in which settings and metrics are declared."""
    packages = ("ledger", "projections", "webhook", "extender", "gpuledger")
    files = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    return "\n".join(path.read_text() for path in files if path not in TABLES)
