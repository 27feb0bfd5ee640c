"""App of admission: `POST /admission/mutate` and `POST /admission/validate`.

Each answer is an AdmissionReview, or a 4xx with a JSON body that names the error. No request takes
longer than the deadline of the settings.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec
from starlette.applications import Starlette

from ledger.runtime.http import direct_endpoints
from ledger.runtime.http.direct_endpoints import Endpoints
from ledger.runtime.http.json_endpoint import BodyBudget, BodyLimits, JsonEndpoint
from webhook.admission.mutating_webhook import MutatingWebhook
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import (
    MUTATE_PATH,
    VALIDATE_PATH,
    AnsweredAdmissionReview,
    BadReview,
)
from webhook.context.admission_settings import AdmissionSettings

BODIES_MAX: Final = 16
"""Bodies of the largest size that may be in memory at once; smaller ones share the same bytes."""


class Handler(Protocol):
    """Answers reviews."""

    async def answer(self, body: bytes, until: float) -> AnsweredAdmissionReview:
        """Return the answer to a review, by loop time `until`. Raises BadReview."""
        ...


ObserveSeconds = Callable[[str, float], None]
"""Receives the webhook, `mutate` or `validate`, and how many seconds its answer took."""


def endpoint(
    handler: Handler,
    settings: AdmissionSettings,
    *,
    budget: BodyBudget | None = None,
    observe_seconds: Callable[[float], None] = lambda _: None,
) -> JsonEndpoint[bytes, AnsweredAdmissionReview]:
    """Return the endpoint that answers reviews by a handler."""
    return JsonEndpoint(
        handler.answer,
        decode=bytes,
        encode=msgspec.json.encode,
        refusals={BadReview: (400, "BadReview")},
        limits=BodyLimits(
            settings.body_max,
            settings.deadline,
            budget or BodyBudget(BODIES_MAX * settings.body_max),
        ),
        observe_seconds=observe_seconds,
    )


def endpoints(
    mutating: MutatingWebhook,
    validating: ValidatingWebhook,
    policy: AdmissionSettings,
    observe_seconds: ObserveSeconds = lambda *_: None,
) -> Endpoints:
    """Return the endpoints of admission, to be served beside others."""
    budget = BodyBudget(BODIES_MAX * policy.body_max)
    handlers: tuple[tuple[str, str, Handler], ...] = (
        (MUTATE_PATH, "mutate", mutating),
        (VALIDATE_PATH, "validate", validating),
    )
    return {
        path: endpoint(
            handler, policy, budget=budget, observe_seconds=partial(observe_seconds, webhook)
        )
        for path, webhook, handler in handlers
    }


def application(
    mutating: MutatingWebhook, validating: ValidatingWebhook, policy: AdmissionSettings
) -> Starlette:
    """Return an application that serves admission and nothing else."""
    return Starlette(routes=direct_endpoints.routes(endpoints(mutating, validating, policy)))
