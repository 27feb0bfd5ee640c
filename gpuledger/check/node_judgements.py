"""Node judgements: findings about agents, and about the cards that nodes announce. Pure."""

from datetime import UTC, datetime
from typing import Final

from extender.settlement.node_card_health import NodeReading
from gpuledger.check.install_facts import InstallFacts
from gpuledger.check.install_findings import (
    InstallFinding,
    Unasked,
    failed,
    not_asked,
    passed,
    warned,
)
from ledger.kube.hami.plugin_handshake import handshake_alive
from ledger.kube.vendors.vendors import NVIDIA

AGENTS: Final = "agents"
NODES: Final = "nodes"

_SHOWN: Final = 3


def judge_agents(facts: InstallFacts) -> InstallFinding:
    """Return whether the agents of all chosen nodes are ready."""
    if isinstance(facts.agents, Unasked):
        return not_asked(AGENTS, facts.agents)
    if not facts.agents:
        return passed(
            AGENTS, f"none in {facts.site.agents}; --agent-namespace names another namespace"
        )
    late = [agents for agents in facts.agents if agents.ready < agents.wanted]
    if late:
        first = late[0]
        namespace = first.name.partition("/")[0]
        return failed(
            AGENTS,
            f"{first.ready} of {first.wanted} agents of DaemonSet {first.name} are ready",
            f"kubectl -n {namespace} describe pods; /readyz of an agent names the check",
        )
    idle = [agents for agents in facts.agents if not agents.wanted]
    if idle:
        return warned(
            AGENTS,
            f"no node runs agents of DaemonSet {idle[0].name}",
            "label the nodes: kubectl label node NODE gpuledger.io/agent=on",
        )
    ready = sum(agents.ready for agents in facts.agents)
    return passed(AGENTS, f"{ready} ready")


def judge_nodes(facts: InstallFacts) -> InstallFinding:
    """Return whether the announcements of cards are readable, and their plugins alive."""
    if isinstance(facts.nodes, Unasked):
        return not_asked(NODES, facts.nodes)
    announcing = [node for node in facts.nodes if node.announced.vendors]
    unreadable = [node for node in announcing if node.announced.problem]
    if unreadable:
        return failed(NODES, f"{_named(unreadable)}: {unreadable[0].announced.problem}", _PLUGIN)
    now = datetime.now(UTC)
    dead = [
        node
        for node in announcing
        if not handshake_alive(node.handshake, now, node.allocatable.get(NVIDIA.name, 0))
    ]
    if dead:
        return failed(
            NODES,
            f"the device plugin of {_named(dead)} does not answer: {dead[0].handshake}",
            _PLUGIN,
        )
    cards = sum(len(node.announced.cards) for node in announcing)
    return passed(NODES, f"{len(announcing)} of {len(facts.nodes)} nodes announce {cards} cards")


_PLUGIN: Final = "restart the device plugin or the agent of the node, and read its log"


def _named(nodes: list[NodeReading]) -> str:
    names = ", ".join(node.name for node in nodes[:_SHOWN])
    more = len(nodes) - _SHOWN
    return f"{names} and {more} more" if more > 0 else names
