"""Calls of every function of the driver arrive unchanged, whichever way a program found it."""

import os
import subprocess
from pathlib import Path

import pytest

WAYS = ("linked", "dlsym", "address")
"""By the linker, by dlsym, and by cuGetProcAddress at the version that brought each function."""


def say(abi: Path, way: str, library: Path | None, **environment: str) -> str:
    """Return the output of the caller."""
    preload = {"LD_PRELOAD": str(library)} if library else {}
    done = subprocess.run(
        [abi / "calls", way],
        env={**os.environ, **preload, "CUDA_DISABLE_CONTROL": "true", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(abi: Path, way: str, library: Path | None, **environment: str) -> tuple[int, int]:
    """Return how many calls were made, and how many of them went through a hook."""
    calls, hooked = map(int, say(abi, way, library, **environment).split())
    return calls, hooked


@pytest.mark.parametrize("way", WAYS)
def test_all_functions_can_be_called_without_the_library(abi: Path, way: str) -> None:
    calls, hooked = run(abi, way, None)
    assert calls >= 683
    assert hooked == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_for_every_function_is_reached_and_forwards_all_arguments(
    abi: Path, way: str
) -> None:
    calls, hooked = run(abi, way, abi / "libvgpu.so")
    assert calls >= 683
    assert hooked == calls


@pytest.mark.parametrize("way", WAYS)
def test_the_library_forwards_all_functions_unchanged(abi: Path, library: Path, way: str) -> None:
    calls, hooked = run(abi, way, library)
    assert calls >= 683
    assert 50 < hooked < calls


def test_functions_that_the_driver_does_not_export_are_hooked(abi: Path) -> None:
    """The driver may answer cuGetProcAddress with other addresses than those of its symbols."""
    calls, hooked = run(abi, "address", abi / "libvgpu.so", ABI_INNER="1")
    assert calls >= 683
    assert hooked == calls


def test_cu_get_proc_address_itself_is_hooked_in_the_requested_version(
    abi: Path, library: Path
) -> None:
    lines = say(abi, "itself", library).splitlines()
    assert lines[:2] == ["11030 cuGetProcAddress 1", "11080 cuGetProcAddress 1"]
    assert lines[2:4] == ["12000 cuGetProcAddress_v2 1", "13000 cuGetProcAddress_v2 1"]


def test_a_missing_function_is_reported_as_by_the_driver(abi: Path, library: Path) -> None:
    not_found = [say(abi, "itself", preloaded).splitlines()[4] for preloaded in (None, library)]
    assert not_found == ["500 1 1"] * 2
