"""Manners: how the roots of each namespace are charged, as its policy says."""

from webhook.context.policies import NamespacePolicy
from webhook.settlement.settlement_session import SettlementSession
from webhook.settlement.workloads.workload_observation import DEFAULT_MODE, ChargingMode


class ChargingModes:
    """Remembers how each namespace was treated, to notice when that is over."""

    def __init__(self, session: SettlementSession) -> None:
        self._policies = session.beyond.context.policies if session.beyond is not None else None
        self._known: dict[str, set[ChargingMode]] = {}

    def of(self, namespace: str) -> ChargingMode:
        """Return how roots of a namespace are charged now."""
        found = self._look_up(namespace)
        self._known.setdefault(namespace, set()).add(found)
        return found

    def changed(self) -> bool:
        """Return whether any namespace asked about before is treated otherwise now."""
        return any(known != {self._look_up(name)} for name, known in self._known.items())

    def forget(self) -> None:
        """Begin anew: everything is about to be listed again."""
        self._known.clear()

    def _look_up(self, namespace: str) -> ChargingMode:
        return DEFAULT_MODE if self._policies is None else _manner(self._policies.of(namespace))


def _manner(policy: NamespacePolicy) -> ChargingMode:
    return ChargingMode(policy.surge, not policy.charges_roots, policy.elastic_max)
