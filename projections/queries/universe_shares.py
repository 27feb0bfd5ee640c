"""Universe shares: the usage of universe quotas by cluster or by namespace, as of a position."""

from contextlib import aclosing
from enum import StrEnum
from itertools import groupby
from typing import Final

import msgspec

from ledger.core.model import accounts
from ledger.core.model.traits import Selection, matches
from projections.queries.charged_units import Unit, units
from projections.queries.query_scope import NumberedNamespace, QueryScope
from projections.queries.selecting_quotas import EVERYTHING, selections
from projections.store.readers import ProjectionView


class UsageBreakdown(StrEnum):
    """The breakdown of a quota's usage."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"


class UsageShare(msgspec.Struct, frozen=True):
    """The share of a cluster or namespace in one line of a quota, in the unit of its `resource`.

    `namespace` is empty in the share of a whole cluster.
    """

    quota: str
    cluster: str
    namespace: str
    resource: str
    reserved: int
    committed: int
    used: int


class CoveredNamespace(msgspec.Struct, frozen=True):
    """A namespace that an account covers: the account's quota keys, and the objects that count.

    With `asked_only` only the requested part of envelopes counts.
    """

    namespace: NumberedNamespace
    account: str
    selects: Selection
    asked_only: bool
    keys: tuple[str, ...]


Totals = dict[tuple[str, str], tuple[int, int]]
"""Used and committed amount by account and quota key."""


async def shares(
    view: ProjectionView,
    position: int,
    scope: QueryScope,
    by: UsageBreakdown,
    *,
    limit: int,
    quota: str = "",
    after: str = "",
) -> tuple[list[UsageShare], str]:
    """Return the shares of a scope as of a position, by cluster, namespace and quota.

    Only quotas named `quota`, or all quotas over many namespaces when it is empty. Nothing outside
    the scope is counted. A page ends with the cluster or namespace that reaches `limit` rows.
    Returns with it the place of the next page, empty at the end.
    """

    def place(coverage: CoveredNamespace) -> tuple[str, ...]:
        names = (coverage.namespace.cluster, coverage.namespace.name)
        return names if by is UsageBreakdown.NAMESPACE else names[:1]

    listed: list[UsageShare] = []
    covered = await _covered_namespaces(view, position, scope, quota)
    start = tuple(after.split("/"))
    last: tuple[str, ...] = ()
    for names, group in groupby(
        (coverage for coverage in covered if place(coverage) > start), key=place
    ):
        if len(listed) >= limit:
            return listed, "/".join(last)
        listed += await _shares(view, position, names, list(group))
        last = names
    return listed, ""


async def _shares(
    view: ProjectionView, position: int, names: tuple[str, ...], covered: list[CoveredNamespace]
) -> list[UsageShare]:
    """Return the shares of one namespace, or of the namespaces of one cluster together."""
    totals: Totals = {}
    for namespace, several in groupby(covered, key=lambda coverage: coverage.namespace):
        counting = list(several)
        async with aclosing(units(view, position, namespace)) as stream:
            async for unit in stream:
                _count(unit, counting, totals)
    cluster, name = (*names, "")[:2]
    return [
        UsageShare(
            accounts.parts(account)[2], cluster, name, key, used - committed, committed, used
        )
        for (account, key), (used, committed) in sorted(totals.items())
    ]


def _count(unit: Unit, counting: list[CoveredNamespace], totals: Totals) -> None:
    """Add a unit to every line that counts it. An unused line has no total."""
    for coverage in counting:
        if coverage.selects and not matches(coverage.selects, unit.traits):
            continue
        charge, stored = unit.on(asked_only=coverage.asked_only)
        for key in coverage.keys:
            resource = accounts.resource_of(key)
            if resource in charge:
                used, committed = totals.get((coverage.account, key), (0, 0))
                totals[coverage.account, key] = (
                    used + charge[resource],
                    committed + stored.get(resource, 0),
                )


async def _covered_namespaces(
    view: ProjectionView, position: int, scope: QueryScope, quota: str
) -> list[CoveredNamespace]:
    """Return which of the wanted accounts covered which namespaces of the scope at a position."""
    values = {
        "position": position,
        "name": scope.namespace,
        "cluster": scope.cluster,
        "quota": quota,
        "universe": f"{accounts.universe('')}%",
    }
    selected = await selections(view, position)
    async with view.connection.execute(_COVERED, values) as rows:
        return [
            CoveredNamespace(
                NumberedNamespace(number, cluster, name),
                account,
                selected.get(account, EVERYTHING).selects,
                selected.get(account, EVERYTHING).asked_only,
                tuple(_keys.decode(keys)),
            )
            async for number, cluster, name, account, keys in rows
        ]


_keys: Final = msgspec.json.Decoder(list[str])

_COVERED: Final = """
    WITH
        wanted AS (
            SELECT number, name FROM accounts
            WHERE CASE :quota
                WHEN '' THEN name LIKE :universe
                ELSE substr(name, -length(:quota) - 1) = '/' || :quota
            END
        )
    SELECT namespaces.number, namespaces.cluster, namespaces.name, wanted.name, (
        SELECT json_group_array(key) FROM (
            SELECT key FROM lines WHERE account = wanted.number
            AND opened <= :position AND (closed IS NULL OR closed > :position) ORDER BY number
        )
    )
    FROM coverages
    JOIN wanted ON wanted.number = coverages.account
    JOIN namespaces ON namespaces.number = coverages.namespace
    WHERE coverages.opened <= :position
    AND (coverages.closed IS NULL OR coverages.closed > :position)
    AND (:name = '' OR namespaces.name = :name) AND (:cluster = '' OR namespaces.cluster = :cluster)
    ORDER BY namespaces.cluster, namespaces.name, wanted.name
"""
