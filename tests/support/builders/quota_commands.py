"""Quota commands: a namespace with one quota, and the commands of one pod."""

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model import accounts, commands
from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial
from ledger.core.model.events import AnyEvent
from ledger.core.model.state import State

NAMESPACE = "c1/team"
QUOTA = accounts.quota("c1", "team", "main")
MEMORY = "nvidia.com/gpumem"
KEY = f"limits.{MEMORY}"


def mib(amount: int) -> Amounts:
    return {MEMORY: amount}


def with_limit(limit: int, account: str = QUOTA, covers: tuple[str, ...] = (NAMESPACE,)) -> State:
    state = State()
    tell(state, commands.SetLimits(account, covers, {KEY: limit}))
    return state


def tell(state: State, command: commands.AnyCommand, *, time: int = 0) -> list[AnyEvent] | Denial:
    """Decide a command and apply what it leads to."""
    decision = decide(state, command)
    if not isinstance(decision, Denial):
        for event in decision:
            evolve(state, event, time)
    return decision


def create(uid: str, amount: int, name: str = "p", **more) -> commands.Reserve:
    return commands.Reserve(NAMESPACE, f"pods/{name}", uid, mib(amount), **more)


def update(uid: str, base: int, amount: int, name: str = "p") -> commands.Reserve:
    return commands.Reserve(NAMESPACE, f"pods/{name}", uid, mib(amount), base=base)


def seen(uid: str, version: int, amount: int, name: str = "p") -> commands.Observe:
    return commands.Observe(NAMESPACE, f"pods/{name}", uid, version, mib(amount))


def ended(uid: str, version: int, cause: str = "deleted", name: str = "p") -> commands.End:
    return commands.End(NAMESPACE, f"pods/{name}", uid, version, cause)


def absent(uid: str, base: int = 0, name: str = "p") -> commands.Refute:
    return commands.Refute(NAMESPACE, f"pods/{name}", uid, base)


def kinds(decision: list[AnyEvent] | Denial) -> list[str]:
    """Name the events of a decision, releases with their cause."""
    assert not isinstance(decision, Denial), decision
    return [
        f"{type(event).__name__} {event.cause}" if hasattr(event, "cause") else type(event).__name__
        for event in decision
    ]
