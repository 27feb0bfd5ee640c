"""The HTTP side of admission: `POST /admission/mutate` and `POST /admission/validate`.

Plain ASGI endpoints, because a review is bytes in and bytes out and nothing else of a web
framework is needed on the way. Whatever arrives, the answer is an AdmissionReview, or a 4xx with
a JSON body that names what was wrong; nothing waits longer than the policy's deadline.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ledger.runtime.http import request_body
from ledger.runtime.http.body_budget import BodyBudget, BudgetShare
from ledger.runtime.http.request_body import ClientGone, RequestProblem, RequestRefused
from webhook.admission.mutating_webhook import MutatingWebhook
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import (
    AdmissionRequest,
    AdmissionResponse,
    BadReview,
    decode,
    encode,
)
from webhook.api.admission_settings import AdmissionSettings

MUTATE_PATH: Final = "/admission/mutate"
VALIDATE_PATH: Final = "/admission/validate"

BODIES_MAX: Final = 16
"""Bodies of the largest size that may be in memory at once; smaller ones share the same bytes."""


class Handler(Protocol):
    """Answers reviews."""

    async def answer(self, request: AdmissionRequest, until: float) -> AdmissionResponse:
        """Return the answer to a review, by loop time `until`. Raises BadReview."""
        ...


TimeObserver = Callable[[str, float], None]
"""Told which webhook answered, `mutate` or `validate`, and how many seconds that took."""


class Endpoint:
    """One webhook as an ASGI application. `policy` gives the body's bound and the deadline."""

    def __init__(
        self,
        handler: Handler,
        policy: AdmissionSettings,
        took: Callable[[float], None] = lambda _: None,
        budget: BodyBudget | None = None,
    ) -> None:
        """Serve the handler's answers, and tell how many seconds each request took.

        All bodies in memory take no more than `budget`, which endpoints may share.
        """
        self._handler = handler
        self._policy = policy
        self._budget = budget or BodyBudget(BODIES_MAX * policy.body_max)
        self._took = took

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            with self._budget.holding() as held:
                await self._serve(scope, receive, send, began + self._policy.deadline, held)
        finally:
            self._took(clock() - began)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, until: float, held: BudgetShare
    ) -> None:
        try:
            request_body.check(scope, self._policy.body_max)
            body = await request_body.read(receive, self._policy.body_max, until, held)
            response = await self._handler.answer(decode(body), until)
        except BadReview as error:
            problem = RequestProblem("BadReview", error.message, error.field)
            await request_body.answer(send, 400, msgspec.json.encode(problem))
        except RequestRefused as refused:
            await request_body.answer(send, refused.status, refused.body, refused.headers)
        except ClientGone:
            return
        else:
            await request_body.answer(send, 200, encode(response))


def routes(
    mutating: MutatingWebhook,
    validating: ValidatingWebhook,
    policy: AdmissionSettings,
    took: TimeObserver = lambda *_: None,
) -> list[Route]:
    """Return the routes of admission, to be mounted beside others."""
    budget = BodyBudget(BODIES_MAX * policy.body_max)
    return [
        Route(MUTATE_PATH, Endpoint(mutating, policy, partial(took, "mutate"), budget)),
        Route(VALIDATE_PATH, Endpoint(validating, policy, partial(took, "validate"), budget)),
    ]


def application(
    mutating: MutatingWebhook, validating: ValidatingWebhook, policy: AdmissionSettings
) -> Starlette:
    """Return an application that serves admission and nothing else."""
    return Starlette(routes=routes(mutating, validating, policy))
