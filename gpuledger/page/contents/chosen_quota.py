"""Chosen quota: the quota that a page is about, and the namespace whose names it may show."""

from typing import Final

import msgspec

from gpuledger.page.page_errors import PageError
from gpuledger.page.page_request import PageRequest
from ledger.core.model import accounts
from ledger.core.model.accounts import AccountKind
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants.namespace_search import namespace_named
from projections.queries.timeline.usage_steps import QuotaAccount, account_named, has_covered

_SLASHES: Final = 2
"""In `CLUSTER/NAMESPACE/NAME`."""


class ChosenQuota(msgspec.Struct, frozen=True):
    """A quota and the namespace of the page.

    `only` is the namespace whose events and holders may be shown, None for all of them.
    `namespace` is the one whose holders are compared, None for a shared quota without one.
    """

    account: QuotaAccount
    shared: bool
    namespace: NumberedNamespace | None
    only: NumberedNamespace | None


async def chosen_quota(request: PageRequest, name: str) -> ChosenQuota:
    """Return the quota of an account. Raises PageError, InvalidParameter.

    A ResourceQuota needs the right to list usage in its namespace. A shared quota needs it in all
    namespaces, or in the namespace of the parameters, which the quota must cover.
    """
    kind = _kind(name)
    if kind is AccountKind.QUOTA:
        cluster, own, _ = accounts.parts(name)
        await _require(request, cluster, own)
        account = await account_named(request.view, request.position, name)
        places = await namespace_named(request.view, request.position, cluster, own)
        if account is None or not places:
            raise _unknown(request, name)
        return ChosenQuota(account, False, places[0], places[0])
    return await _shared(request, name)


async def _shared(request: PageRequest, name: str) -> ChosenQuota:
    restricted = not (await request.may("usage") and not request.viewer.cluster)
    view, position, place = request.view, request.position, None
    if request.namespace:
        await request.require("usage", request.namespace)
        places = await namespace_named(view, position, request.cluster, request.namespace)
        place = places[0] if len(places) == 1 else None
    elif restricted:
        await request.require("usage")
        raise PageError(
            403,
            "A shared quota counts other clusters, too.",
            remedy="Give the parameter namespace.",
        )
    account = await account_named(view, position, name)
    if account is None:
        raise _unknown(request, name)
    if restricted and not (place and await has_covered(view, position, account, place)):
        raise _unknown(request, name)
    return ChosenQuota(account, True, place, place)


async def _require(request: PageRequest, cluster: str, namespace: str) -> None:
    await request.require("usage", namespace)
    if request.viewer.cluster not in {"", cluster}:
        raise PageError(
            403,
            f"Your rights are those of cluster {request.viewer.cluster} only.",
            remedy="Open a quota of that cluster.",
        )


def _kind(name: str) -> AccountKind:
    kind, _, rest = name.partition("/")
    if kind == AccountKind.UNIVERSE and rest:
        return AccountKind.UNIVERSE
    if kind == AccountKind.QUOTA and rest.count("/") == _SLASHES:
        return AccountKind.QUOTA
    raise PageError(
        400,
        "The parameter account is not the account of a quota.",
        remedy="Choose a quota in the list of the page History.",
    )


def _unknown(request: PageRequest, name: str) -> PageError:
    return PageError(
        404,
        f"The ledger has no quota {name} here as of position {request.position}.",
        remedy="Choose a quota in the list of the page History.",
    )
