"""The pages name what there is, all of it, and nothing else."""

import ast
import inspect
import json
import re
from pathlib import Path

import msgspec
import pytest
from support.recorded.golden_logs import GOLDEN, payloads_of

from gpuledger.command_line import build
from gpuledger.server import readiness_checks
from ledger.core.model.denials import Reason
from ledger.core.model.events import AnyEvent, Cause
from ledger.log import records
from ledger.runtime.metric_table import METRICS
from ledger.runtime.settings.setting_texts import documentation

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "deploy").rglob("*.md")})
ALERTS = ROOT / "deploy" / "alerts.yaml"

LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
CODE = re.compile(
    r"`((?:ledger|gpuledger|webhook|projections|extender|vgpu_native|docs|deploy|tests)/[\w./-]+)`"
)
MADE = re.compile(r"schema-N|/results/|vgpu_native/build/")
SOMEWHERE = re.compile(r"(?<![\w.])/(?:home|root|work|Users)/")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def text_of(name: str) -> str:
    return (DOCS / name).read_text()


def anchors_of(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = HEADING.findall(path.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def names_in(path: Path) -> set[str]:
    """Return the names of the functions that a test file defines."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_setting_is_in_its_page() -> None:
    page = text_of("reference/settings.md")
    assert [
        setting.name for setting in documentation() if f"| `{setting.name}` |" not in page
    ] == []


def test_every_metric_is_in_its_page() -> None:
    page = text_of("reference/metrics.md")
    assert [metric.full_name for metric in METRICS if f"| `{metric.full_name}` |" not in page] == []


def test_every_reason_is_in_its_page() -> None:
    page = text_of("reference/reasons.md")
    assert [reason for reason in Reason if f"| `{reason}` |" not in page] == []


def test_every_event_is_in_its_page_with_its_fields() -> None:
    page = text_of("reference/log-format.md")
    rows = [
        f"| `{kind.__name__}` | {', '.join(kind.__struct_fields__)} |" for kind in AnyEvent.__args__
    ]
    assert [row for row in rows if row not in page] == []


def test_every_cause_is_in_its_page() -> None:
    page = text_of("reference/log-format.md")
    assert [cause for cause in Cause if f"| `{cause}` |" not in page] == []


def test_every_command_is_in_its_page() -> None:
    page = text_of("reference/command-line.md")
    app = build()
    commands = [
        command.name or getattr(command.callback, "__name__", "")
        for command in app.registered_commands
    ]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += [
            f"{group.name} {command.name or getattr(command.callback, '__name__', '')}"
            for command in group.typer_instance.registered_commands
        ]
    assert len(commands) > 10
    assert [command for command in commands if f"\n## gpuledger {command}\n" not in page] == []


def test_decoded_records_are_those_of_the_golden_logs() -> None:
    page = text_of("reference/log-format.md")
    shown = re.findall(r"<!-- golden: (\d+) (\d+) -->\n```json\n(.*?)```", page, re.DOTALL)
    assert shown
    for schema, position, text in shown:
        payload = payloads_of(GOLDEN / f"schema-{schema}.log")[int(position) - 1]
        assert json.loads(text) == decoded(payload)


def decoded(payload: bytes) -> list[object]:
    """Return a record as the page shows it: without the inner envelope, hashes as text."""
    schema, _, body = msgspec.msgpack.decode(payload)
    parts = msgspec.msgpack.decode(body)
    assert isinstance(parts, list)
    parts[4] = parts[4].hex()
    return [schema, records.decode(payload)[1].hex(), parts]


def test_every_check_of_readiness_is_explained() -> None:
    source = inspect.getsource(readiness_checks)
    checks = [*re.findall(r'health\.add\("([\w-]+)"', source), "stopping"]
    page = text_of("how-to/operating.md")
    assert len(checks) > 5
    assert [check for check in checks if f"| `{check}` |" not in page] == []


def test_every_check_and_metric_of_the_agent_is_explained() -> None:
    served = (ROOT / "gpuledger" / "node" / "agent_app.py").read_text()
    exported = (ROOT / "vgpu_native" / "agent" / "node_metrics.py").read_text()
    page = text_of("how-to/node.md")
    checks = re.findall(r'_health\.add\("(\w+)"', served)
    metrics = re.findall(r'"((?:hami|gpuledger)_\w+)"', served + exported)
    assert len(checks) > 5
    assert len(metrics) > 10
    assert [check for check in checks if f"| `{check}` |" not in page] == []
    assert [metric for metric in metrics if not re.search(rf"`{metric}(_total)?`", page)] == []


def test_every_alert_has_a_runbook() -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS.read_text())
    anchors = anchors_of(DOCS / "how-to" / "operating.md")
    assert len(alerts) > 5
    assert [alert for alert in alerts if alert.lower() not in anchors] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_resolves(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    named = [path for path in CODE.findall(text) if not MADE.search(path)]
    missing = [path for path in named if not (ROOT / path).exists()]
    for path, name in TEST.findall(text):
        if not (ROOT / path).exists() or (name and name not in names_in(ROOT / path)):
            missing.append(f"{path}::{name}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_place_of_one_machine(page: Path) -> None:
    assert SOMEWHERE.findall(page.read_text()) == []
