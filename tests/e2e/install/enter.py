"""Enter the namespaces of a rig: `python -m tests.e2e.install.enter [--build] COMMAND…`.

With `--build` the images are built before, because nothing inside reaches a package index. Where
the machine lacks something, the command runs outside, and its tests skip with the reason.
"""

import subprocess
import sys
from collections.abc import Sequence

from tests.e2e.install.rig import assets, namespaces

INSIDE = "--inside"
BUILD = "--build"
BUILDS = (("tools.image", "build"), ("tests.e2e.install.story.next_version",))
"""The modules that build images, with their arguments."""


def main(arguments: Sequence[str]) -> int:
    """Run a command in a rig and return its exit status."""
    if arguments[0] == INSIDE:
        return namespaces.run_as_init(arguments[1:])
    builds = arguments[0] == BUILD
    if builds:
        arguments = arguments[1:]
    if reason := assets.missing():
        print(f"!!! no rig: {reason}", file=sys.stderr, flush=True)
        return subprocess.run(arguments, check=False).returncode
    if builds:
        for build in BUILDS:
            subprocess.run([sys.executable, "-m", *build], check=True)
    return namespaces.run_inside(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
