"""API questions: the requests of a check, whose refusals and failures are collected.

A request that is refused or not answered does not end the check; the others are still asked.
"""

from typing import Any, Final, TypeVar

import msgspec

from gpuledger.check.install_findings import Unasked
from ledger.kube.api.cluster_errors import ClusterError, Forbidden, NotFound
from ledger.kube.client.api_client import ApiClient

ASK_SECONDS: Final = 15.0
"""Deadline of one question; the API server calls the webhooks for up to 10 s."""

Answer = TypeVar("Answer")

REFUSED: Final = Unasked("this account may not ask", "the remedy of rights")


class ApiQuestions:
    """Asks one API server. `refused` and `unanswered` are the failed questions' messages."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.refused: list[str] = []
        self.unanswered: list[str] = []

    async def read(
        self, path: str, form: type[Answer], params: dict[str, str] | None = None
    ) -> Answer | Unasked | None:
        """GET an object or a list; None if it does not exist."""
        return await self.ask("GET", path, form, params=params)

    async def ask(
        self,
        method: str,
        path: str,
        form: type[Answer],
        *,
        body: Any = None,
        params: dict[str, str] | None = None,
    ) -> Answer | Unasked | None:
        """Send a request and decode its answer; None for an object or API that does not exist."""
        try:
            answer = await self.client.request(
                method,
                path,
                params=params,
                body=None if body is None else msgspec.json.encode(body),
                seconds=ASK_SECONDS,
            )
            return msgspec.json.decode(answer, type=form)
        except NotFound:
            return None
        except (ClusterError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            return self.failure(path, error)

    def failure(self, path: str, error: Exception) -> Unasked:
        """Collect the error of a question about a path, and return the missing answer."""
        if isinstance(error, Forbidden):
            self.refused.append(str(error))
            return REFUSED
        message = str(error) if isinstance(error, ClusterError) else f"{path}: {error}"
        self.unanswered.append(message)
        return Unasked(message, "the remedy of api-server")
