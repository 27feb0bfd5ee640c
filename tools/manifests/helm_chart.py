"""The chart, rendered and linted by helm. This module owns the dependency helm-binary."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

CHART: Final = "deploy/chart/gpuledger"
HELM: Final = Path(sys.executable).parent / "helm"
HELM_SECONDS: Final = 60.0

LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml where PyYAML has it; the other takes ten times as long."""

_SOURCE: Final = re.compile(r"^# Source: [^/\n]+/templates/(\S+)\n", re.MULTILINE)


class HelmFailed(Exception):
    """helm refused the chart or its values; the message is its output."""


class Rendered(NamedTuple):
    """One rendered object: its template below templates/, its text with comments, and itself."""

    template: str
    text: str
    manifest: dict[str, Any]


def helm(*arguments: str | Path) -> str:
    """Return the output of a helm command. Raises HelmFailed, also after 60 seconds."""
    command = [str(HELM), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=HELM_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise HelmFailed(f"helm {arguments[0]} took longer than {HELM_SECONDS:.0f} s") from late
    if done.returncode:
        raise HelmFailed(f"{done.stdout}{done.stderr}".strip())
    return done.stdout


def render(
    root: Path,
    values: Sequence[Path] = (),
    sets: Sequence[str] = (),
    *,
    release: str = "gpuledger",
    namespace: str = "gpuledger-system",
) -> tuple[Rendered, ...]:
    """Return the objects of a release, in the order of helm. Raises HelmFailed."""
    options = [f"--values={path}" for path in values]
    options += [f"--set={item}" for item in sets]
    text = helm("template", release, root / CHART, f"--namespace={namespace}", *options)
    return tuple(_objects(text))


def _objects(text: str) -> Iterator[Rendered]:
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        source = _SOURCE.match(document)
        if source is not None:
            body = document[source.end() :]
            manifest = yaml.load(body, LOADER)
            if manifest is not None:
                yield Rendered(source[1], body, manifest)
