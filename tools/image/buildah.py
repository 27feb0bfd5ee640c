"""buildah, which builds images and writes archives of them; no other module runs it."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SECONDS: Final = 1800.0
"""How long one command of buildah may take."""

_MOUNTS: Final = Path("/proc/self/mounts")
_SETTINGS: Final = {"STORAGE_DRIVER": "overlay", "BUILDAH_ISOLATION": "chroot"}
"""Defaults of the environment. The chroot isolation needs no container runtime."""


class BuildFailed(Exception):
    """A program failed; the text has its command and the end of its output."""


class Buildah:
    """Images in a storage of their own, apart from that of the machine."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run a command and return its output; raise `BuildFailed`."""
        place = [f"--root={self._storage / 'root'}", f"--runroot={self._storage / 'run'}"]
        return run(["buildah", *place, *arguments], env={**_SETTINGS, **os.environ}, cwd=cwd)

    def has(self, image: str) -> bool:
        """Return whether the storage has an image."""
        return bool(self.run("images", "--quiet", "--filter", f"reference={image}").strip())

    def make_base(self, image: str, archive: Path, epoch: int) -> None:
        """Make an image of one layer from a tar archive of a root file system."""
        container = self.run("from", "scratch").strip()
        try:
            self.run("add", "--quiet", container, str(archive), "/")
            self.run("commit", "--quiet", f"--timestamp={epoch}", container, image)
        finally:
            self.run("rm", container)

    def build(
        self,
        tree: Path,
        *,
        stage: str,
        image: str,
        arguments: Mapping[str, str],
        packages: Path | None,
        epoch: int,
        pull: bool,
    ) -> None:
        """Build one target of the Dockerfile; the folder `packages` replaces a stage."""
        command = ["bud", "--layers", f"--timestamp={epoch}", f"--target={stage}", f"--tag={image}"]
        command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
        command += [f"--build-context=packages={packages}"] if packages else []
        command += ["--pull" if pull else "--pull-never", "--file=deploy/Dockerfile", "."]
        self.run(*command, cwd=tree)

    def write_archive(self, image: str, path: Path, reference: str) -> str:
        """Write an OCI archive and return the digest of its manifest."""
        digest = path.with_suffix(".digest")
        path.unlink(missing_ok=True)  # because buildah adds to an archive that exists
        self.run(
            "push", "--quiet", f"--digestfile={digest}", image, f"oci-archive:{path}:{reference}"
        )
        text = digest.read_text().strip()
        digest.unlink()
        return text

    def delete(self) -> None:
        """Delete the storage; first unmount the mounts that a killed command left in it."""
        mounts = (line.split()[1] for line in _MOUNTS.read_text().splitlines())
        inside = [mount for mount in mounts if Path(mount).is_relative_to(self._storage)]
        for mount in reversed(inside):
            run(["umount", mount])
        if self._storage.exists():
            shutil.rmtree(self._storage)


def run(
    command: list[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a program and return its output; raise `BuildFailed` with the end of its output."""
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError:
        raise BuildFailed(f"{command[0]} is not installed: apt-get install {command[0]}") from None
    if done.returncode:
        printed = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise BuildFailed(f"{' '.join(command)}: exit status {done.returncode}\n{printed}")
    return done.stdout
