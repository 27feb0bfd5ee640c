"""Krew archive: launcher, wheel and locked packages of `kubectl gpuledger`, and its manifest.

`python -m tools.krew_archive [--address URL]` writes both to build/krew. A wheel cannot be
run by itself, so the archive has a launcher that makes a virtual environment at its first run.
"""

import argparse
import gzip
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from gpuledger.version import VERSION

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = ROOT / "deploy" / "krew"
ARCHIVE: Final = "kubectl-gpuledger.tar.gz"
EPOCH: Final = 315_532_800
"""The time of every file, so that an unchanged tree gives the same archive: the oldest of a zip."""


def build(out: Path, address: str = "") -> Path:
    """Write archive and manifest into a folder, and return the manifest.

    `address` is the URL of the archive, by default that of the manifest in this tree. Raises
    CalledProcessError if the wheel cannot be built.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel = _wheel(Path(folder))
        files = {
            "kubectl-gpuledger": SOURCES / "kubectl-gpuledger",
            wheel.name: wheel,
            "packages.lock": ROOT / "deploy" / "locks" / "service.lock",
            "LICENSE": ROOT / "LICENSE",
        }
        archive = _archive({name: path.read_bytes() for name, path in files.items()})
    (out / ARCHIVE).write_bytes(archive)
    manifest = (SOURCES / "gpuledger.yaml").read_text()
    manifest = manifest.replace("0" * 64, hashlib.sha256(archive).hexdigest())
    if address:
        manifest = re.sub(r"uri: \S+", f"uri: {address}", manifest)
    written = out / "gpuledger.yaml"
    written.write_text(re.sub(r"version: \S+", f"version: v{VERSION}", manifest))
    return written


def _wheel(folder: Path) -> Path:
    """Build the wheel of the tracked files only, because setuptools adds what an old build left."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    tree = folder / "tree"
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    how = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *how, "--wheel-dir", str(folder), str(tree)],
        check=True,
        env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(EPOCH)},
    )
    return next(folder.glob("gpuledger-*.whl"))


def _archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=EPOCH) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), EPOCH
            entry.mode = 0o755 if name == "kubectl-gpuledger" else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def main() -> None:
    """Build into build/krew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="", help="URL of the archive in the manifest")
    manifest = build(ROOT / "build" / "krew", parser.parse_args().address)
    sys.stdout.write(f"{manifest}\n{manifest.with_name(ARCHIVE)}\n")


if __name__ == "__main__":
    main()
