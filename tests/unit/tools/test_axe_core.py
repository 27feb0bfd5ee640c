"""axe-core is used only at the pinned hash."""

import pytest

from tools import axe_core


def test_package_with_another_hash_is_refused() -> None:
    with pytest.raises(axe_core.Unavailable, match="not sha512-FHfa"):
        axe_core.checked(b"another package")


def test_missing_npm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(axe_core.Unavailable, match="npm is not installed"):
        axe_core.fetch()
