"""Webhook scope: the resources and kinds that the webhooks review, and the exempt namespaces."""

from gpuledger.wiring.admission_from_settings import kind_catalog
from gpuledger.wiring.demand_rules_from_settings import demand_rules
from gpuledger.wiring.trusted_identities import trusted_identities
from ledger.runtime.settings.settings import Settings
from webhook.configurations.webhook_configurations import RegistrationOptions, ReviewScope


def review_scope(settings: Settings, *own: str) -> ReviewScope:
    """Return the rules of the webhook registration; `own` are the user names of this service.

    Raises as catalog and demand_rules.
    """
    return ReviewScope(
        reviewed_resources(settings),
        kind_catalog(settings),
        exempt_namespaces(settings),
        trusted_identities(settings, *own),
        other_classes=settings.other_device_classes,
        review_claim_status=settings.review_claim_status,
    )


def registration(settings: Settings) -> RegistrationOptions:
    """Return the name of the webhook configurations and the answer while no replica answers."""
    return RegistrationOptions(settings.webhook_name, settings.webhook_failure_policy)


def reviewed_resources(settings: Settings) -> tuple[str, ...]:
    """Return the resources whose requests the webhooks are asked about. Raises as demand_rules."""
    rules = demand_rules(settings)
    cards = (name for vendor in rules.vendors for name in vendor.names())
    return (*cards, *rules.besides)


def exempt_namespaces(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces whose pods the webhooks never see, the service's own among them."""
    return tuple(dict.fromkeys((settings.namespace, *settings.exempt_namespaces)))
