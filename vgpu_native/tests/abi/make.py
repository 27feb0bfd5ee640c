"""Write the generated halves of the ABI test: `python make.py HEADERS OUTPUT`.

* `echoes.inc`: each function of the driver, which records its arguments and returns a set result.
* `calls.inc`: for each function a call with sentinels.
* `rows.inc`: the name, version and flag by which each function is looked up.
* `forwards.inc`: a hook for each function that only forwards.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import driver_api
from driver_api import DriverFunction

_RESOLVING = ("cuGetProcAddress", "cuGetProcAddress_v2")
"""Functions that driver.c defines, because they do more than echo."""


def main(headers: Path, output: Path) -> None:
    """Write the files."""
    output.mkdir(parents=True, exist_ok=True)
    functions = [
        function for function in driver_api.functions(headers) if function.name not in _RESOLVING
    ]
    (output / "echoes.inc").write_text(
        "".join(echo(i, function) for i, function in enumerate(functions))
    )
    (output / "calls.inc").write_text(
        "".join(call(i, function) for i, function in enumerate(functions))
    )
    (output / "forwards.inc").write_text("".join(forward(function) for function in functions))
    rows = (row(i, function) for i, function in enumerate(functions))
    (output / "rows.inc").write_text("".join(rows))


def row(number: int, function: DriverFunction) -> str:
    """Return FUNCTION(number, name, base, version, flag) for a table."""
    key = f"{function.base}, {function.version}, {function.flag}"
    return f"FUNCTION({number}, {function.name}, {key})\n"


def echo(number: int, function: DriverFunction) -> str:
    """Return the function of the driver, and its double that the driver does not export."""
    notes = "".join(f"  note(&{name}, sizeof {name});\n" for name in function.arguments)
    given = ", ".join(function.parameters) or "void"
    body = f"({given}) {{\n  begin({number});\n{notes}  return told();\n}}\n"
    return f"CUresult {function.name}{body}static CUresult inner_{function.name}{body}"


def forward(function: DriverFunction) -> str:
    """Return a hook that forwards."""
    given, arguments = ", ".join(function.parameters) or "void", ", ".join(function.arguments)
    name = function.name
    return f"EXPORT CUresult {name}({given}) {{ return REAL({name})({arguments}); }}\n"


def call(number: int, function: DriverFunction) -> str:
    """Return a function that calls through an address, or directly where that is NULL."""
    names = function.arguments
    locals_ = "".join(f"  {parameter};\n" for parameter in function.parameters)
    fills = "".join(
        f"  {_filling(parameter)}((void *)&{name}, sizeof {name}, {number}, {i});\n"
        for i, (name, parameter) in enumerate(zip(names, function.parameters, strict=True))
    )
    given = ", ".join(names)
    checks = "".join(f"  expect(&{name}, sizeof {name}, {i});\n" for i, name in enumerate(names))
    through = f"((__typeof__(&{function.name}))called_at)({given})"
    return (
        f"_Static_assert(__builtin_types_compatible_p(__typeof__(&{function.name}),"
        f" {function.typedef}),"
        f' "{function.name} is not {function.typedef}");\n'
        f"static void call_{function.name}(void *called_at) {{\n{locals_}{fills}"
        f"  prepare({number});\n"
        f"  CUresult came_back = called_at ? {through} : {function.name}({given});\n"
        f"  arrived({number}, came_back);\n{checks}  arrived_all();\n}}\n"
    )


def _filling(parameter: str) -> str:
    return "point" if "*" in parameter else "fill"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
