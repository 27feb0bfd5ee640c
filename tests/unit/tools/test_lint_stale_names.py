"""`tools.lint` finds names in backticks that the tree does not have, and no others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.lint.stale_names import stale_names
from tools.lint.tree import Tree

Plant = Callable[[dict[str, str]], Path]

CODE = {
    "webhook/gates.py": (
        "import asyncio\n\n\n"
        "class PodGate:\n"
        "    open_pods: int\n\n"
        "    def lift_gate(self) -> None:\n"
        "        self.waiting = asyncio.Queue()\n\n\n"
        "class NodeGate(PodGate): ...\n\n\n"
        "class ForeignGate(starlette.App): ...\n\n\n"
        "def list_gates(): ...\n"
    ),
    "webhook/gate_texts.py": '"""Nothing but prose: `gone_name`."""\n',
    "vgpu_native/src/slots.c": "/* gone_slot */ int own_slot;\n",
    "vgpu_native/agent/refusals.py": 'raise ValueError("no pods: see `gone_message`")\n',
    "deploy/gates.yaml": "# `gone_manifest`\nreason: GateClosed\n",
    "projections/gates.sql": "-- `gone_table`\nCREATE TABLE pod_gates (position);\n",
}

STALE = {
    "`lift_gates`": "no code has lift_gates",
    "`list_gate(pod)`": "no code has list_gate",
    "`gone_name`": "no code has gone_name",
    "`GONE_LIMIT`": "no code has GONE_LIMIT",
    "`gone_table`": "no code has gone_table",
    "`gone_manifest`": "no code has gone_manifest",
    "`gone_message`": "no code has gone_message",
    "`gone_slot`": "no code has gone_slot",
    "`webhook/gate.py`": "the tree has no such file or folder",
    "`webhook/doors/`": "the tree has no such file or folder",
    "`slot.c`": "the tree has no such file or folder",
    "`webhook.gate.PodGate`": "module webhook has no gate",
    "`webhook.gates.Gate`": "module webhook.gates has no Gate",
    "`PodGate.lift`": "class PodGate has no member lift",
    "`NodeGate.lift`": "class NodeGate has no member lift",
    "`webhook/gates.py::test_gate`": "no code has test_gate",
}
"""A text, stale in documents and in code alike, and what the message must contain."""

STALE_IN_CODE = {
    "`WaitingGate`": "no code has WaitingGate",
    "`gates.WaitingGate`": "module gates has no WaitingGate",
    "`gate.PodGate`": "there is no module gate",
    "`gates.lift`": "module gates has no lift",
}

CURRENT = [
    "`pod_gates` and `GPULEDGER_STORE`",
    "`list_gates`, `PodGate`, `own_slot` and `GateClosed`",
    "`webhook/gates.py`, `gates.py`, `webhook/`, `slots.c` and `deploy/gates.yaml`",
    "`webhook.gates.PodGate.lift_gate()` and `gates.list_gates`",
    "`PodGate.open_pods`, `PodGate.waiting`, `NodeGate.lift_gate` and `ForeignGate.router`",
    "`asyncio.TaskGroup`",
    "`spec.schedulingGates`, `nodeSelectorTerms` and `metadata.uid`",
    "`gpuledger.io/fence`, `nvidia.com/gpu`, `webhook.toml` and `gpuledger_gates_total`",
    "`kubectl get pods` and `/etc/gpuledger/gone_file`",
    "`cuMemAlloc_v2` and `nvmlDeviceGetName`",
    "gone_name without backticks",
]

KUBERNETES = ["`SchedulingGated`", "`ValidatingAdmissionPolicy`", "`FailedRescale`"]
"""Words in CamelCase, which documents may take from Kubernetes."""


@pytest.mark.parametrize("text", STALE)
def test_stale_name_is_found_in_documents_and_docstrings(text: str, plant: Plant) -> None:
    assert [STALE[text] in message for message in messages(plant, "README.md", text)] == [True]
    assert [STALE[text] in message for message in in_docstring(plant, text)] == [True]


@pytest.mark.parametrize("text", STALE_IN_CODE)
def test_stale_class_or_module_is_found_in_docstrings(text: str, plant: Plant) -> None:
    assert [STALE_IN_CODE[text] in message for message in in_docstring(plant, text)] == [True]


@pytest.mark.parametrize("text", CURRENT)
def test_present_and_foreign_names_are_not_found(text: str, plant: Plant) -> None:
    assert messages(plant, "README.md", text) == []
    assert in_docstring(plant, text) == []


@pytest.mark.parametrize("text", KUBERNETES)
def test_camel_case_of_kubernetes_is_not_found_in_documents(text: str, plant: Plant) -> None:
    assert messages(plant, "README.md", text) == []


def test_message_names_file_line_and_remedy(plant: Plant) -> None:
    root = plant(CODE | {"README.md": "# Gates\n\n`list_gate` lists.\n"})
    (finding,) = [stale for stale in stale_names(Tree(root)) if stale.path == "README.md"]
    assert str(finding).startswith("README.md:3: stale-names: `list_gate` is stale")
    assert "write the present name" in finding.message


def test_changelog_may_name_what_is_gone(plant: Plant) -> None:
    assert messages(plant, "CHANGELOG.md", "`gone_name` became `list_gates`") == []


def messages(plant: Plant, path: str, text: str) -> list[str]:
    """Return the messages for one file with this text, beside `CODE`."""
    tree = Tree(plant(CODE | {path: f"{text}\n"}))
    return [finding.message for finding in stale_names(tree) if finding.path == path]


def in_docstring(plant: Plant, text: str) -> list[str]:
    """Return the messages for a docstring with this text."""
    return messages(plant, "webhook/about.py", f'"""About {text}."""')
