"""Chart lint: helm lint, yamllint and Kubernetes' schemas over every set of values in ci/.

`prometheus_lint` checks its alerts and dashboards.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import kubernetes_validate.utils
import yaml

from tools.manifests import yaml_lint
from tools.manifests.helm_chart import CHART, LOADER, HelmFailed, helm, render

VERSIONS: Final = ("1.34", "1.35", "1.36", "1.37")
"""The versions of Kubernetes that every rendered object is valid for."""

DEFINED_ELSEWHERE: Final = ("cert-manager.io/", "monitoring.coreos.com/")
"""API groups whose schemas are not Kubernetes' own."""

OBJECTS_MAX: Final = 1_024
"""How many rendered objects are remembered, with their findings."""
SCHEMAS_MAX: Final = 256
"""How many files of schemas are kept: one for each kind and version, and the definitions."""

# Because the library reads a megabyte of definitions for each object that it validates.
kubernetes_validate.utils.schema_contents = lru_cache(SCHEMAS_MAX)(
    kubernetes_validate.utils.schema_contents
)


def findings(root: Path) -> Iterator[str]:
    """Return a line for each thing that is to be mended."""
    yield from yaml_lint.written(root)
    seen: set[str] = set()
    sets = sorted((root / CHART / "ci").glob("*-values.yaml"))
    if not sets:
        yield f"{CHART}/ci: has no *-values.yaml, so no rendered object is checked"
    for values in sets:
        yield from _of_values(root, values, seen)


def _of_values(root: Path, values: Path, seen: set[str]) -> Iterator[str]:
    """Return the findings of one set of values; texts in `seen` were checked before."""
    name = values.relative_to(root)
    try:
        helm("lint", "--strict", "--quiet", root / CHART, f"--values={values}")
        objects = render(root, [values])
    except HelmFailed as failed:
        yield f"{name}: helm: {failed}"
        return
    new = [each for each in objects if each.text not in seen]
    seen.update(each.text for each in new)
    for line in chain.from_iterable(_of_object(each.template, each.text) for each in new):
        yield f"{name}: {line}"


@lru_cache(OBJECTS_MAX)
def _of_object(template: str, text: str) -> tuple[str, ...]:
    return tuple(_problems(template, text))


def _problems(template: str, text: str) -> Iterator[str]:
    manifest = yaml.load(text, LOADER)
    name = f"{template}: {manifest.get('kind')}/{manifest.get('metadata', {}).get('name')}"
    yield from yaml_lint.rendered(name, text)
    if not str(manifest.get("apiVersion")).startswith(DEFINED_ELSEWHERE):
        for version in VERSIONS:
            problem = _invalid(manifest, version)
            if problem:
                yield f"{name}: Kubernetes {version}: {problem}"


def _invalid(manifest: dict[str, Any], version: str) -> str:
    """Return why the schema of a version refuses an object; nothing if it is valid."""
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as invalid:
        return f"{'.'.join(map(str, invalid.path))}: {invalid.message}"
    except kubernetes_validate.SchemaNotFoundError:
        return f"has no kind {manifest.get('kind')} in {manifest.get('apiVersion')}"
    return ""
