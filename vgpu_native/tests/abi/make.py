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
    found = [one for one in driver_api.functions(headers) if one.name not in _RESOLVING]
    (output / "echoes.inc").write_text("".join(echo(i, one) for i, one in enumerate(found)))
    (output / "calls.inc").write_text("".join(call(i, one) for i, one in enumerate(found)))
    (output / "forwards.inc").write_text("".join(forward(one) for one in found))
    rows = (row(i, one) for i, one in enumerate(found))
    (output / "rows.inc").write_text("".join(rows))


def row(number: int, one: DriverFunction) -> str:
    """Return FUNCTION(number, name, base, version, flag) for a table."""
    return f"FUNCTION({number}, {one.name}, {one.base}, {one.version}, {one.flag})\n"


def echo(number: int, one: DriverFunction) -> str:
    """Return the function of the driver, and its double that the driver does not export."""
    notes = "".join(f"  note(&{name}, sizeof {name});\n" for name in one.arguments)
    given = ", ".join(one.parameters) or "void"
    body = f"({given}) {{\n  begin({number});\n{notes}  return told();\n}}\n"
    return f"CUresult {one.name}{body}static CUresult inner_{one.name}{body}"


def forward(one: DriverFunction) -> str:
    """Return a hook that forwards."""
    given, arguments = ", ".join(one.parameters) or "void", ", ".join(one.arguments)
    return f"EXPORT CUresult {one.name}({given}) {{ return REAL({one.name})({arguments}); }}\n"


def call(number: int, one: DriverFunction) -> str:
    """Return a function that calls through an address, or directly where that is NULL."""
    names = one.arguments
    locals_ = "".join(f"  {parameter};\n" for parameter in one.parameters)
    fills = "".join(
        f"  {_filling(parameter)}((void *)&{name}, sizeof {name}, {number}, {i});\n"
        for i, (name, parameter) in enumerate(zip(names, one.parameters, strict=True))
    )
    given = ", ".join(names)
    checks = "".join(f"  expect(&{name}, sizeof {name}, {i});\n" for i, name in enumerate(names))
    through = f"((__typeof__(&{one.name}))called_at)({given})"
    return (
        f"_Static_assert(__builtin_types_compatible_p(__typeof__(&{one.name}), {one.typedef}),"
        f' "{one.name} is not {one.typedef}");\n'
        f"static void call_{one.name}(void *called_at) {{\n{locals_}{fills}"
        f"  prepare({number});\n"
        f"  CUresult came_back = called_at ? {through} : {one.name}({given});\n"
        f"  arrived({number}, came_back);\n{checks}  arrived_all();\n}}\n"
    )


def _filling(parameter: str) -> str:
    return "point" if "*" in parameter else "fill"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
