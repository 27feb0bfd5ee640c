"""Namespace list: the namespaces that the viewer may read, by a prefix of their names, in pages."""

import asyncio
from typing import Final

import msgspec

from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest
from projections.api import query_parameters
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants.namespace_search import namespaces_named

ROWS_MAX: Final = 100
"""Namespaces of a page."""

REVIEWED_MAX: Final = 20
"""Namespaces of a page for a viewer whose rights are reviewed for each."""

_NUMBER_MAX: Final = 10**9


class NamespaceLink(msgspec.Struct, frozen=True):
    """A namespace with the address of its page."""

    cluster: str
    name: str
    href: str


class NamespaceList(msgspec.Struct, frozen=True):
    """The namespaces of a page. `next_page` is an address, "" at the end.

    With `reviewed`, the page lists only those that the viewer may read among the next
    `REVIEWED_MAX`, so a page may be empty and have a next one.
    """

    prefix: str
    namespaces: list[NamespaceLink]
    next_page: str
    reviewed: bool


async def namespace_list(request: PageRequest) -> NamespaceList:
    """Return the namespaces whose usage the viewer may list. Raises PageError."""
    prefix = request.text("prefix")
    after = query_parameters.number(request.query, "after", 0, _NUMBER_MAX)
    everything = await request.may("usage")
    if not everything and not prefix:
        return NamespaceList("", [], "", reviewed=True)
    rows, more = await namespaces_named(
        request.view,
        request.position,
        prefix,
        limit=ROWS_MAX if everything else REVIEWED_MAX,
        cluster=request.cluster,
        after=after,
    )
    if not everything:
        rows = await _readable(request, rows)
    return NamespaceList(
        prefix,
        [_link(request, row) for row in rows],
        request.here(after=more) if more else "",
        reviewed=not everything,
    )


async def _readable(request: PageRequest, rows: list[NumberedNamespace]) -> list[NumberedNamespace]:
    rights = await asyncio.gather(*(request.may("usage", row.name) for row in rows))
    return [row for row, right in zip(rows, rights, strict=True) if right]


def _link(request: PageRequest, row: NumberedNamespace) -> NamespaceLink:
    href = request.href("/page/namespace", namespace=row.name, cluster=row.cluster)
    return NamespaceLink(row.cluster, row.name, href)


NAMESPACES: Final = PageDefinition(
    path="/namespaces",
    title="Namespaces",
    template="namespaces.html",
    view=namespace_list,
    navigation="Namespaces",
)
