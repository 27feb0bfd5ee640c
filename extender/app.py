"""The HTTP side of the extender: `POST /extender/filter`, `prioritize`, `bind` and `preempt`.

Plain ASGI endpoints: bytes in and bytes out. What is no request of kube-scheduler is a 4xx with a
JSON body that names what is wrong; everything else is answered 200, with an `Error` inside where
the scheduler is to try again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from extender.scheduler_api import extender_wire
from extender.scheduler_api.extender_wire import BadRequest
from extender.verbs.extender import Extender, ExtenderUnavailable
from ledger.runtime.http import request_body
from ledger.runtime.http.body_budget import BodyBudget, BudgetShare
from ledger.runtime.http.request_body import ClientGone, RequestProblem, RequestRefused

PATH: Final = "/extender/"

READ_SECONDS: Final = 10.0
"""How long a body may take to arrive."""

BODIES_MAX: Final = 3
"""Bodies of the largest size that may be in memory at once; smaller ones share the same bytes."""

Took = Callable[[str, float], None]
"""Told which verb was answered, and how many seconds that took."""

Answer = Callable[[bytes], Awaitable[Any]]


class ExtenderEndpoint:
    """One verb as an ASGI application; bodies are at most `body_max` bytes, also inflated."""

    def __init__(
        self, answer: Answer, body_max: int, took: Callable[[float], None], budget: BodyBudget
    ) -> None:
        """Serve the answers, and tell how many seconds each request took.

        All bodies in memory take no more than `budget`, which endpoints share.
        """
        self._answer = answer
        self._body_max = body_max
        self._budget = budget
        self._took = took

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            with self._budget.holding() as held:
                await self._serve(scope, receive, send, began + READ_SECONDS, held)
        finally:
            self._took(clock() - began)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, until: float, held: BudgetShare
    ) -> None:
        try:
            request_body.check(scope, self._body_max)
            body = await request_body.read(receive, self._body_max, until, held)
            body = await request_body.inflated(scope, body, self._body_max, until, held)
            answer = await self._answer(body)
        except BadRequest as error:
            problem = RequestProblem("BadRequest", error.message, error.field)
            await request_body.answer(send, 400, msgspec.json.encode(problem))
        except ExtenderUnavailable as error:
            problem = RequestProblem("ExtenderUnavailable", str(error))
            await request_body.answer(send, 503, msgspec.json.encode(problem))
        except RequestRefused as refused:
            await request_body.answer(send, refused.status, refused.body, refused.headers)
        except ClientGone:
            return
        else:
            await request_body.answer(send, 200, msgspec.json.encode(answer))


def routes(extender: Extender, body_max: int, took: Took = lambda *_: None) -> list[Route]:
    """Return the routes of the extender, to be mounted beside others."""
    answers: dict[str, Answer] = {
        "filter": lambda body: extender.filter(extender_wire.read_args(body)),
        "prioritize": lambda body: extender.prioritize(extender_wire.read_args(body)),
        "bind": lambda body: extender.bind(extender_wire.read_binding(body)),
        "preempt": lambda body: extender.preempt(extender_wire.read_preemption(body)),
    }
    budget = BodyBudget(BODIES_MAX * body_max)
    return [
        Route(PATH + verb, ExtenderEndpoint(answer, body_max, partial(took, verb), budget))
        for verb, answer in answers.items()
    ]
