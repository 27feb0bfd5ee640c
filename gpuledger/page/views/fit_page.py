"""Would it fit: the quota decision and the cards for a manifest, with reasons and remedies.

Nothing is reserved. A viewer who may not list the cards of all namespaces gets numbers of nodes
instead of names. One who may not list the holders there gets no names of other namespaces.
"""

from typing import Final

import msgspec

from gpuledger.cli import manifest_document
from gpuledger.manifest_fit.fit_report import FitReport, NodeFit, PodFit
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_errors import ManifestError, PageError
from gpuledger.page.page_request import PageRequest
from gpuledger.page.page_source import ManifestQuestion
from ledger.core.model.denials import Shortage
from ledger.core.model.display_names import display
from projections.queries.totals.card_clusters import card_clusters

MANIFEST_BYTES_MAX: Final = 256 * 1024
NODES_SHOWN: Final = 20
"""Most nodes of each pod on the page."""

NAMESPACE_MAX: Final = 63
NAME_MAX: Final = 253
"""Most characters of a namespace and of a user."""

_EMPTY: Final = "The manifest is empty."
_SHOWN: Final = (400, 404, 503, 504)
"""Errors of these statuses are shown beside the manifest, so that it can be corrected."""


class FitProblem(msgspec.Struct, frozen=True):
    """Why there is no answer; `line` is that of the field in the manifest, 0 for none."""

    message: str
    remedy: str = ""
    line: int = 0


class PodAnswer(msgspec.Struct, frozen=True):
    """A pod of the manifest; `more` nodes are not shown. `untried` is about its resource claims."""

    fit: PodFit
    nodes: list[NodeFit]
    more: int
    untried: str


class WouldItFit(msgspec.Struct, frozen=True, kw_only=True):
    """The form with its values, and the answer to it, None before the first one.

    The answer is about `cluster`. `clusters` are those to choose from.
    """

    cluster: str
    clusters: list[str]
    namespace: str
    user: str
    manifest: str
    bytes_max: int = MANIFEST_BYTES_MAX
    problem: FitProblem | None = None
    report: FitReport | None = None
    pods: list[PodAnswer] = []
    shortages: tuple[Shortage, ...] = ()


async def would_it_fit(request: PageRequest) -> WouldItFit:
    """Return the form, and with a manifest the answer. Raises PageError."""
    form = request.form
    clusters = await _clusters(request)
    if form is None:
        cluster = _chosen(clusters, request.text("cluster"))
        namespace = request.namespace
        return WouldItFit(
            cluster=cluster, clusters=clusters, namespace=namespace, user="", manifest=""
        )
    cluster = _chosen(clusters, form.get("cluster", ""))
    namespace, user = form.get("namespace", "").strip(), form.get("user", "").strip()
    manifest = form.get("manifest", "")
    if len(namespace) > NAMESPACE_MAX or len(user) > NAME_MAX:
        raise PageError(400, "A namespace has at most 63 and a user at most 253 characters.")
    page = WouldItFit(
        cluster=cluster, clusters=clusters, namespace=namespace, user=user, manifest=manifest
    )
    await request.require("fit", namespace, verb="create")
    try:
        return await _answered(request, page)
    except PageError as error:
        if error.status not in _SHOWN:
            raise
        return msgspec.structs.replace(page, problem=await _problem(error, manifest))
    except TimeoutError:
        problem = FitProblem("The answer took too long.", "Give an object with fewer templates.")
        return msgspec.structs.replace(page, problem=problem)


async def _answered(request: PageRequest, page: WouldItFit) -> WouldItFit:
    """Return the page with its answer. Raises PageError and TimeoutError."""
    body = page.manifest.encode()
    if not body.strip():
        raise PageError(400, _EMPTY, remedy="Paste a Pod or a workload, as YAML or JSON.")
    if len(body) > MANIFEST_BYTES_MAX:
        raise PageError(
            400,
            f"The manifest has {len(body)} bytes, the most is {MANIFEST_BYTES_MAX}.",
            remedy="Leave out what no pod needs, such as managedFields.",
        )
    fitted = await request.source.fit(
        ManifestQuestion(
            manifest=body,
            namespace=page.namespace,
            user=page.user,
            cluster=page.cluster,
            at=request.at and str(request.position),
            restricted=not await request.may("cards"),
            own_holders=not await request.may("holders"),
        )
    )
    report, denial = fitted.report, fitted.decision.denial
    return msgspec.structs.replace(
        page,
        report=report,
        pods=[_pod(fit) for fit in report.pods],
        shortages=() if denial is None else tuple(_named(line) for line in denial.shortages),
    )


async def _clusters(request: PageRequest) -> list[str]:
    """Return the clusters about which the source decides."""
    if request.source.cluster:
        return [request.source.cluster]
    return await card_clusters(request.view, request.position)


def _chosen(clusters: list[str], wanted: str) -> str:
    """Return the wanted cluster, else the first one; "" where there is none."""
    return wanted if wanted in clusters else next(iter(clusters), "")


def _named(line: Shortage) -> Shortage:
    """Return a short line with the name of its quota as the other pages show it."""
    return msgspec.structs.replace(line, account=display(line.account))


def _pod(fit: PodFit) -> PodAnswer:
    shown = fit.nodes[:NODES_SHOWN]
    return PodAnswer(fit, shown, max(0, fit.total - len(shown)), fit.untried())


async def _problem(error: PageError, manifest: str) -> FitProblem:
    """Return an error with the line of its field."""
    line = 0
    if isinstance(error, ManifestError):
        line = await manifest_document.line_in_thread(manifest.encode(), error.field)
    return FitProblem(error.message, error.remedy, line)


FIT: Final = PageDefinition(
    path="/fit",
    title="Would it fit?",
    template="fit.html",
    view=would_it_fit,
    navigation="Would it fit?",
    form=True,
)
