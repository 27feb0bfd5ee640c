"""Card settlement from settings."""

import time

from extender.settlement import overcommit
from extender.settlement.card_settlement import CardCluster, CardSettlement
from extender.settlement.card_settlement_session import CardSettings
from extender.settlement.node_reader import NodeRules
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring import service_parts
from ledger.log.ledger import StateView
from ledger.runtime.counter_protocol import Count
from ledger.runtime.settings.settings import Settings


def card_settlement(
    settings: Settings, view: StateView, cluster: CardCluster, count: Count
) -> CardSettlement:
    """Return the settlement of a cluster's cards.

    Raises CommandError naming a setting that cannot be used.
    """
    return CardSettlement(
        view,
        cluster,
        name=settings.cluster,
        now=lambda: time.time_ns() // 1_000,
        settings=CardSettings(
            rules=service_parts.demand_rules(settings),
            settle_seconds=settings.settle_seconds,
            claim_seconds=settings.claim_seconds,
        ),
        rules=node_rules(settings),
        count=count,
    )


def node_rules(settings: Settings) -> NodeRules:
    """Return how nodes are read. Raises CommandError naming a setting that cannot be used."""
    try:
        scalings = tuple(map(overcommit.read_scaling, settings.card_scaling))
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from error
    vendors = service_parts.demand_rules(settings).vendors
    return NodeRules(vendors=vendors, keeper=settings.node_keeper, scalings=scalings)
