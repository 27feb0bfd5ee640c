"""Explanation of a manifest: the validating webhook's decision about it; nothing is reserved.

A cluster that the ledger does not have is refused, with the names of known clusters.
"""

from typing import Final

from gpuledger.cli import manifest_input
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage.open_log import open_log, writer_on
from gpuledger.wiring import admission_from_settings
from ledger.core.model.denials import Reason
from ledger.core.model.state import State
from ledger.log.ledger_port import Ledger
from ledger.runtime.settings.settings import Settings
from webhook.admission import explanation
from webhook.admission.explanation import Explanation, NamespaceMissing, OtherNamespace
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import BadReview
from webhook.context.cluster_context import ClusterContext

CLUSTERS_SHOWN_MAX: Final = 8
"""Most known clusters in an error."""


async def explain(
    settings: Settings, file: str, namespace: str | None, username: str
) -> Explanation:
    """Explain the review or pod in a file. Raises CommandError, and what opening the log raises."""
    body = manifest_input.read(file, settings.review_bytes_max)
    try:
        explained = await explain_body(settings, body, namespace, username)
    except BadReview as error:
        raise manifest_input.refused(file, error.field, error.message) from error
    denial = explained.denial
    if denial is not None and denial.reason is Reason.LEDGER_UNAVAILABLE:
        raise CommandError(Exit.UNREACHABLE, explained.answer)
    return explained


async def explain_body(
    settings: Settings, body: bytes, namespace: str | None, username: str
) -> Explanation:
    """Explain a review or manifest in JSON. Raises BadReview, CommandError, and what opening the
    log raises.
    """
    async with open_log(settings) as opened, writer_on(settings, opened) as writer:
        require_cluster(settings.cluster, writer.state)
        context = admission_from_settings.cluster_context(settings, writer)
        return await explain_to(settings, writer, context, body, namespace, username)


def require_cluster(cluster: str, state: State) -> None:
    """Raise CommandError for an unregistered cluster, where others are registered.

    A quota over many clusters may cover one that is not registered yet.
    """
    qualified = (*state.namespaces, *state.described, *state.nodes)
    named = {name.partition("/")[0] for name in qualified}
    known = sorted(named | state.clusters.keys())
    if not known or cluster in known or state.reaching:
        return
    shown = ", ".join(known[:CLUSTERS_SHOWN_MAX])
    more = f" and {len(known) - CLUSTERS_SHOWN_MAX} more" if len(known) > CLUSTERS_SHOWN_MAX else ""
    raise CommandError(
        Exit.NOT_FOUND,
        f"--cluster: cluster {cluster!r} is not in the ledger, known are {shown}{more}: name one of"
        " these (GPULEDGER_CLUSTER)",
    )


async def explain_to(
    settings: Settings,
    ledger: Ledger,
    context: ClusterContext,
    body: bytes,
    namespace: str | None,
    username: str = "",
) -> Explanation:
    """Explain a ledger's answer to a review or a manifest. Raises BadReview, CommandError."""
    admission = admission_from_settings.admission_settings(settings)
    validating = ValidatingWebhook(ledger, settings=admission, context=context)
    try:
        return await explanation.explain(
            validating,
            body,
            deadline=settings.admission_deadline_seconds,
            namespace=namespace,
            username=username,
        )
    except OtherNamespace as error:
        raise CommandError(Exit.USAGE, f"--namespace: {error}") from error
    except NamespaceMissing as error:
        raise CommandError(Exit.NOT_FOUND, f"--namespace: {error}") from error
