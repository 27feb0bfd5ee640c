"""Card schedulers: the schedulers that place pods on cards, by the settings."""

from typing import Final

import msgspec

from ledger.kube.api.objects import Pod

KNOWN: Final = ("gpuledger-scheduler", "hami-scheduler")
"""The scheduler of `deploy/scheduler`, and HAMi's scheduler."""

DEFAULT: Final = "default-scheduler"
"""The scheduler of pods that name none."""

IGNORING_LABEL: Final = "hami.io/webhook"
IGNORING: Final = "ignore"
"""HAMi's label, and its value, by which a pod or a namespace is left as it is."""


class CardSchedulers(msgspec.Struct, frozen=True):
    """The schedulers with an extender that places pods on cards.

    `given` is written into pods of the default scheduler that ask for cards, when not empty.
    `further` are names besides `KNOWN`. Names are compared exactly, as kube-scheduler does.
    """

    given: str = ""
    further: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them, each once."""
        return tuple(dict.fromkeys(one for one in (self.given, *KNOWN, *self.further) if one))

    def of(self, pod: Pod) -> str:
        """Return the name of the scheduler of a pod that asks for cards."""
        name = pod.spec.scheduler_name or DEFAULT
        return self.given if self.given and name == DEFAULT and not _ignores(pod) else name

    def place(self, pod: Pod) -> bool:
        """Return whether the scheduler of a pod that asks for cards places on cards."""
        return self.of(pod) in self.names


def _ignores(pod: Pod) -> bool:
    """Return whether the API server does not send a pod to the mutating webhook."""
    return (pod.metadata.labels or {}).get(IGNORING_LABEL) == IGNORING
