"""Settlement from settings: the bounds for charges and cards, and the rules for reading nodes."""

import time

from extender.settlement import overcommit
from extender.settlement.active_card_reconcilers import CardCluster, CardSettlement
from extender.settlement.card_reconciler_context import CardSettings
from extender.settlement.node_card_health import NodeRules
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring.demand_rules_from_settings import demand_rules
from ledger.kube.requests import namespace_traits
from ledger.log.ledger_port import StateView
from ledger.runtime.counter_protocol import Count
from ledger.runtime.settings.settings import Settings
from webhook.settlement.charge_settlement_session import SettlementSettings


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
            rules=demand_rules(settings),
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
    vendors = demand_rules(settings).vendors
    return NodeRules(vendors=vendors, keeper=settings.node_keeper, scalings=scalings)


def settlement_settings(settings: Settings) -> SettlementSettings:
    """Return the bounds of settlement and this cluster's traits. Raises as demand_rules."""
    labels = dict(label.partition("=")[::2] for label in settings.cluster_labels)
    return SettlementSettings(
        rules=demand_rules(settings),
        settle_seconds=settings.settle_seconds,
        zero_is_unlimited=settings.zero_is_unlimited,
        cluster_traits=namespace_traits.of_cluster(settings.cluster, settings.region, labels),
        universe_authority=settings.universe_authority,
        write_quota_status=settings.write_quota_status,
    )
