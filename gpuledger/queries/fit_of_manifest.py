"""Fit of a manifest: the nodes on which its pods fit, and the reasons for the other nodes.

It is the extender's choice on the cards of the log at a moment, with the service's settings, and
the validating webhook's decision for the quotas.
"""

from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from gpuledger.cli import manifest_input
from gpuledger.cli.exit_codes import denied_error
from gpuledger.manifest_fit.card_fit import CardFit
from gpuledger.manifest_fit.fit_report import DecidedFit, FitReport
from gpuledger.manifest_fit.manifest_pods import InvalidCardRequest, card_requests
from gpuledger.queries.explanation_of_manifest import explain_to, require_cluster
from gpuledger.storage.past_ledger import PastLedger, ledger_at
from gpuledger.wiring.admission_from_settings import cluster_context
from gpuledger.wiring.extender_from_settings import extender_settings
from ledger.runtime.settings.settings import Settings
from webhook.admission.explanation import NAMESPACE
from webhook.api.admission_review import BadReview


async def fit(settings: Settings, file: str, namespace: str | None, at: str) -> FitReport:
    """Fit the pods of a file. Raises CommandError, and what finding and reading the log raises."""
    body = manifest_input.read(file, settings.review_bytes_max)
    recalled = await ledger_at(settings, at)
    try:
        return (await fit_body(settings, recalled, body, namespace)).report
    except BadReview as error:
        raise manifest_input.refused(file, error.field, error.message) from error


async def fit_body(
    settings: Settings,
    recalled: PastLedger,
    body: bytes,
    namespace: str | None,
    username: str = "",
) -> DecidedFit:
    """Decide about a manifest in JSON and fit its pods at a moment. Raises BadReview, CommandError.

    `namespace` and `username` are used where the manifest has none.
    """
    require_cluster(settings.cluster, recalled.state)
    preferences = extender_settings(settings).preferences
    context = cluster_context(settings, recalled)
    explained = await explain_to(settings, recalled, context, body, namespace, username)
    where = explained.namespace.rpartition("/")[2] or namespace or NAMESPACE
    try:
        requests = card_requests(body, where, context.catalog, context.rules)
    except InvalidCardRequest as error:
        raise denied_error(error.denial) from error
    inventory = ClusterInventory(settings.cluster, UsageOverlay())
    inventory.load(recalled.state)
    cards = CardFit(inventory, preferences)
    pod_fits = [cards.fit(request) for request in requests]
    report = FitReport(
        recalled.state.position,
        where,
        all(pod_fit.fits for pod_fit in pod_fits),
        explained.allowed,
        explained.answer,
        pod_fits,
    )
    return DecidedFit(explained, report)
