"""Traffic: the reviews that an API server sends for each created pod, over several connections."""

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Final

import aiohttp
import msgspec

from gpuledger.demo.recordings import Creation, Patch, Review
from gpuledger.demo.service import DemoService
from webhook.api.admission_review import MUTATE_PATH, VALIDATE_PATH

CONNECTIONS: Final = 16
ANSWER_SECONDS: Final = 10.0
"""The time-out of the validating webhook, as it is registered."""


class CreationOutcome(Enum):
    """The outcome of a creation for its client."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNANSWERED = "unanswered"


class ReviewAnswer(msgspec.Struct, frozen=True):
    """The outcome of a creation and, when it was denied, the message for its user.

    `asked`: the validating webhook was asked, so that even without an answer it may have reserved.
    """

    creation: Creation
    outcome: CreationOutcome
    message: str = ""
    asked: bool = False

    def names(self, reason: str) -> bool:
        """Return whether the message names a reason, which it does at its end."""
        return f"[{reason};" in self.message or f"[{reason}]" in self.message


async def send(
    service: DemoService,
    creations: Sequence[Creation],
    on_ask: Callable[[], None],
    on_answer: Callable[[], None],
) -> list[ReviewAnswer]:
    """Send creations to the service and return the outcome of each, in the order of the answers.

    `on_ask` is called before a validating review is sent, `on_answer` when the outcome of a
    creation is known.
    """
    answers: list[ReviewAnswer] = []

    async def work(todo: Iterator[Creation], session: aiohttp.ClientSession) -> None:
        for creation in todo:
            answers.append(await _create(session, service.url, creation, on_ask))
            on_answer()

    deadline = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    connector = aiohttp.TCPConnector(ssl=service.tls(), limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector, timeout=deadline) as session:
        todo = iter(creations)
        async with asyncio.TaskGroup() as workers:
            for _ in range(CONNECTIONS):
                workers.create_task(work(todo, session))
    return answers


async def _create(
    session: aiohttp.ClientSession, url: str, creation: Creation, on_ask: Callable[[], None]
) -> ReviewAnswer:
    """Ask both webhooks about a pod, the second one with the changes of the first one."""
    asked = False
    try:
        mutated = await _post(session, url + MUTATE_PATH, creation.mutating())
        review = creation.validating(_patch(mutated))
        asked = True
        on_ask()
        judged = await _post(session, url + VALIDATE_PATH, review)
    except (aiohttp.ClientError, OSError, TimeoutError):
        return ReviewAnswer(creation, CreationOutcome.UNANSWERED, asked=asked)
    if judged["allowed"]:
        return ReviewAnswer(creation, CreationOutcome.ALLOWED, asked=True)
    return ReviewAnswer(creation, CreationOutcome.DENIED, judged["status"]["message"], asked=True)


async def _post(session: aiohttp.ClientSession, url: str, review: Review) -> dict[str, Any]:
    """Post a review and return the response in the answer. Raises what aiohttp raises."""
    async with session.post(url, json=review, raise_for_status=True) as answer:
        response: dict[str, Any] = (await answer.json())["response"]
        return response


def _patch(response: dict[str, Any]) -> Patch:
    encoded = response.get("patch")
    return msgspec.json.decode(base64.b64decode(encoded), type=Patch) if encoded else []
