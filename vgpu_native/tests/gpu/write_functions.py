"""Write the functions of the library's table, for the check of a driver's names.

`python tests/gpu/write_functions.py MADE OUTPUT` reads the generated `functions.inc` and
`hooks.inc`. The output has for each function its name, its base name and version for
cuGetProcAddress, whether it needs the flag of the per-thread stream, and whether the library hooks
it. It also has the expression by which a name looks as if its function allocated or launched.
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_function_classes import _SUSPICIOUS

_FUNCTION = re.compile(r'VGPU_FUNCTION\((\w+), "(\w*)", (\d+), (\d+)\)')
_HOOK = re.compile(r"VGPU_HOOK\((\w+)\)")


def main(made: Path, output: Path) -> None:
    """Write the file."""
    hooks = set(_HOOK.findall((made / "hooks.inc").read_text()))
    functions = [
        [name, base, int(version), int(flag), name in hooks]
        for name, base, version, flag in _FUNCTION.findall((made / "functions.inc").read_text())
    ]
    table = {"functions": functions, "suspicious": _SUSPICIOUS.pattern}
    output.write_text(json.dumps(table))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
