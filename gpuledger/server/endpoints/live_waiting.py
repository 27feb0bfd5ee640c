"""Live waiting: the pods behind scheduling gates, as the active replica of the cluster has them.

A passive replica asks the active one over NATS. The log does not record who waits.
"""

from collections.abc import Callable

import msgspec

from ledger.log.log_port import Unreachable
from ledger.log.peers.active_replica_questions import ActiveReplicaQuestions
from webhook.gates.waiting_report import WaitingPage, WaitingQuestion

Answer = Callable[[WaitingQuestion], WaitingPage | None]
"""Returns a page, None where this replica is not the active one or has not listed the pods yet."""


class WaitingUnknown(Exception):
    """The waiting pods are not known now; the message has the remedy."""


class NoCluster(Exception):
    """The service has no cluster, so no pod waits for it; the message has the remedy."""


class LiveWaiting:
    """Answers which pods wait, on each replica."""

    def __init__(self, questions: ActiveReplicaQuestions, answer: Answer | None) -> None:
        """Ask through `questions`; `answer` is None without a cluster."""
        self._questions, self._has_cluster = questions, answer is not None
        if answer is not None:
            questions.answer_with(lambda question: _answered(answer, question))

    async def page(self, question: WaitingQuestion) -> WaitingPage:
        """Return a page of the waiting pods. Raises WaitingUnknown and NoCluster."""
        if not self._has_cluster:
            raise NoCluster(
                "this service has no cluster, so it sees no waiting pods: ask a service that runs"
                " with a cluster"
            )
        try:
            answer = await self._questions.ask(msgspec.json.encode(question))
            return msgspec.json.decode(answer, type=WaitingPage)
        except TimeoutError as error:
            raise WaitingUnknown(
                "no replica that settles the cluster has answered; it may be listing pods after a"
                " start. Try again in some seconds"
            ) from error
        except (Unreachable, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise WaitingUnknown(f"the active replica cannot be asked: {error}") from error


def _answered(answer: Answer, question: bytes) -> bytes | None:
    try:
        page = answer(msgspec.json.decode(question, type=WaitingQuestion))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.json.encode(page) if page is not None else None
