"""Axe: the accessibility findings of a page, by axe-core from npm (`tools/axe_core.py`)."""

import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page

from tools import axe_core

VARIABLE: Final = "GPULEDGER_AXE"
SCRIPT: Final = Path(os.environ.get(VARIABLE) or axe_core.cached())
NO_AXE: Final = (
    f"there is no axe-core at {SCRIPT}: accessibility was not checked. Run"
    f" `python tools/axe_core.py`, or set {VARIABLE}"
)

TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def findings(page: Page) -> list[str]:
    """Return the violations on a page, each with its elements; skips without axe-core."""
    page.evaluate(_source())
    result = page.evaluate(_RUN, TAGS)
    return [_described(violation) for violation in result["violations"]]


@cache
def _source() -> str:
    if not SCRIPT.is_file():
        pytest.skip(NO_AXE)
    return SCRIPT.read_text(encoding="utf-8")


def _described(violation: dict[str, Any]) -> str:
    nodes = [f"{node['target']} {node['failureSummary']}" for node in violation["nodes"][:3]]
    return f"{violation['id']} ({len(violation['nodes'])}): {violation['help']}: {nodes}"


_RUN: Final = """async (tags) => await axe.run(document, {
  runOnly: {type: 'tag', values: tags}, resultTypes: ['violations'], iframes: false,
})"""
