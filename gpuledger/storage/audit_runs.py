"""Audit runs: `gpuledger audit` checks the whole log or lists its events, without a projection.

Without a given head, the last head that this store has seen must be in the log.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.progress import bar
from gpuledger.storage.open_log import open_log
from gpuledger.storage.past_ledger import position_of
from gpuledger.storage.seen_log_ends import witnesses
from gpuledger.storage.time_ranges import ordered
from ledger.log.log_port import Lost
from ledger.runtime.settings.settings import Settings
from projections import log_audit, log_verification
from projections.log_audit import Line
from projections.log_verification import AuditReport, ExpectedHead
from projections.queries.query_scope import QueryScope


async def verify(settings: Settings, expect: str) -> AuditReport:
    """Check the whole log against a head, `POSITION:HASH` or else the last one seen here.

    Raises CommandError, Unreachable.
    """
    wanted = _expected(expect) if expect else await _last_seen(settings)
    try:
        async with open_log(settings, as_it_is=True) as opened:
            with bar("verifying") as progress:
                report = await log_verification.verify(opened.log, wanted, on_progress=progress)
    except Lost as error:
        return AuditReport(False, 0, 0, str(error))
    if report.ok and opened.drift:
        return AuditReport(False, report.records, report.position, opened.drift)
    return report


async def replay(
    settings: Settings, namespace: str, cluster: str, since: str, until: str
) -> AsyncGenerator[Line]:
    """Yield the events between two moments. Raises CommandError, and what reading the log
    raises."""
    begin, end = ordered(since, until)
    scope = QueryScope(namespace, cluster)
    async with open_log(settings) as opened:
        extent = (await opened.log.extent()).last
        for moment in (begin, end):
            await position_of(opened.log, moment if isinstance(moment, int) else None, extent)
        with bar("replaying") as progress:
            lines = log_audit.audit_lines(
                opened.log, scope, first=begin, last=end, on_progress=progress
            )
            async with aclosing(lines):
                async for line in lines:
                    yield line


def _expected(text: str) -> ExpectedHead:
    try:
        return ExpectedHead.parse(text)
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"--expect: {error}") from error


async def _last_seen(settings: Settings) -> ExpectedHead | None:
    seen = await witnesses(settings)
    if not seen:
        return None
    head = max(seen, key=lambda witness: witness.position)
    return ExpectedHead(head.position, head.hash)
