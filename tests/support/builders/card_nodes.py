"""Card nodes: a node with cards and pods on it, in few words, for tests of the core."""

from typing import Any

from support.builders.decide_and_fold import apply

from ledger.core.decide.decider import decide
from ledger.core.model import cards, commands
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, Part, Parts, Phase, Placement, Share
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State

TEAM, NODE = "c1/team", "c1/n1"
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"


def card(number: int, **changes: Any) -> Card:
    """Return a card of 40 MiB, 100 % and 4 slots, called `GPU-<number>`."""
    fields = {
        "uuid": f"GPU-{number}",
        "index": number,
        "type": "A100",
        "memory": 40,
        "cores": 100,
        "slots": 4,
    }
    return Card(**{**fields, **changes})


def register(*announced: Card, keeper: str = cards.OWN, **more: Any) -> commands.RegisterCards:
    return commands.RegisterCards(more.pop("node", NODE), keeper, announced, **more)


def share(number: int = 0, memory: int = 10, cores: int = 0, **more: Any) -> Share:
    return Share(f"GPU-{number}", memory, cores, **more)


def app(*shares: Share) -> Parts:
    return (Part("main", Phase.APP, shares),)


def pod(name: str, memory: int = 10, **more: Any) -> commands.Reserve:
    """Reserve for the creation of a pod whose uid is its name."""
    return commands.Reserve(TEAM, f"pods/{name}", name, {GPU: 1, MEMORY: memory}, **more)


def seen(name: str, version: int = 5, memory: int = 10, **more: Any) -> commands.Observe:
    return commands.Observe(TEAM, f"pods/{name}", name, version, {GPU: 1, MEMORY: memory}, **more)


def place(name: str, *shares: Share, parts: Parts = (), **more: Any) -> commands.Place:
    node = more.pop("node", NODE)
    return commands.Place(TEAM, f"pods/{name}", name, node, parts or app(*shares), **more)


def unplace(name: str, **more: Any) -> commands.Unplace:
    return commands.Unplace(TEAM, f"pods/{name}", name, NODE, "unbound", **more)


def advance(name: str, stage: int, **more: Any) -> commands.Advance:
    return commands.Advance(TEAM, f"pods/{name}", name, stage, **more)


def resize(name: str, *shares: Share, stands: Amounts | None = None) -> commands.Resize:
    return commands.Resize(TEAM, f"pods/{name}", name, app(*shares), stands or {})


def ended(name: str, version: int = 9) -> commands.End:
    return commands.End(TEAM, f"pods/{name}", name, version, "deleted")


def after(*asked: AnyCommand) -> State:
    """Return the state after commands, each of which must be granted and change something."""
    state = State()
    do(state, *asked)
    return state


def do(state: State, *asked: AnyCommand) -> None:
    """Apply commands to a state, each of which must be granted and change something."""
    for command in asked:
        assert apply(state, command), f"{command}: {decide(state, command)}"


def refused(state: State, command: AnyCommand) -> str:
    """Return the reason for which a command is refused, empty when it is not."""
    decision = decide(state, command)
    return decision.reason.value if isinstance(decision, Denial) else ""


def on_card(state: State, number: int = 0, node: str = NODE) -> tuple[int, ...]:
    """Return the usage of a card: MiB, percent, slots."""
    return tuple(state.used[line] for line in state.card_lines[node, f"GPU-{number}"])


def placement(state: State, name: str) -> Placement | None:
    return state.namespaces[TEAM].placed.get(f"pods/{name}")
