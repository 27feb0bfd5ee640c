"""Reviewed namespaces: each sends reviews of its objects to the webhook of their cluster."""

from copy import deepcopy
from typing import Any

from support.builders.admission_reviews import CoreLedger, review, serving
from support.fakes.owner_cluster import (
    CATALOG,
    Manifest,
    OwnerCluster,
    around,
    of,
)

from ledger.core.model.commands import Reserve
from ledger.kube.api.api_resources import Resource
from webhook.context.namespace_policies import NamespacePolicy
from webhook.kinds.kind_catalog import KindCatalog


class ReviewedNamespace:
    """One namespace whose objects are reviewed, by a cluster that has them."""

    def __init__(self, *objects: Manifest, catalog: KindCatalog = CATALOG, **policy: Any) -> None:
        self.ledger = CoreLedger()
        self.cluster = OwnerCluster(*objects)
        self.context = around(
            self.ledger, self.cluster, default=NamespacePolicy(**policy), catalog=catalog
        )

    async def answer(
        self, resource: Resource, new: Manifest, old: Manifest | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return the response to a creation, or with an old object to an update."""
        operation = "CREATE" if old is None else "UPDATE"
        async with serving(self.ledger, context=self.context) as service:
            request = review(new, old, operation=operation, **{**of(resource), **more})
            return await service.post(request)

    def reserved(self) -> list[Reserve]:
        return [command for command in self.ledger.commands() if isinstance(command, Reserve)]


def reasons(response: dict[str, Any]) -> list[str]:
    assert not response["allowed"]
    return [cause["reason"] for cause in response["status"]["details"]["causes"]]


def changed(thing: Manifest, version: int = 5, **spec: Any) -> Manifest:
    """Return an object with another spec, on top of a version."""
    edited = deepcopy(thing)
    edited["spec"] |= spec
    edited["metadata"]["resourceVersion"] = str(version)
    return edited
