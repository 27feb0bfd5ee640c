"""Copy the library's sources with the one defect that a patch describes.

`python tests/mutants/apply.py tests/mutants/NAME.patch src OUTPUT`; run by the Makefile. The lines
of each hunk must occur in the file exactly once, on any line, so that none is applied elsewhere.
"""

import re
import shutil
import sys
from pathlib import Path

_FILE = re.compile(r"^--- a/(\S+)\n\+\+\+ b/\S+\n((?:(?!--- a/)[@ +-].*\n)+)", re.MULTILINE)
_HUNK = re.compile(r"^@@.*\n", re.MULTILINE)


def main(patch: Path, sources: Path, output: Path) -> None:
    """Replace the folder `output`. Raises SystemExit if the patch does not apply."""
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(sources, output)
    files = _FILE.findall(patch.read_text())
    if not files:
        raise SystemExit(f"{patch}: no hunks in it; write a unified diff with a/ and b/ paths")
    for name, hunks in files:
        file = output / name
        text = file.read_text() if file.is_file() else ""
        for hunk in filter(None, _HUNK.split(hunks)):
            text = _replaced(patch, sources / name, text, hunk)
        file.write_text(text)


def _replaced(patch: Path, file: Path, text: str, hunk: str) -> str:
    lines = hunk.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    if text.count(before) != 1:
        raise SystemExit(
            f"{patch} no longer applies: {file} has these lines {text.count(before)} times, not"
            f" once. Write the same defect into the new code.\n{before}"
        )
    return text.replace(before, after)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
