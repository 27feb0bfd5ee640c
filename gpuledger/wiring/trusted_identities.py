"""Trusted identities: the user names that may write annotations of allocations."""

from typing import Final

from ledger.runtime.settings.settings import Settings
from webhook.context.admission_settings import HAMI_IDENTITIES

_OWN_SERVICE_ACCOUNTS: Final = ("gpuledger", "gpuledger-scheduler")
"""Of the manifests in deploy/ and deploy/scheduler; the extender writes Bindings."""


def trusted_identities(settings: Settings, *own: str) -> tuple[str, ...]:
    """Return the user names that may write annotations of allocations.

    `own` are names that this service is known to have. The service accounts of the shipped
    manifests are always among them, for the service and for the extender of its scheduler; HAMi's
    usual ones are, unless a setting excludes them.
    """
    accounts = (
        f"system:serviceaccount:{settings.namespace}:{name}" for name in _OWN_SERVICE_ACCOUNTS
    )
    usual = HAMI_IDENTITIES if settings.trust_hami_defaults else ()
    named = (*usual, *settings.trusted_identities, *accounts, *own)
    return tuple(name for name in dict.fromkeys(named) if name)
