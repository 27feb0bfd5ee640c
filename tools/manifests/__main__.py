"""Render the files that come from the chart: `python -m tools.manifests [--check] [--root TREE]`.

With `--check` it writes nothing, lints the chart and the manifests, and exits with 1 where a file
differs or a lint has a finding.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.manifests import (
    chart_lint,
    dashboards,
    kustomize_files,
    prometheus_lint,
    settings_schema,
)
from tools.manifests.helm_chart import HelmFailed
from tools.manifests.prometheus_lint import DASHBOARDS

ROOT: Final = Path(__file__).parents[2]


def rendered(root: Path) -> dict[Path, str]:
    """Return the text of every file that is rendered. Raises HelmFailed."""
    deploy = root / kustomize_files.DEPLOY
    texts = {deploy / path: text for path, text in kustomize_files.files(root).items()}
    texts |= {root / DASHBOARDS / name: text for name, text in dashboards.files().items()}
    return texts | {root / settings_schema.SCHEMA: settings_schema.with_settings(root)}


def differences(root: Path) -> Iterator[str]:
    """Return a line for each file that differs from what the chart renders. Raises HelmFailed."""
    for path, text in rendered(root).items():
        if not path.is_file() or path.read_text() != text:
            yield (
                f"{path.relative_to(root)}: differs from the chart:"
                " edit the chart, and run `make manifests`"
            )


def check(root: Path) -> list[str]:
    """Return a line for each thing that is to be mended; none where all is well."""
    try:
        return [*differences(root), *chart_lint.findings(root), *prometheus_lint.findings(root)]
    except HelmFailed as failed:
        return [f"{kustomize_files.VALUES}: helm: {failed}"]


def main() -> int:
    """Run the command; the exit status is 1 where anything is to be mended."""
    parser = argparse.ArgumentParser(prog="python -m tools.manifests", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; compare and lint")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree; default: this one")
    given = parser.parse_args()
    if given.check:
        problems = check(given.root)
        sys.stdout.writelines(f"{line}\n" for line in problems)
        return 1 if problems else 0
    for path, text in rendered(given.root).items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
