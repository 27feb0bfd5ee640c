"""Page templates: Jinja2 with escaping of every value, and the filters of all templates.

A template has loops and conditions only; a view prepares every text and number. Rendering yields
to the event loop, because reviews are answered by the same loop.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpuledger.cli.tables.display_texts import harmless
from gpuledger.page.page_paths import HOME
from gpuledger.page.quantity_texts import (
    amount_text,
    part_text,
    percent_text,
    time_text,
    with_breaks,
)
from gpuledger.page.serving.static_files import EDITION
from gpuledger.version import VERSION

STEP_SECONDS: Final = 0.002
"""Longest time for which a template is rendered before other tasks of the loop run."""


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gpuledger.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "visible": harmless,
        "breaks": with_breaks,
        "amount": amount_text,
        "part": part_text,
        "percent": percent_text,
        "time": time_text,
    }
    return environment


_ENVIRONMENT: Final = _environment()


def compile_all() -> None:
    """Compile the templates, so that the first answer does not hold the event loop for 40 ms."""
    for name in _ENVIRONMENT.list_templates(["html"]):
        _ENVIRONMENT.get_template(name)


FRAME: Final = {"version": VERSION, "edition": EDITION}
"""Values of every template."""


async def render_frame(template: str, context: Mapping[str, object]) -> bytes:
    """Return a rendered template that shows no page of the ledger, in UTF-8."""
    return await render(template, {**FRAME, "home": HOME, "navigation": [], **context})


async def render(template: str, context: Mapping[str, object]) -> bytes:
    """Return a rendered template in UTF-8."""
    parts: list[str] = []
    began = time.perf_counter()
    for part in _ENVIRONMENT.get_template(template).generate(**context):
        parts.append(part)
        if time.perf_counter() - began > STEP_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return "".join(parts).encode()
