"""Health: named checks behind /livez, /healthz and /readyz.

A check is cheap, does not wait and gives a reason: other tasks keep its data up to date. So a slow
dependency cannot delay a probe. `/livez`, and its older name `/healthz`, report only whether this
process works. `/readyz` reports whether it should get requests, and fails before a stop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

Check = Callable[[], tuple[bool, str]]
"""Returns whether the check passes, and the reason; a reason with True is a warning."""

STOPPING: Final = "stopping"

LIVE, OLDER_LIVE, READY = PROBES = ("/livez", "/healthz", "/readyz")

VERBOSE: Final = "verbose"
"""The parameter that asks for text with all reasons."""

BRIEF: Final = "gpuledger.brief"
"""Set in the scope of a request that gets the names of failing checks without reasons."""

COMPARE_SECONDS: Final = 5.0
"""Interval at which the results of checks are compared, to report changes."""


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    reason: str


class HealthReport(msgspec.Struct, frozen=True):
    """The results of all checks; `ok` only when each passes."""

    ok: bool
    checks: list[CheckResult]


class Health:
    """The checks of one process."""

    def __init__(self) -> None:
        """Start with the one check that every service has: whether it is stopping."""
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._stopping = False
        self.add(STOPPING, lambda: (not self._stopping, "draining" if self._stopping else ""))

    def add(self, name: str, check: Check, *, live: bool = False) -> None:
        """Add a check of readiness; with `live`, also of liveness, whose failure restarts this
        process.
        """
        assert name not in self._ready, f"the check {name} exists"
        self._ready[name] = check
        if live:
            self._live[name] = check

    def stop(self) -> None:
        """Stop being ready, so that requests go elsewhere before the server drains."""
        self._stopping = True

    def ready(self) -> HealthReport:
        """Return the results of all checks."""
        return _report(self._ready, frozenset())

    def is_ready(self) -> bool:
        """Return whether all checks pass."""
        return self.ready().ok

    async def report_changes(
        self, changed: Callable[[CheckResult], None], every_seconds: float = COMPARE_SECONDS
    ) -> None:
        """Report every changed result until cancelled; initially all checks count as passing."""
        known: dict[str, tuple[bool, str]] = {}
        while True:
            # The pause comes first, because checks fail until their data has been read once.
            await asyncio.sleep(every_seconds)
            for finding in self.ready().checks:
                outcome = (finding.ok, finding.reason)
                if known.get(finding.name, (True, "")) != outcome:
                    known[finding.name] = outcome
                    changed(finding)

    def routes(self) -> list[Route]:
        """Return the routes of the probes."""
        return [
            Route(LIVE, _endpoint(self._live)),
            Route(OLDER_LIVE, _endpoint(self._live)),
            Route(READY, _endpoint(self._ready)),
        ]


def _endpoint(checks: dict[str, Check]) -> Callable[[Request], Awaitable[Response]]:
    """Answer 200 or 503: JSON, or with `?verbose` lines of text; `?exclude=NAME` skips a check."""

    async def probe(request: Request) -> Response:
        report = _report(checks, frozenset(request.query_params.getlist("exclude")))
        status = 200 if report.ok else 503
        if request.scope.get(BRIEF):
            report = _brief(report)
        if VERBOSE in request.query_params:
            return PlainTextResponse(_text(report), status)
        return Response(msgspec.json.encode(report), status, media_type="application/json")

    return probe


def _report(checks: dict[str, Check], excluded: frozenset[str]) -> HealthReport:
    findings = [
        CheckResult(name, *check()) for name, check in checks.items() if name not in excluded
    ]
    return HealthReport(all(finding.ok for finding in findings), findings)


def _brief(report: HealthReport) -> HealthReport:
    return HealthReport(
        report.ok, [CheckResult(check.name, check.ok, "") for check in report.checks]
    )


def _text(report: HealthReport) -> str:
    lines = [_line(finding) for finding in report.checks]
    return "\n".join([*lines, "ok" if report.ok else "failing", ""])


def _line(finding: CheckResult) -> str:
    if finding.ok:
        return f"[+]{finding.name} ok" + (f": {finding.reason}" if finding.reason else "")
    return f"[-]{finding.name} failed: {finding.reason}"
