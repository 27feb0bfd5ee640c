"""Generate the exported functions of a stub library from the header of the real library.

`python vgpu_native/tools/generate_stub.py cuda TYPEDEFS <preprocessed >OUTPUT`, or `nvml` without
TYPEDEFS; run by the Makefile. Each function continues only if `stub_begin` allows it. It calls
`stub_<name>` if a file of tests/stub defines it, and else returns its fallback.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

_PROTOTYPE = re.compile(r"\b(CUresult|nvmlReturn_t)\s+((?:cu|nvml)\w+)\s*\(([^;{}]*?)\)\s*;")
_TYPEDEF = re.compile(r"PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)")
_NAME = re.compile(r"^(cu\w+?)(_v\d+)?(_ptsz|_ptds)?$")
_HARMLESS = re.compile(
    r"^cu(Memcpy|Memset|Memcpy\w*|\w*Set[A-Z]|\w*Prefetch|\w*Advise|\w*Unregister|Profiler|\w*Flush)"
)

_WORDS = {"char", "short", "int", "long", "unsigned", "float", "double", "void"}


class StubFunction(NamedTuple):
    """A function as the header declares it: its parameters are pairs of type and name."""

    name: str
    result: str
    parameters: tuple[tuple[str, str], ...]
    introduced: int

    @property
    def base(self) -> str:
        """Return the function's name for `cuGetProcAddress`."""
        match = _NAME.match(self.name)
        return match[1] if match else self.name

    @property
    def suffix(self) -> str:
        """Return `_ptsz`, `_ptds` or nothing: the meaning of the function's default stream."""
        match = _NAME.match(self.name)
        return (match[3] or "") if match else ""

    @property
    def behaviour(self) -> str:
        """Return the name of its implementation in tests/stub."""
        return "stub_" + self.name.removesuffix(self.suffix or "-")


def functions(header: str, typedefs: str) -> list[StubFunction]:
    """Return the functions of a preprocessed header, with the versions of the typedefs."""
    prototypes = {match[1]: match for match in map(_read, _PROTOTYPE.findall(header))}
    versions = _versions(set(prototypes), typedefs)
    return [
        StubFunction(name, result, parameters, versions.get(name, 0))
        for result, name, parameters in sorted(prototypes.values(), key=lambda each: each[1])
    ]


def _read(match: tuple[str, str, str]) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    result, name, inside = match
    parameters = [] if inside.strip() in ("", "void") else inside.split(",")
    return result, name, tuple(_parameter(each, at) for at, each in enumerate(parameters))


def _parameter(text: str, at: int) -> tuple[str, str]:
    """Return the type and a generated name, because a header may omit names."""
    whole = " ".join(text.split())
    match = re.match(r"^(.*[\s*])(\w+)$", whole)
    named = match and match[2] not in _WORDS and match[1].strip() not in ("const", "struct", "enum")
    return (match[1].strip() if match and named else whole), f"a{at}"


def _versions(names: set[str], typedefs: str) -> dict[str, int]:
    """Return the CUDA version that introduced each name: names and versions have one order."""
    introduced: dict[tuple[str, str], list[int]] = {}
    for base, version, suffix in set(_TYPEDEF.findall(typedefs)):
        introduced.setdefault((base, suffix), []).append(int(version))
    variants: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name in names if introduced else ():
        match = _NAME.match(name)
        assert match is not None, f"{name} is not named as the driver's functions are"
        order = int((match[2] or "_v1")[2:])
        variants.setdefault((match[1], match[3] or ""), []).append((order, name))
    result = {}
    for key, named in variants.items():
        pairs = zip(sorted(introduced.get(key, ())), sorted(named), strict=True)
        result.update({name: version for version, (_, name) in pairs})
    return result


def _fallback(function: StubFunction) -> str:
    if function.result == "nvmlReturn_t":
        return "NVML_ERROR_NOT_SUPPORTED"
    return "CUDA_SUCCESS" if _HARMLESS.match(function.name) else "CUDA_ERROR_NOT_SUPPORTED"


def _definition(at: int, function: StubFunction) -> str:
    declared = ", ".join(f"{kind} {name}" for kind, name in function.parameters) or "void"
    passed = ", ".join(name for _, name in function.parameters)
    default = "2" if function.suffix else "1"
    return f"""\
__attribute__((weak)) {function.result} {function.behaviour}({declared});
EXPORT {function.result} {function.name}({declared})
{{
  {function.result} result = {_fallback(function)};
  if (STUB_SPECIAL({at}) && !stub_begin({at}, &result)) return result;
  if (!{function.behaviour}) return result;
  int before = stub_enter({default});
  result = {function.behaviour}({passed});
  stub_leave(before);
  return result;
}}
"""


def _row(function: StubFunction) -> str:
    kind = 2 if function.suffix else 1
    return (
        f'  {{"{function.name}", "{function.base}", {function.introduced}, {kind},'
        f" (void *){function.name}}},"
    )


def main() -> None:
    """Write the definitions, then the table of them, sorted by name."""
    typedefs = Path(sys.argv[2]).read_text() if len(sys.argv) > 2 else ""
    every = functions(sys.stdin.read(), typedefs)
    sys.stdout.write("/* Made by tools/generate_stub.py; not to be edited. */\n\n")
    sys.stdout.write("\n".join(_definition(at, function) for at, function in enumerate(every)))
    sys.stdout.write("\nconst struct stub_function stub_functions[] = {\n")
    sys.stdout.write("\n".join(map(_row, every)) + "\n};\n")
    sys.stdout.write(f"const unsigned stub_function_count = {len(every)};\n")


if __name__ == "__main__":
    main()
