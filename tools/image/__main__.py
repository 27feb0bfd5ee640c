"""Build the images: `python -m tools.image build|reproducible|airgap`; `make image` runs it."""

import argparse
import shutil
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Final

from tools.image.archive import Archive
from tools.image.build import build, cache_folder
from tools.image.buildah import Buildah, BuildFailed, run
from tools.image.comparison import differences
from tools.image.image_list import write_checksums, write_lists
from tools.image.recipe import epoch

ROOT: Final = Path(__file__).parents[2]
OUTPUT: Final = ROOT / "build" / "images"
CHART: Final = ROOT / "deploy" / "chart" / "gpuledger"
TWICE: Final = "twice"
"""Folder in the cache of two builds that are compared."""

DIFFERENCES_MAX: Final = 20
"""So many differing files are printed."""


def build_images(output: Path, base: str | None) -> dict[str, Archive]:
    """Build all images into a folder, with the lists, and print sizes and seconds."""
    begun = time.monotonic()
    built = build(ROOT, output, base=base, report=_print)
    write_lists(ROOT, output, built.values())
    for archive in built.values():
        megabytes = archive.size / 1e6
        _print(f"{archive.reference} {archive.digest} {megabytes:.1f} MB compressed {archive.path}")
    _print(f"{len(built)} images in {time.monotonic() - begun:.0f} s")
    return built


def build_twice(base: str | None) -> int:
    """Build all images twice from the same bases and packages; return 1 when digests differ."""
    first, second = _built_afresh("first", base), _built_afresh("second", base)
    for name, archive in first.items():
        _print(f"{name}: {archive.digest} and {second[name].digest}")
        if archive.digest != second[name].digest:
            for line in islice(differences(archive, second[name]), DIFFERENCES_MAX):
                _print(f"{name}: {line}")
    different = any(first[name].digest != second[name].digest for name in first)
    shutil.rmtree(cache_folder() / TWICE)
    return 1 if different else 0


def _built_afresh(number: str, base: str | None) -> dict[str, Archive]:
    """Build all images in a new storage, which is deleted at the end; only the archives stay."""
    kept, cache = cache_folder(), cache_folder() / TWICE / number
    Buildah(cache).delete()  # because a run that was killed leaves its storage
    cache.mkdir(parents=True)
    for shared in ("bases", "packages"):
        (kept / shared).mkdir(parents=True, exist_ok=True)
        (cache / shared).symlink_to(kept / shared)
    _print(f"{number} build")
    try:
        return build(ROOT, cache / "output", base=base, cache=cache, report=_print)
    finally:
        Buildah(cache / f"storage-{epoch()}").delete()


def package_for_airgap(output: Path, base: str | None) -> None:
    """Build the images, package the chart beside them and write the checksums again."""
    build_images(output, base)
    run(
        [
            str(Path(sys.executable).with_name("helm")),
            "package",
            str(CHART),
            "--destination",
            str(output),
        ]
    )
    write_checksums(output)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    parser.add_argument("command", choices=("build", "reproducible", "airgap"))
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--base", help="an image with Python 3.11; default: made by mmdebstrap")
    given = parser.parse_args()
    base = given.base or None
    try:
        if given.command == "reproducible":
            return build_twice(base)
        (build_images if given.command == "build" else package_for_airgap)(given.output, base)
    except BuildFailed as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
