"""Kind objects: an object of every kind, with its largest demand calculated by hand."""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from ledger.kube.api.objects import Workload
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.kind_schema import WorkloadKind

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "tests" / "fixtures" / "kinds"
EXAMPLES: Final = ROOT / "docs" / "examples" / "kinds"
BUILTIN: Final = KindCatalog.load()
CATALOG: Final = KindCatalog.load([EXAMPLES])
"""With the kinds that the pages describe as a user would."""


class Case(msgspec.Struct, frozen=True, rename={"name": "case"}, forbid_unknown_fields=True):
    """One object, and what is expected of it."""

    name: str
    object: dict[str, Any]
    demand: dict[str, int]
    options: dict[str, Any] = {}
    finished: bool = False

    @property
    def workload(self) -> Workload:
        return workload(self.object)


def workload(manifest: dict[str, Any]) -> Workload:
    """Return an object as reviews and watches read it."""
    return msgspec.convert(manifest, Workload)


def kind_named(name: str) -> WorkloadKind:
    """Return the kind with keys such as `deployments.apps/web`."""
    [named] = [kind for kind in CATALOG if kind.name == name]
    return named


def cases_of(kind: WorkloadKind) -> list[Case]:
    """Return the cases of one kind."""
    written = yaml.safe_load((FOLDER / f"{kind.name}.yaml").read_text())
    return msgspec.convert(written["cases"], list[Case])


def all_cases() -> list[tuple[WorkloadKind, Case]]:
    """Return every case of every kind."""
    return [(kind, case) for kind in CATALOG for case in cases_of(kind)]
