"""The locked packages, fetched by pip outside of the build, which then needs no network."""

import hashlib
import sys
from pathlib import Path
from typing import Final

from tools.image.buildah import BuildFailed, run
from tools.image.recipe import LOCKS

PYTHON: Final = (3, 11)
"""The Python of the images, for which pip must choose wheels."""


def fetch(tree: Path, cache: Path) -> Path:
    """Return a folder of all packages of the tree's locks, each checked against its hash.

    Raises:
        BuildFailed: pip failed, or another Python than that of the images runs this.
    """
    if sys.version_info[:2] != PYTHON:
        raise BuildFailed(
            "Python 3.11, which the images have, must run this: make PYTHON=python3.11"
        )
    locks = [path for lock in LOCKS if (path := tree / lock).is_file()]
    key = hashlib.sha256(b"".join(path.read_bytes() for path in locks)).hexdigest()[:16]
    folder = cache / "packages" / key
    if not folder.is_dir():
        unfinished = folder.with_suffix(".unfinished")
        requirements = [part for path in locks for part in ("--requirement", str(path))]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--dest", str(unfinished), *requirements]
        run(command)
        unfinished.rename(folder)
    return folder
