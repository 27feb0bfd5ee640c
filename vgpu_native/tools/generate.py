"""Write what C takes from the driver's headers and from functions.toml.

`python tools/generate.py HEADERS OUTPUT` writes into OUTPUT:

* `functions.inc`: all functions that the library may call, for `driver.h`;
* `stub_functions.inc`: all functions of the driver with their parameters, for the stub.

`python tools/generate.py --hooks OUTPUT OBJECT...` writes, from the hooks that are in the objects:

* `hooks.inc`: the hooks, sorted by name;
* `exports.map`: a version script that exports them and `dlsym`, and nothing else.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import api
from api import Function

_HOOK = re.compile(r"^\S+ [TW] ((?:cu|nvml)[A-Z]\w*)$", re.MULTILINE)
_MADE = "/* Made by tools/generate.py; not to be edited. */\n"


def main(arguments: list[str]) -> None:
    """Write the files."""
    if arguments[0] == "--hooks":
        output, objects = Path(arguments[1]), arguments[2:]
        hooks = sorted(hooks_of(objects))
        (output / "exports.map").write_text(exports(hooks))
        (output / "hooks.inc").write_text(
            _MADE + _macro("VGPU_HOOKS", [f"VGPU_HOOK({h})" for h in hooks])
        )
        return
    headers, output = map(Path, arguments)
    found = api.functions(headers)
    (output / "functions.inc").write_text(_MADE + callable_functions(found))
    (output / "stub_functions.inc").write_text(_MADE + stub(found))


def hooks_of(objects: Iterable[str]) -> set[str]:
    """Return the hooks that objects define."""
    command = ["nm", "--extern-only", "--defined-only", *objects]
    return set(
        _HOOK.findall(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


def exports(hooks: Iterable[str]) -> str:
    """Return the version script."""
    return (
        "{\n  global:\n"
        + "".join(f"    {name};\n" for name in ["dlsym", *hooks])
        + "  local: *;\n};\n"
    )


def callable_functions(found: list[Function]) -> str:
    """Return the list of all that may be called, with what to ask cuGetProcAddress for."""
    table = tomllib.loads((Path(__file__).parent / "functions.toml").read_text())
    listed = [
        name for names in (*table["hooked"].values(), *table["called"].values()) for name in names
    ]
    known = {one.name for one in found}
    lines = [f'VGPU_FUNCTION({one.name}, "{one.base}", {one.version}, {one.flag})' for one in found]
    lines += [f'VGPU_FUNCTION({name}, "", 0, 0)' for name in listed if name not in known]
    return _macro("VGPU_FUNCTIONS", lines)


def stub(found: list[Function]) -> str:
    """Return STUB_FUNCTION(name, base, version, flag, (parameters), (arguments)) for each function.

    The flag is 2 where a null stream means the thread's default stream.
    """
    return "".join(
        f"STUB_FUNCTION({one.name}, {one.base}, {one.version}, {one.flag}, "
        f"({', '.join(one.parameters) or 'void'}), ({', '.join(one.arguments)}))\n"
        for one in found
    )


def _macro(name: str, lines: list[str]) -> str:
    return f"#define {name} \\\n" + "".join(f"  {line} \\\n" for line in lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
