"""Mutating webhook's condition: it receives only the pods that it changes.

It changes incomplete pods of schedulers that place on cards, pods of the default scheduler if a
setting names another one, and, if any policy lets pods wait, all pods that request cards.

A registration begins wide, with a condition that always holds, because the policies are not known
when it is written. This replica then replaces that condition, and replaces it again whenever a
policy changes it. The condition of a registration that was written by hand is replaced as well.

A condition that is too narrow for a moment weakens no limit: the validating webhook reviews every
pod, and charges what the mutating one would have written.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from ledger.kube.api.cluster_errors import ClusterError, NotFound
from ledger.kube.client.api_client import ApiClient
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import WHOLE, Vendor
from webhook.configurations import configuration_paths, resource_request_cel
from webhook.context.card_schedulers import DEFAULT, CardSchedulers
from webhook.context.namespace_policies import Policies

CONDITION: Final = "has-something-to-write"
"""Name of the match condition that is replaced."""

WIDE: Final = "true"
"""The condition of a new registration."""

WEBHOOK: Final = "pods.mutate.gpuledger.io"

LOOK_SECONDS: Final = 1.0
"""Period of the check whether a policy has changed the condition."""

AGAIN_SECONDS: Final = 300.0
"""Period after which the condition is written again: an operator may have applied the wide one."""

RETRY_SECONDS: Final = 2.0
"""Pause after writing the condition failed."""

PATCH_SECONDS: Final = 15.0

_STRATEGIC: Final = "application/strategic-merge-patch+json"
_log: Final = structlog.get_logger("webhook")


class MutatingCondition:
    """Keeps the condition of one cluster's mutating webhook up to date with its policies."""

    def __init__(
        self,
        client: ApiClient,
        policies: Policies,
        *,
        rules: DemandRules,
        schedulers: CardSchedulers,
        name: str = configuration_paths.NAME,
    ) -> None:
        """Narrow to pods of `schedulers`, which place on cards; `name` is the configuration's."""
        self._path = configuration_paths.path(configuration_paths.MUTATING, name)
        self._client = client
        self._policies = policies
        self._narrow = condition(rules, schedulers)
        self._written = ""
        self._again = 0.0
        self._problem = ""

    async def run(self) -> None:
        """Write the condition whenever it changes, until cancelled.

        The wide condition stays until the policies are listed.
        """
        await self._policies.listed.wait()
        while True:
            await self._update()
            await asyncio.sleep(LOOK_SECONDS)

    async def _update(self) -> None:
        now = asyncio.get_running_loop().time()
        wanted = WIDE if self._policies.have_pods_wait() else self._narrow
        if wanted == self._written and now < self._again:
            return
        self._written, self._again = wanted, now + AGAIN_SECONDS
        try:
            await self._write(wanted)
        except NotFound:
            self._problem = ""  # without a registration there is nothing to narrow
        except ClusterError as error:
            if str(error) != self._problem:
                _log.warning("registration_not_narrowed", reason=str(error))
            self._problem, self._again = str(error), now + RETRY_SECONDS
        else:
            self._problem = ""

    async def _write(self, expression: str) -> None:
        """Replace the condition of the registered webhook. Raises ClusterError."""
        conditions = [{"name": CONDITION, "expression": expression}]
        patch = {"webhooks": [{"name": WEBHOOK, "matchConditions": conditions}]}
        await self._client.request(
            "PATCH",
            self._path,
            body=msgspec.json.encode(patch),
            content_type=_STRATEGIC,
            seconds=PATCH_SECONDS,
        )


def condition(rules: DemandRules, schedulers: CardSchedulers) -> str:
    """Return the CEL condition that the mutating webhook changes a new pod.

    It does not cover policies that let pods wait. A pod that names its node is not changed.
    """
    missing = [_leaves_out(vendor) for vendor in rules.vendors if vendor.completed]
    either = []
    if missing:
        incomplete = " || ".join(f"({clause})" for clause in missing)
        either.append(f"{_is_of(schedulers.names)} && ({incomplete})")
    if schedulers.given:
        either.append(_is_of([DEFAULT]))
    if not either:
        return "false"
    alternatives = " || ".join(f"({clause})" for clause in either)
    return f"object.spec.?nodeName.orValue('') == '' && ({alternatives})"


def _leaves_out(vendor: Vendor) -> str:
    """Return the condition that a container requests a vendor's cards without count or cores."""
    lists = "[object.spec.?containers.orValue([]), object.spec.?initContainers.orValue([])]"
    missing = [f"!({_named(vendor.count)})"] if vendor.count else []
    if vendor.cores and vendor.default_cores:
        missing.append(f"!({_named(vendor.cores)})")
    elif vendor.cores and vendor.whole_cores:
        missing.append(f"!({_named(vendor.cores)}) && !({_shares(vendor)})")
    if not missing:
        return "false"
    asked = _named(*vendor.names())
    either = " || ".join(f"({clause})" for clause in missing)
    return f"{lists}.exists(l, l.exists(c, ({asked}) && ({either})))"


def _named(*names: str) -> str:
    """Return the condition that container `c` requests one of these resources."""
    return resource_request_cel.any_of(
        resource_request_cel.maps("c.?resources"), _literal(list(names))
    )


def _shares(vendor: Vendor) -> str:
    """Return the condition that container `c` requests less than whole cards."""
    either = []
    if vendor.memory:
        either.append(f"r == {_literal(vendor.memory)} && string(m[r]) != '0'")
    if vendor.percentage:
        either.append(f"r == {_literal(vendor.percentage)} && string(m[r]) != '{WHOLE}'")
    maps = ", ".join(
        f"{optional}.orValue({{}})" for optional in resource_request_cel.maps("c.?resources")
    )
    alternatives = " || ".join(f"({clause})" for clause in either) or "false"
    return f"[{maps}].exists(m, m.exists(r, {alternatives}))"


def _is_of(names: Sequence[str]) -> str:
    """Return the condition that a pod has one of these schedulers; without a name, the default."""
    known = ["", *names] if DEFAULT in names else list(names)
    return f"object.spec.?schedulerName.orValue('') in {_literal(known)}"


def _literal(value: str | list[str]) -> str:
    # A JSON text, or a list of them, is a CEL literal too.
    return msgspec.json.encode(value).decode()
