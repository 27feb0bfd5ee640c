"""Inputs of a build: the targets, the files of the context, the version and the time."""

import fnmatch
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

DOCKERFILE: Final = "deploy/Dockerfile"
LOCKS: Final = (
    "deploy/locks/service.lock",
    "deploy/locks/node.lock",
    "deploy/locks/build.lock",
    "vgpu_native/headers.lock",
)
"""The packages that the stages of the Dockerfile install."""

EPOCH: Final = 1_700_000_000
"""The time of the files of an image, unless SOURCE_DATE_EPOCH is set, in seconds since 1970."""

_VERSION: Final = re.compile(r'^VERSION = "([^"]+)"', re.MULTILINE)


class Target(msgspec.Struct, frozen=True):
    """A target of the Dockerfile and the name of its image."""

    stage: str
    image: str
    bill: str
    """Path of the bill of materials in the image."""


_BILL: Final = "opt/gpuledger/share/sbom.cdx.json"
TARGETS: Final = (
    Target("service", "gpuledger", _BILL),
    Target("agent", "gpuledger-agent", _BILL),
    Target("nats", "gpuledger-nats", "sbom.cdx.json"),
)


def version_of(tree: Path) -> str:
    """Return the version of a tree; raise `ValueError` when gpuledger/version.py has none."""
    path = tree / "gpuledger" / "version.py"
    line = _VERSION.search(path.read_text())
    if line is None:
        raise ValueError(f'{path} has no line VERSION = "…": write one')
    return line[1]


def context_files(tree: Path) -> list[Path]:
    """Return the files that .dockerignore lets into the build, and the Dockerfile, sorted.

    Of the syntax of .dockerignore this reads what ours has: `*` first, then `!PATTERN` for paths of
    the root, then names and `**/NAME` to leave out.
    """
    lines = (tree / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    wanted = [rule[1:] for rule in rules if rule.startswith("!")]
    ignored = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    sent = (path for pattern in wanted for root in tree.glob(pattern) for path in _files(root))
    kept = {path for path in sent if not _is_ignored(path.relative_to(tree), ignored)}
    return sorted(kept | {tree / DOCKERFILE})


def _files(root: Path) -> Iterator[Path]:
    yield from [root] if root.is_file() else filter(Path.is_file, root.rglob("*"))


def _is_ignored(path: Path, patterns: list[str]) -> bool:
    above = [path, *path.parents]
    return any(
        fnmatch.fnmatch(part.as_posix(), pattern) or fnmatch.fnmatch(part.name, pattern)
        for part in above
        for pattern in patterns
    )


def digest_of(tree: Path, files: list[Path]) -> str:
    """Return a SHA-256 over the paths, contents and executable bits of files."""
    whole = hashlib.sha256()
    for path in files:
        executable = os.access(path, os.X_OK)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(tree)} {executable} {content}\n".encode())
    return whole.hexdigest()


def epoch() -> int:
    """Return the time of all files of the image, in seconds since 1970.

    A release sets SOURCE_DATE_EPOCH, see https://reproducible-builds.org/specs/source-date-epoch/.
    All other builds have one time, because buildah reuses layers of any time.
    """
    return int(os.environ.get("SOURCE_DATE_EPOCH") or EPOCH)
