"""The page about universe quotas agrees with the core's decisions, in two clusters."""

import re
from pathlib import Path

import yaml
from support.builders.decide_and_fold import apply

from ledger.core.decide.decider import decide
from ledger.core.model import accounts
from ledger.core.model.commands import AnyCommand, Asker, Describe, Observe, Reserve, SetLimits
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.qualified_names import local_name
from ledger.core.model.state import State
from ledger.kube.quotas.universe_quota_limits import limits_of_universe, spec_of
from ledger.kube.requests import namespace_traits
from ledger.kube.requests.demand_rules import DemandRules

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "universe.md").read_text()
ACCOUNT = accounts.universe("research")
RESEARCH = {"team": "research"}


def marked(kind: str, form: str) -> str:
    """Return the block after the only mark of a kind."""
    [block] = re.findall(rf"<!-- {kind}: \S+ -->\n```{form}\n(.*?)\n```", PAGE, re.DOTALL)
    return str(block)


def deployment(namespace: str, name: str, memory: int) -> Reserve:
    key = f"deployments.apps/{name}"
    asker = Asker("Deployment", memory // 8_000, replicas=True)
    return Reserve(namespace, key, name, {"nvidia.com/gpumem": memory}, asker=asker)


def described(namespace: str, labels: dict[str, str]) -> Describe:
    return Describe(namespace, namespace_traits.of_namespace(local_name(namespace), labels))


def as_the_page_begins() -> State:
    """Return the ledger after the first two steps of the example."""
    spec = spec_of(yaml.safe_load(marked("quota", "yaml"))["spec"])
    read = limits_of_universe(spec, DemandRules())
    state = State()
    commands: list[AnyCommand] = [
        *(
            Describe(cluster, namespace_traits.of_cluster(cluster, "eu", None))
            for cluster in ("west", "east")
        ),
        SetLimits(ACCOUNT, (), read.limits, reach=read.reach, selects=read.selects),
        described("west/vision", RESEARCH),
        described("east/speech", RESEARCH),
        deployment("west/vision", "train", 64_000),
        deployment("east/speech", "asr", 48_000),
        Observe("west/other", "pods/p", "p", 1, {"nvidia.com/gpumem": 80_000}),
    ]
    apply(state, *commands)
    return state


def used(state: State) -> int:
    [line] = state.accounts[ACCOUNT].lines.values()
    return state.used[line]


def test_denial_equals_the_text_of_the_page() -> None:
    denial = decide(as_the_page_begins(), deployment("east/speech", "third", 64_000))
    assert isinstance(denial, Denial)
    assert sentence(denial) == marked("denied", "text")


def test_label_moves_usage_as_in_the_page() -> None:
    state = as_the_page_begins()
    assert used(state) == 112_000
    apply(state, described("west/other", RESEARCH))
    assert used(state) == 192_000
    assert "192,000 used of 160,000" in PAGE
