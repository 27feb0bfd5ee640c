"""Base images without a registry: Debian 12 with Python 3.11, by mmdebstrap from Debian's mirror.

mmdebstrap sets no time later than SOURCE_DATE_EPOCH, so that one state of the mirror gives one
archive. An archive is made once and kept, because the mirror changes.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from tools.image.buildah import run

EPOCH: Final = 1_700_000_000
"""The latest time of a file of a base, in seconds since 1970."""

_SUITE: Final = "bookworm"
_COMMON: Final = (
    "--quiet",
    "--skip=output/dev",  # a container runtime makes /dev
    '--aptopt=APT::Install-Recommends "false"',
    # An archive has no file of the machine that made it.
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
)
RECIPES: Final = {
    "build": (
        *_COMMON,
        "--variant=minbase",
        "--include=python3,python3-venv,gcc,libc6-dev,make,ca-certificates",
    ),
    # `essential` has no apt. The hook and usr-is-merged replace usrmerge, which needs all of Perl.
    # mount is for the agent's init container, libstdc++6 for grpcio.
    "runtime": (
        *_COMMON,
        "--variant=essential",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        "--include=usr-is-merged,python3,ca-certificates,mount,libstdc++6",
    ),
}


def image_of(name: str) -> str:
    """Return the name of a base in buildah's storage; its tag depends on the recipe."""
    key = hashlib.sha256(repr((RECIPES[name], _SUITE, EPOCH)).encode()).hexdigest()[:16]
    return f"localhost/gpuledger-{name}-base:{key}"


def archive_of(name: str, cache: Path) -> Path:
    """Return the tar archive of a base, made where the cache has none; raise `BuildFailed`."""
    archive = cache / "bases" / f"{name}-{image_of(name).rpartition(':')[2]}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        unfinished = archive.with_suffix(".unfinished.tar")
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
        run(["mmdebstrap", *RECIPES[name], _SUITE, str(unfinished)], env=env)
        unfinished.rename(archive)
    return archive
