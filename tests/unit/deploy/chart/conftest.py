"""The chart, rendered once for each set of values."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tools.manifests.helm_chart import CHART, Rendered, render

ROOT: Final = Path(__file__).parents[4]
CI: Final = ROOT / CHART / "ci"

Release = tuple[Rendered, ...]
Renderer = Callable[..., Release]


@cache
def _rendered(sets: tuple[str, ...], values: str, release: str, namespace: str) -> Release:
    files = [CI / f"{values}-values.yaml"] if values else []
    return render(ROOT, files, sets, release=release, namespace=namespace)


@pytest.fixture(scope="session")
def rendered() -> Renderer:
    """Return a function from values to the objects of a release."""

    def of(
        *sets: str,
        values: str = "default",
        release: str = "gpuledger",
        namespace: str = "gpu",
    ) -> Release:
        return _rendered(sets, values, release, namespace)

    return of


@pytest.fixture(scope="session")
def value_sets() -> list[str]:
    """Return the names of the sets of values in ci/."""
    return sorted(path.name.removesuffix("-values.yaml") for path in CI.glob("*-values.yaml"))


@pytest.fixture(scope="session")
def manifest(rendered: Renderer) -> Callable[..., dict[str, Any]]:
    """Return a function from a kind, a name and values to the one such object."""

    def of(kind: str, name: str, *sets: str, **options: str) -> dict[str, Any]:
        [object_named] = [
            each.manifest
            for each in rendered(*sets, **options)
            if (each.manifest["kind"], each.manifest["metadata"]["name"]) == (kind, name)
        ]
        return object_named

    return of
