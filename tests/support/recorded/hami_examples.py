"""HAMi examples: nodes, a pod and the result in HAMi, run through the extender."""

from typing import Any, Final

import msgspec
import pytest
from support.harness import extender_over_http
from support.harness.extender_harness import CLUSTER
from support.harness.extender_over_http import HttpExtender, http_extender, listed

from ledger.core.model import commands
from ledger.core.model.cards import OWN
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.hami.node_announcement import read_announcement
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of
from ledger.kube.vendors.vendors import select_vendors

Limits = dict[str, int | str]


class Asking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pod: limits by container, where a name without a domain is one of nvidia.com.

    A container of `sidecars` is an init container that restarts; they come after `init`.
    """

    containers: list[Limits] = []
    init: list[Limits] = []
    sidecars: list[Limits] = []
    annotations: dict[str, str] = {}
    node: str = "n1"


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes, a pod, and one or more expected answers.

    `cards` are those of the node n1, each by what differs from a usual card; `register` is the
    text that the node announces in their place. `before` are bound before the pod is asked about.
    """

    pod: Asking
    cards: list[dict[str, Any]] = []
    nodes: dict[str, list[dict[str, Any]]] = {}
    register: str = ""
    announces: dict[str, str] = {}
    limits: dict[str, int] = {}
    before: list[Asking] = []
    vendors: tuple[str, ...] = ("nvidia",)

    given: str | None = None
    """The device list of nvidia's cards that the pod carries."""
    cards_given: list[str] | None = None
    """The uuids of its cards, in order of uuid."""
    carries: dict[str, str] | None = None
    """Annotations of the bound pod."""
    reason: str | None = None
    """Why it does not fit on n1."""
    fits: list[str] | None = None
    best: list[str] | None = None
    """The nodes with the highest score."""
    charged: dict[str, int] | None = None
    denied: str | None = None
    """The reason of the denial when it is created."""


EXPECTED: Final = ["given", "cards_given", "carries", "reason", "fits", "best", "charged", "denied"]


async def run(example: Example, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the real outcome of an example, for everything that it expects."""
    rules = DemandRules(vendors=select_vendors(example.vendors))
    for module in ("support.harness.extender_harness", "support.harness.extender_over_http"):
        monkeypatch.setattr(f"{module}.RULES", rules)
    wanted = [name for name in EXPECTED if getattr(example, name) is not None]
    outcome = dict.fromkeys(wanted)
    thing = _pod("asks", example.pod)
    if {"charged", "denied"}.intersection(wanted):
        demand = demand_of(msgspec.convert(thing, Pod), rules)
        refused = isinstance(demand, Denial)
        answers = {
            "charged": {} if refused else _short(demand.amounts),
            "denied": str(demand.reason) if refused else "",
        }
        outcome |= {name: answers[name] for name in wanted if name in answers}
    if set(wanted) <= {"charged", "denied"}:
        return outcome
    async with http_extender() as site:
        await _prepare(site, example)
        for name in ("reason", "fits", "best"):
            if name in wanted:
                outcome[name] = await _ASKING[name](site, thing, example)
        if {"given", "cards_given", "carries"}.intersection(wanted):
            outcome |= await _bound(site, thing, example)
    return outcome


async def _prepare(site: HttpExtender, example: Example) -> None:
    nodes = {name: listed(*cards) for name, cards in example.nodes.items()}
    if example.cards or example.register:
        nodes["n1"] = example.register or listed(*example.cards)
    for name, register in nodes.items():
        told = read_announcement(
            {extender_over_http.WORDS.register: register, **example.announces},
            OWN,
        )
        assert not told.problem, told.problem
        cards = commands.RegisterCards(f"{CLUSTER}/{name}", told.keeper, told.cards)
        await site.replica.tell(cards)
        site.replica.inventory.set_scores(name, told.scores)
    for number, asking in enumerate(example.before):
        await site.bind(_pod(f"before-{number}", asking), asking.node)
    if example.limits:
        await site.limit(**example.limits)


async def _reason(site: HttpExtender, thing: dict[str, Any], example: Example) -> str:
    return await site.why_not(thing)


async def _fits(site: HttpExtender, thing: dict[str, Any], example: Example) -> list[str]:
    return await site.fits(thing, *(example.nodes or ("n1",)))


async def _best(site: HttpExtender, thing: dict[str, Any], example: Example) -> list[str]:
    await site.fits(thing, *example.nodes)
    scores = await site.scores(thing, *example.nodes)
    return sorted(name for name, score in scores.items() if score == max(scores.values()))


_ASKING: Final = {"reason": _reason, "fits": _fits, "best": _best}


async def _bound(site: HttpExtender, thing: dict[str, Any], example: Example) -> dict[str, Any]:
    """Bind the pod, and return those of its annotations that are expected."""
    await site.bind(thing, example.pod.node)
    written = site.server.pods[thing["metadata"]["name"]].metadata.annotations or {}
    text = written.get(extender_over_http.WORDS.allocated, "")
    uuids = sorted(card.split(",")[0] for card in text.replace(";", "").split(":") if card)
    answers: dict[str, Any] = {"given": text, "cards_given": uuids}
    if example.carries is not None:
        answers["carries"] = {key: written.get(key, "") for key in example.carries}
    return {name: answer for name, answer in answers.items() if getattr(example, name) is not None}


def _pod(name: str, asking: Asking) -> dict[str, Any]:
    restart = {"restartPolicy": "Always"}
    init = [
        *map(_container, asking.init),
        *(_container(container) | restart for container in asking.sidecars),
    ]
    containers = [_container(container) for container in asking.containers]
    return extender_over_http.pod(
        name, *containers, init=tuple(init), annotations=asking.annotations
    )


def _container(limits: Limits) -> dict[str, Any]:
    full = {
        key if "/" in key else f"nvidia.com/{key}": str(amount) for key, amount in limits.items()
    }
    return {"resources": {"limits": full} if full else {}}


def _short(amounts: dict[str, int]) -> dict[str, int]:
    return {key.removeprefix("nvidia.com/"): amount for key, amount in amounts.items()}
