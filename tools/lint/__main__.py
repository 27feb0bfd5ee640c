"""Check the ratchets, or write their baseline: `python -m tools.lint [--write] [--accept RULE]`."""

import argparse
import gc
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from tools.lint import (
    baseline,
    constructors,
    exceptions,
    logs,
    naming,
    sizes,
    spelling,
    stale_names,
    words,
)
from tools.lint.findings import Finding, Rule
from tools.lint.tree import Tree

ROOT: Final = Path(__file__).parents[2]
BASELINE: Final = "tools/lint/baseline.txt"
EXCEPTIONS: Final = "tools/lint/exceptions.toml"
STRICTER: Final = "with --write: the total of this rule may rise, because it became stricter"


def rules() -> tuple[Rule, ...]:
    """Return all rules."""
    return (
        sizes.folder_files,
        sizes.file_lines,
        sizes.function_lines,
        naming.class_names,
        naming.base_names,
        naming.test_names,
        logs.loggers,
        logs.log_events,
        constructors.constructors,
        spelling.spelling,
        stale_names.stale_names,
        words.rule(words.read()),
    )


def check(root: Path) -> list[str]:
    """Return a line for each thing that is to be mended; none where all is well."""
    kept, unneeded = _findings(root)
    recorded, repeated = _recorded(root)
    return [
        *exceptions.report_unneeded(unneeded, EXCEPTIONS),
        *(f"{BASELINE}: {key} twice: run {baseline.REWRITE}" for key in repeated),
        *baseline.compare(kept, recorded),
    ]


def write(root: Path, accepted: frozenset[str]) -> list[str]:
    """Write the baseline again; return a line for each rule whose total rose, and write nothing.

    A file that moved takes its findings with it, as only the total of a rule counts. `accepted`
    names rules whose total may rise, because they became stricter.
    """
    counts = baseline.count(_findings(root)[0])
    recorded, _repeated = _recorded(root)
    checked = {key: number for key, number in counts.items() if key[0] not in accepted}
    if risen := list(baseline.risen(checked, recorded)):
        return [*baseline.compare(_findings(root)[0], recorded), *risen]
    (root / BASELINE).write_text(baseline.render(counts))
    return []


def _findings(root: Path) -> tuple[list[Finding], tuple[exceptions.Allowed, ...]]:
    tree, file = Tree(root), root / EXCEPTIONS
    allowed = exceptions.read(file) if file.is_file() else ()
    found: Iterator[Finding] = chain.from_iterable(rule(tree) for rule in rules())
    return exceptions.split(found, allowed)


def _recorded(root: Path) -> tuple[baseline.Counts, list[str]]:
    file = root / BASELINE
    return baseline.parse(file.read_text() if file.is_file() else "")


def main() -> int:
    """Run the command; the exit status is 1 where anything is to be mended."""
    parser = argparse.ArgumentParser(prog="python -m tools.lint", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the baseline again")
    parser.add_argument("--accept", action="append", default=[], metavar="RULE", help=STRICTER)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; default: this one")
    given = parser.parse_args()
    gc.disable()  # Collecting costs seconds, because all syntax trees of a checkout are alive.
    problems = write(given.root, frozenset(given.accept)) if given.write else check(given.root)
    sys.stdout.writelines(f"{line}\n" for line in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
