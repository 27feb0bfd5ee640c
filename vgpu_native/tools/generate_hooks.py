"""Generate the C lists of callable functions and of hooks.

`python tools/generate_hooks.py HEADERS OUTPUT` writes into OUTPUT:

* `functions.inc`: all functions that the library may call, for `driver.h`.

`python tools/generate_hooks.py --hooks OUTPUT OBJECT...` writes, from the hooks that are in the
objects:

* `hooks.inc`: the hooks, sorted by name.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import driver_api
from driver_api import DriverFunction

_HOOK = re.compile(r"^\S+ [TW] ((?:cu|nvml)[A-Z]\w*)$", re.MULTILINE)
_MADE = "/* Made by tools/generate_hooks.py; not to be edited. */\n"


def main(arguments: list[str]) -> None:
    """Write the files."""
    if arguments[0] == "--hooks":
        output, objects = Path(arguments[1]), arguments[2:]
        hooks = sorted(hooks_of(objects))
        lines = [f"VGPU_HOOK({name})" for name in hooks]
        _write(output / "hooks.inc", _MADE + _macro("VGPU_HOOKS", lines))
        return
    headers, output = map(Path, arguments)
    _write(output / "functions.inc", _MADE + callable_functions(driver_api.functions(headers)))


def hooks_of(objects: Iterable[str]) -> set[str]:
    """Return the names of the hooks that objects define."""
    command = ["nm", "--extern-only", "--defined-only", *objects]
    return set(
        _HOOK.findall(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


def callable_functions(functions: list[DriverFunction]) -> str:
    """Return the list of all callable functions, with their keys for cuGetProcAddress."""
    table = tomllib.loads((Path(__file__).parent / "functions.toml").read_text())
    listed = [
        name for names in (*table["hooked"].values(), *table["called"].values()) for name in names
    ]
    known = {function.name for function in functions}
    lines = [
        f'VGPU_FUNCTION({function.name}, "{function.base}", {function.version}, {function.flag})'
        for function in functions
    ]
    lines += [f'VGPU_FUNCTION({name}, "", 0, 0)' for name in listed if name not in known]
    return _macro("VGPU_FUNCTIONS", lines)


def _write(path: Path, text: str) -> None:
    # An unchanged file keeps its time, so that make does not rebuild its dependents.
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _macro(name: str, lines: list[str]) -> str:
    return f"#define {name} \\\n" + "".join(f"  {line} \\\n" for line in lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
