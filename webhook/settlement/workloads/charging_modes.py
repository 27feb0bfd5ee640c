"""Charging modes: how the workloads of each namespace are charged, by its policy."""

from webhook.context.namespace_policies import Policies
from webhook.settlement.workloads.workload_observation import ChargingMode


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
