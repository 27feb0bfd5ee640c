"""Admission from settings: its bounds, workload kinds, namespace policy and context."""

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring.demand_rules_from_settings import class_mapping, demand_rules
from gpuledger.wiring.trusted_identities import trusted_identities
from gpuledger.wiring.user_pseudonyms import recorded_names
from ledger.kube.requests.confirmed_card_sizes import CardSizes
from ledger.log.ledger_port import StateView
from ledger.runtime.settings.settings import Settings
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.card_schedulers import CardSchedulers
from webhook.context.cluster_context import ClusterContext
from webhook.context.context_informers import ContextSource
from webhook.context.namespace_policies import NamespacePolicy
from webhook.kinds.kind_catalog import KindCatalog, KindError


def admission_settings(settings: Settings) -> AdmissionSettings:
    """Return the settings of admission.

    Without a cluster nothing settles by itself, so unsettled creations are not bounded. Raises
    CommandError naming a file with a key that cannot be used.
    """
    return AdmissionSettings(
        deadline=settings.admission_deadline_seconds,
        body_max=settings.review_bytes_max,
        allow_unavailable=settings.on_unavailable == "allow",
        allow_privileged=settings.privileged == "allow",
        owner_holds_max=settings.owner_holds_max if settings.kubernetes else 0,
        trusted=trusted_identities(settings),
        schedulers=card_schedulers(settings),
        claim_controllers=settings.claim_controllers,
        claim_schedulers=settings.claim_schedulers,
        universe_authority=settings.universe_authority,
        recorded=recorded_names(settings),
    )


def card_schedulers(settings: Settings) -> CardSchedulers:
    """Return which schedulers place pods on cards."""
    return CardSchedulers(settings.scheduler_name, settings.card_schedulers)


def kind_catalog(settings: Settings) -> KindCatalog:
    """Return the kinds of workloads, with the identities of their controllers.

    Raises CommandError naming a file or a setting that cannot be used.
    """
    try:
        kinds = KindCatalog.load(settings.workload_kinds)
        named = {kind.name: kind.controllers for kind in kinds}
        for item in settings.controller_identities:
            name, _, identity = item.partition("=")
            named[name] = (*named.get(name, ()), identity)
        return KindCatalog.load(settings.workload_kinds, named)
    except KindError as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def namespace_policy(settings: Settings) -> NamespacePolicy:
    """Return how namespaces are treated that no LedgerPolicy selects."""
    return NamespacePolicy(
        mode=settings.mode,
        on_exceeded=settings.on_exceeded,
        surge=settings.surge,
        elastic=settings.elastic,
        pods_only=settings.pods_only,
        foreign_holders=settings.foreign_holders,
        missing_claim_templates=settings.missing_claim_templates,
        unmapped_device_classes=settings.unmapped_device_classes,
        exempt_users=settings.exempt_users,
        exempt_groups=settings.exempt_groups,
    )


def cluster_context(
    settings: Settings, view: StateView, cluster: ContextSource | None = None
) -> ClusterContext:
    """Return the context of reviews. Raises as catalog and class_mapping."""
    rules, mapping = demand_rules(settings), class_mapping(settings)
    sizes = CardSizes(view, settings.cluster, rules=rules, card_memory_max=settings.card_memory_max)
    context = ClusterContext(
        settings.cluster,
        catalog=kind_catalog(settings),
        view=view,
        cluster=cluster,
        default=namespace_policy(settings),
        rules=rules,
        current=sizes.rules,
        doubts=sizes.doubts,
    )
    context.resource_claims.use_mapping(mapping, card_memory_max=settings.card_memory_max)
    return context
