"""Day cluster: the clusters, namespaces, quotas and nodes of the working day."""

from typing import Final

from support.page_data.day_workloads import CORES, GPU, MEMORY
from support.page_data.decided_day import DecidedDay

from ledger.core.model import accounts, commands
from ledger.core.model.cards import MIG, OWN, Card, Profile
from ledger.core.model.qualified_names import split_qualified
from ledger.core.model.traits import Reach, Requirement

BERLIN, OSLO = "berlin", "oslo"
ADMIN: Final = "admin@example.com"

A100_NODES: Final = ("berlin/gpu-a100-1", "berlin/gpu-a100-2")
L4_NODES: Final = ("berlin/gpu-l4-1", "berlin/gpu-l4-2")
OSLO_NODES: Final = ("oslo/gpu-a100-1",)

A100: Final = ("NVIDIA-NVIDIA A100-SXM4-80GB", 81_920)
L4: Final = ("NVIDIA-NVIDIA L4", 23_034)

TEAMS: Final = {
    "berlin/vision": "ml",
    "berlin/speech": "ml",
    "berlin/search": "web",
    "berlin/notebooks": "education",
    "berlin/robotics": "robotics",
    "berlin/nightly": "web",
    "oslo/vision": "ml",
    "oslo/climate": "research",
}
"""The label `team` of each namespace."""

QUOTAS: Final = {
    "berlin/vision": {GPU: 16, MEMORY: 720_000, CORES: 1_600},
    "berlin/speech": {GPU: 8, MEMORY: 64_000},
    "berlin/search": {GPU: 12, MEMORY: 48_000, CORES: 600},
    "berlin/notebooks": {GPU: 20, MEMORY: 80_000},
    "berlin/robotics": {GPU: 6, MEMORY: 120_000},
    "berlin/nightly": {GPU: 10, MEMORY: 200_000},
    "oslo/vision": {GPU: 8, MEMORY: 320_000},
    "oslo/climate": {GPU: 4, MEMORY: 327_680},
}
"""The limits of the quota `gpus` of each namespace, by resource."""

_MIG_PROFILES: Final = (
    Profile("1g.10gb", 9_728, 14, 1, tuple((start, 1) for start in range(7))),
    Profile("3g.40gb", 40_192, 42, 3, ((0, 4), (4, 4))),
)


def cards_of(
    node: str, unhealthy: int | None = None, cordoned: int | None = None, lost: int | None = None
) -> tuple[Card, ...]:
    """Return the eight cards of a node, the last of gpu-a100-2 cut into instances."""
    name, memory = L4 if "l4" in node else A100
    return tuple(
        Card(
            f"GPU-{node.replace('/', '-')}-{index:012x}",
            index,
            name,
            memory,
            100,
            7 if (sliced := node == A100_NODES[1] and index == 7) else 10,
            numa=index // 4,
            mode=MIG if sliced else "",
            healthy=index != unhealthy,
            cordoned=index == cordoned,
            profiles=_MIG_PROFILES if sliced else (),
        )
        for index in range(8)
        if index != lost
    )


def announce(day: DecidedDay, node: str, cards: tuple[Card, ...]) -> None:
    """Announce the cards of a node."""
    day.do(commands.RegisterCards(node, OWN, cards, "agent", day.number()))


def limits(day: DecidedDay, namespace: str, amounts: dict[str, int]) -> None:
    """Set the quota `gpus` of a namespace, by resource."""
    account = accounts.quota(*split_qualified(namespace), "gpus")
    keys = {_key(resource): amount for resource, amount in amounts.items()}
    day.do(commands.SetLimits(account, (namespace,), keys, ADMIN, day.number()))


def set_up(day: DecidedDay) -> None:
    """Register clusters, describe namespaces, and set all quotas and cards."""
    for cluster, region in ((BERLIN, "eu-central"), (OSLO, "eu-north")):
        uid = f"0c1e5a4e-0000-4000-8000-{cluster.encode().hex():0>12.12}"
        day.do(commands.RegisterCluster(cluster, uid, "service"))
        day.do(commands.Describe(cluster, f"!name={cluster},!region={region}", "service"))
    for namespace, team in TEAMS.items():
        name = namespace.partition("/")[2]
        day.do(commands.Describe(namespace, f"!name={name},team={team}", "service", day.number()))
    for namespace, amounts in QUOTAS.items():
        limits(day, namespace, amounts)
    _universe(day, "machine-learning", {MEMORY: 900_000, GPU: 32}, team="ml")
    _universe(day, "europe", {GPU: 64})
    for node in (*A100_NODES, *L4_NODES, *OSLO_NODES):
        announce(day, node, cards_of(node))


def _universe(day: DecidedDay, name: str, amounts: dict[str, int], team: str = "") -> None:
    reach = Reach(namespaces=(Requirement("team", "In", (team,)),) if team else ())
    keys = {_key(resource): amount for resource, amount in amounts.items()}
    account = accounts.universe(name)
    day.do(commands.SetLimits(account, (), keys, ADMIN, day.number(), reach=reach))


def _key(resource: str) -> str:
    return f"requests.{resource}" if resource == GPU else f"limits.{resource}"
