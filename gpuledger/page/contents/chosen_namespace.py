"""Chosen namespace: the one namespace that a page is about, after the check of the right."""

from gpuledger.page.page_errors import PageError
from gpuledger.page.page_request import PageRequest
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants.namespace_search import namespace_named


async def chosen_namespace(request: PageRequest, resource: str) -> NumberedNamespace:
    """Return the namespace of the parameters. Raises PageError, InvalidParameter.

    The right to list the resource in it is checked first, so that the answer to a viewer without
    the right does not depend on the namespace.
    """
    name = request.namespace
    if not name:
        raise PageError(
            400, "The page is about one namespace.", remedy="Give the parameter namespace."
        )
    await request.require(resource, name)
    rows = await namespace_named(request.view, request.position, request.cluster, name)
    if not rows:
        where = f" of cluster {request.cluster}" if request.cluster else ""
        raise PageError(
            404,
            f"The ledger has no namespace {name}{where} as of position {request.position}.",
            remedy="A namespace is in the ledger from its first quota or its first charge on.",
        )
    if len(rows) > 1:
        clusters = ", ".join(row.cluster for row in rows)
        raise PageError(
            400,
            f"Namespace {name} is in several clusters: {clusters}.",
            remedy="Give the parameter cluster, too.",
        )
    return rows[0]
