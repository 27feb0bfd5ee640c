"""Fetch axe-core, the accessibility checks of the page tests, from npm into a cache.

`python tools/axe_core.py` prints the file. Only the pinned version with the pinned hash is used.
The cache is outside the tree. It needs npm once, and only the own library of Python.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "4.14.1"
SHA512: Final = (
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
"""The registry's integrity of the package, base64."""

FETCH_SECONDS: Final = 120.0

_MEMBER: Final = "package/axe.min.js"


class Unavailable(Exception):
    """The package cannot be fetched, or is not the pinned one; the message has the reason."""


def cached() -> Path:
    """Return the path of the script, whether it is there or not."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gpuledger-axe" / VERSION / "axe.min.js"


def fetch() -> Path:
    """Return the script, fetched if it is missing. Raises Unavailable."""
    script = cached()
    if script.is_file():
        return script
    with tempfile.TemporaryDirectory() as folder:
        package = _packed(Path(folder))
        script.parent.mkdir(parents=True, exist_ok=True)
        partial = script.with_suffix(f".{os.getpid()}.part")
        partial.write_bytes(_member(package))
        partial.rename(script)
    return script


def checked(package: bytes) -> bytes:
    """Return a package that has the pinned hash. Raises Unavailable."""
    digest = base64.b64encode(hashlib.sha512(package).digest()).decode()
    if digest != SHA512:
        raise Unavailable(f"axe-core {VERSION} has the hash sha512-{digest}, not sha512-{SHA512}")
    return package


def _packed(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    command = [npm, "pack", f"axe-core@{VERSION}", "--silent", f"--pack-destination={folder}"]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=FETCH_SECONDS, cwd=folder
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"npm pack axe-core@{VERSION}: {error}") from error
    package = folder / f"axe-core-{VERSION}.tgz"
    checked(package.read_bytes())
    return package


def _member(package: Path) -> bytes:
    with tarfile.open(package) as archive:
        member = archive.extractfile(_MEMBER)
        assert member is not None
        return member.read()


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{fetch()}\n")
    except Unavailable as error:
        sys.exit(f"!!! NO AXE-CORE: {error}. The checks of accessibility skip.")
