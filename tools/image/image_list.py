"""Lists beside the archives, for a site without a registry: all images, and checksums."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.image.archive import Archive

IMAGES: Final = "images.txt"
CHECKSUMS: Final = "SHA256SUMS"

_IMAGE: Final = re.compile(r"^\s*(?:- )?image: *(\S+)$", re.MULTILINE)
_OURS: Final = re.compile(r"(?:^|/)(?:gpuledger|nats)[-:]")


def images_of_others(tree: Path) -> list[str]:
    """Return the images of the manifests that others build, such as that of kube-scheduler."""
    images = {
        image
        for path in (tree / "deploy").rglob("*.yaml")
        if "chart" not in path.parts
        for image in _IMAGE.findall(path.read_text())
    }
    return sorted(image for image in images if not _OURS.search(image))


def write_lists(tree: Path, output: Path, archives: Iterable[Archive]) -> None:
    """Write images.txt, a reference a line, and SHA256SUMS, as `sha256sum --check` reads it."""
    references = [*(archive.reference for archive in archives), *images_of_others(tree)]
    (output / IMAGES).write_text("".join(f"{reference}\n" for reference in references))
    write_checksums(output)


def write_checksums(output: Path) -> None:
    """Write the checksum of each file of a folder, in the format of sha256sum."""
    files = sorted(path for path in output.iterdir() if path.is_file() and path.name != CHECKSUMS)
    (output / CHECKSUMS).write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in files))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
