"""Waiting pods: those of a source in the cluster that the viewer may read."""

from gpuledger.page.page_request import PageRequest
from webhook.gates.waiting_report import WaitingRow


async def waiting_pods(
    request: PageRequest, namespace: str, cluster: str
) -> tuple[list[WaitingRow] | None, str]:
    """Return the first waiting pods of a namespace and a cluster, each "" for all.

    None where they are not known, with the reason.
    """
    if request.is_past:
        return None, "The log does not record waiting pods, so the past shows none."
    rows = await request.source.waiting(namespace)
    if rows is None:
        return (
            None,
            "The log does not record waiting pods. The service of the cluster lists them.",
        )
    return [row for row in rows if cluster in ("", row.cluster)], ""
