"""The image of commit 75bd653, by the Dockerfile of that commit, for tests of adoptions.

Its Dockerfile names python:3.11-slim, installs by pip and apt, and has no build argument. So that
name is a base of mmdebstrap here, and pip finds the packages of the commit's locks in /packages.
A rig has no network: `python -m tests.e2e.install.story.old_image` builds the image before.
"""

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from tools.image import bases
from tools.image.archive import Archive, read_archive
from tools.image.build import cache_folder
from tools.image.buildah import Buildah, BuildFailed, run

ROOT: Final = Path(__file__).parents[4]
BASE: Final = "docker.io/library/python:3.11-slim"
OLD: Final = "75bd653"
GIT_SECONDS: Final = 60.0
LOCKS: Final = ("requirements.lock", "deploy/requirements.lock", "vgpu_native/headers.lock")


def built_old_image() -> Path:
    """Return the archive that `build_old_image` wrote. Raises FileNotFoundError without it."""
    path = _archive_of(OLD)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run python -m {__spec__.name}")
    return path


def build_old_image(commit: str = OLD) -> Archive:
    """Return the archive of docker.io/library/gpuledger:COMMIT; built once, then from the cache.

    Raises:
        BuildFailed: a program is missing or failed, or the checkout lacks the commit.
    """
    path = _archive_of(commit)
    folder = path.parent
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        tree = tree_of(commit, folder / "tree")
        buildah = Buildah(cache_folder() / "storage-of-old")
        _make_base(buildah)
        packages = _packages(tree, folder / "packages")
        image = f"localhost/gpuledger:{commit}"
        options = [f"--volume={packages}:/packages:ro", f"--tag={image}", "--pull-never"]
        buildah.run("bud", *options, "--file=deploy/Dockerfile", ".", cwd=tree)
        unfinished = path.with_suffix(".unfinished")
        buildah.write_archive(image, unfinished, f"docker.io/library/gpuledger:{commit}")
        unfinished.rename(path)
    return read_archive(path)


def _archive_of(commit: str) -> Path:
    return cache_folder() / "old" / commit / f"gpuledger-{commit}.oci.tar"


def tree_of(commit: str, folder: Path) -> Path:
    """Unpack the files of a commit into a folder, and return it."""
    command = ["git", "archive", commit]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=GIT_SECONDS, check=False)
    if done.returncode:
        raise BuildFailed(f"this checkout lacks commit {commit}: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def _make_base(buildah: Buildah) -> None:
    """Make the base, in which pip finds its packages in /packages and `python` is Python 3."""
    if buildah.has(BASE):
        return
    buildah.make_base(BASE, bases.archive_of("build", cache_folder()), bases.EPOCH)
    container = buildah.run("from", "--pull-never", BASE).strip()
    buildah.run("run", container, "--", "ln", "-s", "python3", "/usr/bin/python")
    buildah.run("config", "--env=PIP_NO_INDEX=1", "--env=PIP_FIND_LINKS=/packages", container)
    buildah.run("commit", "--quiet", container, BASE)
    buildah.run("rm", container)


def _packages(tree: Path, folder: Path) -> Path:
    """Fetch the packages of the locks; return their folder."""
    requirements = [part for lock in LOCKS for part in ("--requirement", str(tree / lock))]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    run([*command, "--dest", str(folder), *requirements])
    return folder


if __name__ == "__main__":
    sys.stdout.write(f"{build_old_image().path}\n")
