"""Generate the C header of the shared files from their description, `layout.py`.

`python vgpu_native/tools/generate_layout.py OUTPUT`; run by the Makefile.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from vgpu_native.shared import layout
from vgpu_native.shared.layout import Field, Layout

_WORDS = {4: "uint32_t", 8: "uint64_t"}
_NESTED = {
    ("region", "used"): layout.USES,
    ("region", "slot"): layout.SLOT,
    ("region", "budget"): layout.BUDGET,
    ("region", "share"): layout.SHARE,
}


def header() -> str:
    """Return the header."""
    lines = [
        "/* Made by tools/generate_layout.py from layout.py; not to be edited. */",
        "#pragma once",
        "",
    ]
    lines += ["#include <stddef.h>", "#include <stdint.h>", ""]
    lines += [f"#define VGPU_{name} {value:#x}" for name, value in layout.CONSTANTS.items()]
    lines += [f"#define VGPU_NO_LIMIT {layout.NO_LIMIT:#x}ULL", ""]
    for record in (
        layout.USES,
        layout.SLOT,
        layout.BUDGET,
        layout.SHARE,
        layout.LIMITS,
        layout.REGION,
    ):
        lines += [*_struct(record), ""]
    return "\n".join(lines)


def _struct(record: Layout) -> Iterator[str]:
    yield "typedef struct {"
    at, pads = 0, 0
    for field in record.fields:
        if field.offset > at:
            yield f"  unsigned char pad_{pads}[{field.offset - at}];"
            pads += 1
        yield f"  {_member(record, field)};"
        at = field.end
    if record.size > at:
        yield f"  unsigned char pad_{pads}[{record.size - at}];"
    yield f"}} vgpu_{record.name};"
    for field in record.fields:
        yield (
            f"_Static_assert(offsetof(vgpu_{record.name}, {field.name}) == {field.offset},"
            f' "{record.name}.{field.name}");'
        )
    yield f'_Static_assert(sizeof(vgpu_{record.name}) == {record.size}, "{record.name}");'


def _member(record: Layout, field: Field) -> str:
    nested = _NESTED.get((record.name, field.name))
    if nested is not None:
        return f"vgpu_{nested.name} {field.name}[{field.count}]"
    if field.width in _WORDS:
        array = f"[{field.count}]" if field.count > 1 else ""
        return f"{_WORDS[field.width]} {field.name}{array}"
    return f"char {field.name}[{field.count}][{field.width}]"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(header())
