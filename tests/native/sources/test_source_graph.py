"""The C files of the library have no circular uses, and folders use only lower folders.

The graph comes from the symbols of the objects. Hooks do not count: programs call them, and the
table of hooks is generated from them.
"""

import re
import subprocess
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from native.harness.builds import NATIVE

ROOMS = [
    "util",
    "core/limits",
    "core",
    "intercept/loader",
    "intercept",
    "intercept/dlsym",
    "memory/granularity",
    "memory/charges",
    "memory",
    "time/events",
    "time",
    "contexts",
]
"""The folders of src, each above those that it may use."""

FILES_MAX = 15

HOOK = re.compile(r"(cu|nvml)[A-Z]\w*|dlsym")
SYMBOL = re.compile(r"^(?:[0-9a-f]+)? +([A-Za-z]) (\w+)", re.MULTILINE)

Graph = dict[str, set[str]]


def graph_of(objects: dict[str, Path]) -> Graph:
    """Return for each file the other files whose symbols it uses."""
    defined: dict[str, str] = {}
    used: dict[str, set[str]] = defaultdict(set)
    for file, path in objects.items():
        nm = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True)
        for kind, name in SYMBOL.findall(nm.stdout):
            if HOOK.fullmatch(name):
                continue
            if kind == "U":
                used[file].add(name)
            else:
                defined[name] = file
    return {
        file: {defined[name] for name in used[file] if name in defined} - {file} for file in objects
    }


def circle_in(graph: Graph) -> list[str]:
    """Return the files of one circle, [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        files: list[str] = error.args[1]
        return files
    return []


def upward_uses(graph: Graph) -> list[str]:
    """Return `file uses file` for each use of a room above."""
    place = {file: ROOMS.index(str(Path(file).parent)) for file in graph}
    return sorted(
        f"{file} uses {other}"
        for file, others in graph.items()
        for other in others
        if place[other] > place[file]
    )


@pytest.fixture
def graph(library: Path) -> Graph:
    """Return the graph of the library's C files."""
    files = [str(path.relative_to(NATIVE / "src")) for path in (NATIVE / "src").rglob("*.c")]
    return graph_of({file: library.parent / "objects" / f"{file}.o" for file in files})


def test_c_files_use_one_another_without_a_circle(graph: Graph) -> None:
    assert circle_in(graph) == []
    assert sum(map(len, graph.values())) > 60, "the symbols were not read"


def test_a_room_uses_only_rooms_below_it(graph: Graph) -> None:
    assert upward_uses(graph) == []


def test_each_folder_of_the_library_is_a_room_of_at_most_15_files() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in (NATIVE / "src").rglob("*.*"):
        counts[str(path.parent.relative_to(NATIVE / "src"))] += 1
    assert set(counts) == set(ROOMS)
    assert max(counts.values()) <= FILES_MAX


PLANTED = {
    "util/low.c": "int high(void); int low(void) { return high(); }",
    "memory/high.c": "int low(void); int high(void) { return low(); }",
    "time/apart.c": "int low(void); int cuApart(void) { return low(); }",
}


@pytest.mark.usefixtures("make")
def test_a_planted_circle_is_found_when_two_files_call_each_other(tmp_path: Path) -> None:
    objects = {}
    for file, text in PLANTED.items():
        source = tmp_path / Path(file).name
        source.write_text(text)
        objects[file] = source.with_suffix(".o")
        subprocess.run(["cc", "-c", source, "-o", objects[file]], check=True, timeout=60)
    graph = graph_of(objects)
    assert set(circle_in(graph)) == {"util/low.c", "memory/high.c"}
    assert upward_uses(graph) == ["util/low.c uses memory/high.c"]
