"""The HTTP side of the extender: `POST /extender/VERB` for each verb of kube-scheduler.

A body that is not a request of kube-scheduler is answered with a 4xx and a JSON body that names the
error. Every other request is answered with 200; an `Error` inside asks the scheduler to try again.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from extender.scheduler_api import extender_wire
from extender.scheduler_api.extender_wire import BadRequest, ExtenderUnavailable
from extender.scheduler_extender import Extender
from ledger.runtime.http.direct_endpoints import Endpoints
from ledger.runtime.http.json_endpoint import BodyBudget, BodyLimits, JsonEndpoint

Args = TypeVar("Args")
Result = TypeVar("Result")

PATH: Final = "/extender/"

READ_SECONDS: Final = 10.0
"""How long a body may take to arrive."""

BODIES_MAX: Final = 3
"""Bodies of the largest size that may be in memory at once; smaller ones share the same bytes."""

ObserveSeconds = Callable[[str, float], None]
"""Receives the verb that was answered, and how many seconds that took."""

_REFUSALS: Final = {
    BadRequest: (400, "BadRequest"),
    ExtenderUnavailable: (503, "ExtenderUnavailable"),
}


def endpoints(
    extender: Extender, body_max: int, observe_seconds: ObserveSeconds = lambda *_: None
) -> Endpoints:
    """Return the endpoints of the extender, to be served beside others."""
    limits = BodyLimits(body_max, READ_SECONDS, BodyBudget(BODIES_MAX * body_max), gzip=True)

    def endpoint(
        verb: str, decode: Callable[[bytes], Args], answer: Callable[[Args], Awaitable[Result]]
    ) -> JsonEndpoint[Args, Result]:
        return JsonEndpoint(
            lambda args, _: answer(args),
            decode=decode,
            encode=msgspec.json.encode,
            refusals=_REFUSALS,
            limits=limits,
            observe_seconds=partial(observe_seconds, verb),
        )

    return {
        PATH + "filter": endpoint("filter", extender_wire.read_args, extender.filter),
        PATH + "select": endpoint("select", extender_wire.read_args, extender.select),
        PATH + "prioritize": endpoint("prioritize", extender_wire.read_args, extender.prioritize),
        PATH + "bind": endpoint("bind", extender_wire.read_binding, extender.bind),
        PATH + "preempt": endpoint("preempt", extender_wire.read_preemption, extender.preempt),
    }
