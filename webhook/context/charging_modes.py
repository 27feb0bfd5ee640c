"""Manners: how the roots of each namespace are charged, as its policy says."""

from webhook.context.policies import NamespacePolicy
from webhook.context.settlement_session import Tenure
from webhook.settlement.workload_observation import AS_USUAL, Charged


class Manners:
    """Remembers how each namespace was treated, to notice when that is over."""

    def __init__(self, tenure: Tenure) -> None:
        self._policies = tenure.beyond.surroundings.policies if tenure.beyond is not None else None
        self._known: dict[str, set[Charged]] = {}

    def of(self, namespace: str) -> Charged:
        """Return how roots of a namespace are charged now."""
        found = self._look_up(namespace)
        self._known.setdefault(namespace, set()).add(found)
        return found

    def have_changed(self) -> bool:
        """Return whether any namespace asked about before is treated otherwise now."""
        return any(known != {self._look_up(name)} for name, known in self._known.items())

    def forget(self) -> None:
        """Begin anew: everything is about to be listed again."""
        self._known.clear()

    def _look_up(self, namespace: str) -> Charged:
        return AS_USUAL if self._policies is None else _manner(self._policies.of(namespace))


def _manner(policy: NamespacePolicy) -> Charged:
    return Charged(policy.surge, not policy.charges_roots, policy.elastic_max)
