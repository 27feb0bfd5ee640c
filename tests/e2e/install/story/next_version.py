"""The next version: this tree with a later version number, a newer record schema and a new field.

A rig has no network: `python -m tests.e2e.install.story.next_version` builds the image before. The
image then comes from the cache of images, whose key is the content of the tree.
"""

import shutil
import sys
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.version import VERSION
from ledger.log.record_schema import SCHEMA
from tools.image.archive import Archive
from tools.image.build import build
from tools.image.recipe import TARGETS, context_files

ROOT: Final = Path(__file__).parents[4]
FOLDER: Final = ROOT / "build" / "next-version"
CHART: Final = Path("deploy/chart/gpuledger")
NEXT: Final = "0.2.0"
NEXT_SCHEMA: Final = SCHEMA + 1
_CHANGES: Final = (
    ("gpuledger/version.py", VERSION, NEXT),
    (str(CHART / "Chart.yaml"), VERSION, NEXT),
    (
        "ledger/log/record_schema.py",
        f"SCHEMA: Final = {SCHEMA}\n",
        f"SCHEMA: Final = {NEXT_SCHEMA}\n",
    ),
    (
        "ledger/log/record_schema.py",
        "SINCE: Final[dict[str, int]] = {\n",
        f'SINCE: Final[dict[str, int]] = {{\n    "Reserved.region": {NEXT_SCHEMA},\n',
    ),
    (
        "ledger/core/model/events.py",
        "    traits: Traits = ()\n    forced: bool = False\n\n\nclass Raised",
        '    traits: Traits = ()\n    forced: bool = False\n    region: str = ""\n\n\nclass Raised',
    ),
)


class NextVersion(NamedTuple):
    """The chart and the image of the service of the next version."""

    chart: Path
    image: Archive


def next_version() -> NextVersion:
    """Return the next version; its image is built unless the cache has it.

    Raises:
        BuildFailed: a program is missing or failed.
    """
    tree = _tree()
    built = build(tree, FOLDER / "images", TARGETS[:1])
    return NextVersion(tree / CHART, built["gpuledger"])


def _tree() -> Path:
    """Write the files of the next version."""
    tree = FOLDER / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for path in (*context_files(ROOT), ROOT / ".dockerignore"):
        copied = tree / path.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copied)
    shutil.copytree(ROOT / CHART, tree / CHART, dirs_exist_ok=True)
    for name, before, after in _CHANGES:
        path = tree / name
        text = path.read_text()
        assert before in text, f"{name} has no {before!r}"
        path.write_text(text.replace(before, after))
    return tree


if __name__ == "__main__":
    sys.stdout.write(f"{next_version().image.path}\n")
