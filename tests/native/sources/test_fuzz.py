"""Tenant input is fuzzed for a short time, and the fuzzers find planted defects."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.builds import BUILD, NATIVE

FUZZ = NATIVE / "tests" / "fuzz"
SECONDS = 10
PLANTED_SECONDS = 20
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-fsanitize=address,undefined"]

PLANTED = [
    ("environment", "core/limits/environment.c", "value > UINT64_MAX >> shift", "false"),
    ("environment", "core/limits/environment.c", "if (at == first) *good = false;", ""),
    (
        "region",
        "core/process_slots.h",
        "high < VGPU_SLOTS_MAX ? (unsigned)high : VGPU_SLOTS_MAX",
        "high",
    ),
    ("region", "core/region_file.c", "state.st_size != sizeof(vgpu_region)", "state.st_size < 0"),
]

PLANTED_IN_PYTHON = [
    (
        "usage_region.py",
        'min(words.number(REGION["high"]), SLOTS_MAX)',
        'words.number(REGION["high"])',
    ),
    (
        "binary_fields.py",
        'encoded.decode() if all(33 <= byte <= 126 for byte in encoded) else ""',
        "encoded.decode()",
    ),
]


def test_fuzzing_finds_nothing_in_ten_seconds(make: Callable[..., None]) -> None:
    make("fuzzers")
    command: list[str | Path] = [sys.executable, FUZZ / "run.py", "--seconds", str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"(\d+) inputs.*: nothing found", done.stdout)
    assert len(counts) == 5, done.stdout
    assert all(int(count) > 10 for count in counts), done.stdout


@pytest.mark.parametrize(("target", "name", "guard", "instead"), PLANTED)
def test_fuzzing_finds_a_planted_defect(
    target: str, name: str, guard: str, instead: str, make: Callable[..., None], tmp_path: Path
) -> None:
    make("fuzzers")
    sources = tmp_path / "src"
    shutil.copytree(NATIVE / "src", sources)
    text = (sources / name).read_text()
    assert text.count(guard) == 1, f"{name} has another guard now: say it in PLANTED"
    (sources / name).write_text(text.replace(guard, instead))
    program = _built(target, sources)
    folder = tmp_path / "found"
    folder.mkdir()
    command: list[str | Path] = [
        program,
        str(PLANTED_SECONDS),
        "1",
        folder,
        FUZZ / "corpus" / target,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, 2), done.stdout + done.stderr


@pytest.mark.parametrize(("name", "guard", "instead"), PLANTED_IN_PYTHON)
def test_fuzzing_finds_a_defect_planted_in_the_agents_reader(
    name: str, guard: str, instead: str, tmp_path: Path
) -> None:
    package = tmp_path / "vgpu_native"
    (package / "shared").mkdir(parents=True)
    for path in [NATIVE / "__init__.py", *(NATIVE / "shared").glob("*.py")]:
        text = path.read_text()
        if path.name == name:
            assert text.count(guard) == 1, f"{name} has another guard now: say it here"
            text = text.replace(guard, instead)
        (package / path.relative_to(NATIVE)).write_text(text)
    command: list[str | Path] = [
        sys.executable,
        FUZZ / "region_reader.py",
        str(PLANTED_SECONDS),
        "1",
        tmp_path,
    ]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (tmp_path / "found").exists()


HANGING = """
import re, sys

sys.path.insert(0, sys.argv.pop(1))
from looping import main
from mutating import Mutator


def hang(data):
    while True:
        try:
            re.match(b"", data)
        except ValueError:
            pass


sys.exit(main(lambda seed: (Mutator(seed, [b"x"]), hang)))
"""


def test_fuzzing_finds_an_input_that_never_ends(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    command: list[str | Path] = [sys.executable, tmp_path / "hanging.py", FUZZ, "5", "1", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "it takes longer than 1 s" in done.stderr
    assert (tmp_path / "found").exists()


def _built(target: str, sources: Path) -> Path:
    """Build a target with other sources of the library."""
    core = sources / "core"
    linked = [*core.rglob("*.c"), *(sources / "util").glob("*.c")]
    program = sources.parent / target
    includes = [f"-I{path}" for path in (NATIVE / "include", sources, BUILD / "include", FUZZ)]
    headers: list[str | Path] = ["-isystem", BUILD / "headers" / "nvidia" / "cu13" / "include"]
    loop = [BUILD / "fuzz" / f"{name}.o" for name in ("loop", "mutate")]
    if target == "environment":
        linked = [core / "limits" / "environment.c"]
    main = FUZZ / f"{target}.c"
    command: list[str | Path] = [
        "gcc",
        *FLAGS,
        *includes,
        *headers,
        main,
        *linked,
        *loop,
        "-o",
        program,
    ]
    subprocess.run(command, check=True, timeout=120)
    return program
