"""The examples of the pages about workloads agree with the core's decisions.

A page marks its examples by comments: `workload: NAME` before an object, `envelope: NAME` before
amounts, and `denied: STEPS` before the denial that the last step ends in. The first step
is the quota, the others are done one after the other.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from support.builders.kind_objects import BUILTIN, workload

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model import accounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Asker, Observe, Reserve, SetLimits
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.qualified_names import qualified
from ledger.core.model.state import State
from ledger.kube.api.objects import Workload
from ledger.kube.requests.demand_rules import DemandRules
from webhook.admission.objects.scale_admission import with_replicas
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.workload_envelope import Envelope, envelope_of

DOCS: Final = Path(__file__).parents[3] / "docs" / "explanation"
PAGES: Final = [DOCS / "workloads.md", *sorted((DOCS / "workloads").glob("*.md"))]
CLUSTER, NAMESPACE = "east", "team-a"
TEAM: Final = qualified(CLUSTER, NAMESPACE)

WORKLOAD = re.compile(r"<!-- workload: (\S+) -->\n```yaml\n(.*?)```", re.DOTALL)
ENVELOPE = re.compile(r"<!-- envelope: (\S+) -->((?:\s+`[^`]+`\s\d+,?)+)")
DENIED = re.compile(r"<!-- denied: (.*?) -->\n```text\n(.*?)\n```", re.DOTALL)


class Example:
    """The objects of a page, and a ledger in which they are written."""

    def __init__(self, page: Path) -> None:
        self._objects = {
            name: yaml.safe_load(text) for name, text in WORKLOAD.findall(page.read_text())
        }
        self._state = State()
        self._steps: dict[str, Callable[..., Denial | None]] = {
            "create": self._create,
            "scale": self._scale,
            "pods": self._pods,
            "pod": self._pod,
        }

    def envelope(self, name: str) -> Amounts:
        kind, manifest = self._read(name)
        return self._envelope(kind, manifest).demand

    def story(self, text: str) -> Denial | None:
        """Do all steps; return the denial of the last one. Those before it must be let in."""
        first, *steps = text.split("; ")
        hard = (pair.partition("=")[::2] for pair in first.split(", "))
        limits = {key: int(limit) for key, limit in hard}
        self._do(SetLimits(accounts.quota(CLUSTER, NAMESPACE, "gpus"), (TEAM,), limits))
        denial = None
        for step in steps:
            assert denial is None, denial
            verb, *words = step.split(" ")
            denial = self._steps[verb](*words)
        return denial

    def _create(self, name: str, _: str = "", other: str = "") -> Denial | None:
        kind, manifest = self._read(name)
        key = f"{kind.name}/{other or name}"
        envelope = self._envelope(kind, manifest)
        asker = _asker(kind, envelope)
        denial = self._do(Reserve(TEAM, key, key, envelope.demand, actor="alice", asker=asker))
        if denial is None:
            self._do(Observe(TEAM, key, key, 1, envelope.demand))
        return denial

    def _scale(self, name: str, replicas: str) -> Denial | None:
        kind, manifest = self._read(name)
        envelope = self._envelope(kind, with_replicas(kind, manifest, int(replicas)))
        key, asker = f"{kind.name}/{name}", _asker(kind, envelope)
        return self._do(Reserve(TEAM, key, key, envelope.demand, 1, actor="alice", asker=asker))

    def _pods(self, name: str, count: str) -> Denial | None:
        denials = [self._pod(name, str(index)) for index in range(int(count))]
        return next((denial for denial in denials if denial is not None), None)

    def _pod(self, name: str, suffix: str = "more") -> Denial | None:
        """Create a pod of an object whose replicas are all alike."""
        kind, manifest = self._read(name)
        demand = self._envelope(kind, with_replicas(kind, manifest, 1)).demand
        pod = f"pods/{name}-{suffix}"
        return self._do(Reserve(TEAM, pod, pod, demand, root=f"{kind.name}/{name}"))

    def _read(self, name: str) -> tuple[WorkloadKind, Workload]:
        written: dict[str, Any] = self._objects[name]
        kind = BUILTIN.of_owner(written["apiVersion"], written["kind"])
        assert kind is not None
        return kind, workload(written)

    def _envelope(self, kind: WorkloadKind, manifest: Workload) -> Envelope:
        envelope = envelope_of(kind, manifest, DemandRules())
        assert isinstance(envelope, Envelope), envelope
        return envelope

    def _do(self, command: Reserve | Observe | SetLimits) -> Denial | None:
        decision = decide(self._state, command)
        if isinstance(decision, Denial):
            return decision
        for event in decision:
            evolve(self._state, event, 0)
        return None


def _asker(kind: WorkloadKind, envelope: Envelope) -> Asker:
    return Asker(kind.kind, envelope.pods, envelope.replicas)


def found_in(pattern: re.Pattern[str]) -> list[Any]:
    """Return all examples of a form, with their pages."""
    return [
        pytest.param(page, *groups, id=f"{page.stem}-{groups[0].replace(' ', '-')}")
        for page in PAGES
        for groups in pattern.findall(page.read_text())
    ]


@pytest.mark.parametrize(("page", "name", "amounts"), found_in(ENVELOPE))
def test_envelope_equals_the_amounts_of_the_page(page: Path, name: str, amounts: str) -> None:
    written = {key: int(amount) for key, amount in re.findall(r"`([^`]+)`\s(\d+)", amounts)}
    assert written == Example(page).envelope(name)


@pytest.mark.parametrize(("page", "steps", "text"), found_in(DENIED))
def test_denial_of_a_workload_equals_the_text_of_the_page(
    page: Path, steps: str, text: str
) -> None:
    denial = Example(page).story(steps)
    assert denial is not None
    assert text == sentence(denial)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_of_a_family_has_an_object_its_envelope_and_a_denial(page: Path) -> None:
    text = page.read_text()
    assert all(form.search(text) for form in (WORKLOAD, ENVELOPE, DENIED))
