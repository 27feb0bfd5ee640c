"""Card schedulers: the schedulers that place pods on cards, built in or from the settings."""

from typing import Final

import msgspec

from ledger.kube.api.objects import Pod

KNOWN: Final = ("gpuledger-scheduler", "hami-scheduler")
"""The scheduler of `deploy/scheduler`, and HAMi's scheduler."""

DEFAULT: Final = "default-scheduler"
"""The scheduler of pods that name none."""

IGNORING_LABEL: Final = "hami.io/webhook"
IGNORING: Final = "ignore"
"""HAMi's label and its value; the mutating webhook leaves such pods and namespaces unchanged."""


class CardSchedulers(msgspec.Struct, frozen=True):
    """The schedulers with an extender that places pods on cards.

    `given`, if not empty, is written into pods of the default scheduler that request cards.
    `further` are names besides `KNOWN`. Names are compared exactly, as kube-scheduler does.
    """

    given: str = ""
    further: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all card schedulers, each once."""
        return tuple(dict.fromkeys(name for name in (self.given, *KNOWN, *self.further) if name))

    def of(self, pod: Pod) -> str:
        """Return the scheduler that a pod with cards will have after the mutating webhook."""
        name = pod.spec.scheduler_name or DEFAULT
        return self.given if self.given and name == DEFAULT and not _ignores(pod) else name

    def place(self, pod: Pod) -> bool:
        """Return whether the scheduler of a pod with cards places pods on cards."""
        return self.of(pod) in self.names


def _ignores(pod: Pod) -> bool:
    """Return whether a label excludes the pod from the mutating webhook."""
    return (pod.metadata.labels or {}).get(IGNORING_LABEL) == IGNORING
