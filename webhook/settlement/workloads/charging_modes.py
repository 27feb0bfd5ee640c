"""Charging modes: how the policy of a namespace charges its workloads, and when that changes."""

import msgspec

from webhook.context.namespace_policies import Policies
from webhook.kinds.workload_envelope import Surge


class ChargingMode(msgspec.Struct, frozen=True):
    """How the workloads of a namespace are charged.

    With `pods_only` they are charged nothing. With `elastic_max` they are charged for their largest
    size under an autoscaler.
    """

    surge: Surge = "opportunistic"
    pods_only: bool = False
    elastic_max: bool = False


class ChargingModes:
    """The charging modes that were used, to notice when a policy changes one."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._used: dict[str, set[ChargingMode]] = {}

    def of(self, namespace: str) -> ChargingMode:
        """Return the current charging mode of a namespace, and remember that it was used."""
        mode = self._current(namespace)
        self._used.setdefault(namespace, set()).add(mode)
        return mode

    def changed(self) -> bool:
        """Return whether the current mode of any namespace differs from one that was used."""
        return any(used != {self._current(name)} for name, used in self._used.items())

    def forget(self) -> None:
        """Forget the used modes, because everything is listed again."""
        self._used.clear()

    def _current(self, namespace: str) -> ChargingMode:
        policy = self._policies.of(namespace)
        return ChargingMode(policy.surge, not policy.charges_roots, policy.elastic_max)
