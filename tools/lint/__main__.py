"""Check the rules of this repository: `python -m tools.lint [--root TREE]`."""

import argparse
import gc
import sys
from itertools import chain
from pathlib import Path
from typing import Final

from tools.lint import constructors, exceptions, logs, naming, sizes, spelling, stale_names, words
from tools.lint.findings import Rule
from tools.lint.tree import Tree

ROOT: Final = Path(__file__).parents[2]
EXCEPTIONS: Final = "tools/lint/exceptions.toml"


def rules() -> tuple[Rule, ...]:
    """Return all rules."""
    return (
        sizes.folder_files,
        sizes.file_lines,
        sizes.function_lines,
        naming.class_names,
        naming.base_names,
        naming.test_names,
        naming.local_names,
        logs.loggers,
        logs.log_events,
        constructors.constructors,
        spelling.spelling,
        stale_names.stale_names,
        words.rule(words.read()),
    )


def check(root: Path) -> list[str]:
    """Return a line for each thing that is to be mended; none where all is well."""
    tree, file = Tree(root), root / EXCEPTIONS
    allowed = exceptions.read(file) if file.is_file() else ()
    kept, unneeded = exceptions.split(chain.from_iterable(rule(tree) for rule in rules()), allowed)
    return [*exceptions.report_unneeded(unneeded, EXCEPTIONS), *map(str, kept)]


def main() -> int:
    """Run the command; the exit status is 1 where anything is to be mended."""
    parser = argparse.ArgumentParser(prog="python -m tools.lint", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; default: this one")
    given = parser.parse_args()
    gc.disable()  # Collecting costs seconds, because all syntax trees of a checkout are alive.
    problems = check(given.root)
    sys.stdout.writelines(f"{line}\n" for line in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
