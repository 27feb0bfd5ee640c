"""Memory of contexts: what ends with them, and what they take themselves."""

from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.memory_user import environment, run

Program = Callable[[str], Path]

IN_CONTEXT = {"VGPU_STUB_ASK_IN_CONTEXT": "1"}
KEEPS = {"VGPU_STUB_GREEN_KEEPS": "1"}


@pytest.mark.parametrize("settings", [{}, KEEPS, IN_CONTEXT], ids=["ends", "kept", "in context"])
def test_memory_of_a_green_context_is_charged_while_the_driver_has_it(
    settings: dict[str, str], native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_DEVICES="1", **settings)
    run(environ, program("memory_rules"), "green-memory")


@pytest.mark.parametrize("settings", [{}, IN_CONTEXT], ids=["at once", "in context"])
def test_memory_ends_with_a_primary_context_that_no_hook_saw(
    settings: dict[str, str], native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_DEVICES="1", **settings)
    run(environ, program("memory_rules"), "unseen-primary")
