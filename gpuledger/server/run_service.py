"""Run the service: log, webhooks, settlement and projection of `gpuledger serve`, in one process.

The order matters. The port is bound first, so a port in use ends the start before other changes.
HTTP is served from then on, and the ledger is unavailable until the log is open. At the end
readiness fails first, then requests in flight are answered, then the log is closed.
"""

import asyncio
import resource
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import uvloop

from gpuledger.server.cluster_side import ClusterSide
from gpuledger.server.replica import LedgerReplica
from gpuledger.server.service_app import ServiceApp
from gpuledger.storage.open_log import check_store
from gpuledger.wiring import service_parts
from ledger.kube.hami.managed_resources import counted_only
from ledger.log.embedded.nats_server import EmbeddedServer
from ledger.runtime import gc_tuning, log_setup
from ledger.runtime.http import http_server
from ledger.runtime.http.acceptor import HANDSHAKES_MAX, AcceptorSettings
from ledger.runtime.http.health import CheckResult, Health
from ledger.runtime.http.http_server import Listener
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.setting_sources import SettingProblem
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls import reloading_context
from ledger.runtime.tls.reloading_context import Tls
from ledger.runtime.writer_metrics import WriterMetrics

TLS_DIRECTORY: Final = "tls"

OTHER_FILES: Final = 512
"""File descriptors other than those of client connections."""

OTHERS_OF_ONE: Final = 0.25
"""Part of the connections without a certificate that one address may have."""

Work = Coroutine[Any, Any, None]

_log: Final = structlog.get_logger("gpuledger")


async def serve(
    settings: Settings,
    started: Callable[[str], None] = lambda _: None,
    *,
    admission: bool = True,
    ignored: Sequence[SettingProblem] = (),
) -> None:
    """Serve until SIGTERM or SIGINT; `started` is called with the base URL once HTTP is served.

    Without `admission`, reviews are not answered. `ignored` are given settings of earlier versions;
    a warning names each.

    Raises ListenError, CertificateError, ClusterNameTaken, and the errors of starting the embedded
    server.
    """
    log_setup.configure(settings.log_level, settings.log_format)
    for one in ignored:
        _log.warning("setting_ignored", source=one.source, field=one.field, reason=one.remedy)
    _log_counted_vendors(settings)
    gc_tuning.collect_less_often()
    service_parts.prepare(settings)
    _raise_descriptors(settings)
    listener = http_server.bind(settings.listen)
    stop = asyncio.Event()
    try:
        with http_server.stopping_on_signals(stop):
            async with AsyncExitStack() as stack:
                await _serve(settings, listener, stop, stack, started, admission)
    finally:
        listener.close()


def _log_counted_vendors(settings: Settings) -> None:
    """Log the vendors whose cards are charged and never placed. Raises as `demand_rules`."""
    vendors = counted_only(service_parts.demand_rules(settings).vendors)
    if vendors:
        reason = (
            "nodes announce only a number of these cards, so kube-scheduler alone chooses the node"
        )
        _log.info("vendors_counted_only", vendors=list(vendors), reason=reason)


async def _serve(
    settings: Settings,
    listener: Listener,
    stop: asyncio.Event,
    stack: AsyncExitStack,
    started: Callable[[str], None],
    admission: bool,
) -> None:
    certificates = _tls(settings, listener)
    reached = await _reached(settings, stop, stack)
    if reached is None:
        return
    servers, server = reached
    telemetry, health = Telemetry(), Health()
    replica = LedgerReplica(settings, servers, observer=WriterMetrics(telemetry))
    cluster_side = None
    if settings.kubernetes:
        cluster_side = await ClusterSide.connect(settings, replica, telemetry.count)
        stack.push_async_callback(cluster_side.close)
    application = ServiceApp(
        settings,
        replica=replica,
        cluster_side=cluster_side,
        telemetry=telemetry,
        health=health,
        certificates=certificates,
        reviews=admission,
    )
    stack.push_async_callback(application.close)
    url = f"{'http' if certificates is None else 'https'}://{listener.address}"

    def on_started() -> None:
        _log.info("serving", url=url, store_dir=settings.store_dir, nats=list(servers.urls))
        started(url)

    background: list[Work] = [replica.run(), health.report_changes(_report_finding)]
    background += _background(application, server, certificates)
    if cluster_side is not None:
        background.append(cluster_side.run(_authority(settings, certificates), reviews=admission))
    http = http_server.serve(
        application.app,
        listener,
        stop,
        tls=certificates,
        accepting=_accepting(settings, telemetry),
        watched=application.watch,
        started=on_started,
    )
    await _until_stopped(http, background, health, stop)


def _background(
    application: ServiceApp, server: EmbeddedServer | None, certificates: Tls | None
) -> list[Work]:
    """Return the work of the optional parts: embedded server, certificates and extender."""
    background: list[Work] = []
    if server is not None:
        background += [server.keep_running(), server.keep_storing()]
    if certificates is not None:
        background.append(certificates.keep_fresh(_report_certificate))
    if application.extender_server is not None:
        background.append(application.extender_server.run())
    return background


async def _reached(
    settings: Settings, stop: asyncio.Event, stack: AsyncExitStack
) -> tuple[service_parts.LogServers, EmbeddedServer | None] | None:
    """Find or start the log's servers, which may take a minute; None when `stop` came first."""
    connecting = asyncio.create_task(stack.enter_async_context(service_parts.log_servers(settings)))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if connecting.done():
        return connecting.result()
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    return None


async def _until_stopped(
    http: Work,
    background: list[Work],
    health: Health,
    stop: asyncio.Event,
) -> None:
    """Run everything; end when HTTP has drained, or with the first error of any part."""
    tasks = [asyncio.create_task(one) for one in (http, _unready(health, stop), *background)]
    try:
        pending = set(tasks)
        while tasks[0] in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _unready(health: Health, stop: asyncio.Event) -> None:
    await stop.wait()
    health.stop()
    _log.info("stopping")


def _tls(settings: Settings, listener: Listener) -> Tls | None:
    """Load or create the server's certificate; None for plain HTTP. Raises CertificateError."""
    if settings.plain_http:
        return None
    if settings.tls_cert:
        return Tls(reloading_context.given(settings.tls_cert, settings.tls_key), settings.client_ca)
    names = (*settings.tls_names, *service_parts.own_names(settings, listener.address))
    directory = Path(settings.store_dir) / TLS_DIRECTORY
    return Tls(reloading_context.own(directory, names), settings.client_ca)


def _accepting(settings: Settings, telemetry: Telemetry) -> AcceptorSettings:
    """Return the bounds of connections.

    Without a client CA the server cannot distinguish the API server from other clients, so all
    clients share one bound.
    """
    dropped = partial(telemetry.count, "connections_dropped_total")
    if not settings.client_ca:
        return AcceptorSettings(others_max=settings.connections_max, dropped=dropped)
    others = settings.connections_uncertified_max
    return AcceptorSettings(
        settings.connections_max,
        others,
        max(1, int(others * OTHERS_OF_ONE)),
        partial(_is_trusted, settings),
        dropped,
    )


def _raise_descriptors(settings: Settings) -> None:
    """Raise the limit of file descriptors to one for each connection, as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = settings.connections_max + settings.connections_uncertified_max
    wanted = connections + HANDSHAKES_MAX + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_trusted(settings: Settings, name: str | None) -> bool:
    """Return whether a client with a certificate of this subject may send reviews."""
    subjects = settings.client_subjects
    return name is not None and (not subjects or name in subjects)


def _authority(settings: Settings, certificates: Tls | None) -> bytes:
    """Return the CA for the API server, PEM; empty for given certificates."""
    made = Path(settings.store_dir) / TLS_DIRECTORY / "ca.crt"
    if certificates is None or settings.tls_cert or not made.exists():
        return b""
    return made.read_bytes()


def _report_finding(finding: CheckResult) -> None:
    """Log a changed result of a check."""
    if not finding.ok:
        _log.warning("check_fails", check=finding.name, reason=finding.reason)
    elif finding.reason:
        _log.warning("check_warns", check=finding.name, reason=finding.reason)
    else:
        _log.info("check_passes", check=finding.name)


def _report_certificate(problem: str) -> None:
    _log.error("certificate_unusable", reason=problem)


def main(settings: Settings, ignored: Sequence[SettingProblem] = ()) -> None:
    """Serve in a new event loop. Raises CommandError where the store is not a directory."""
    check_store(settings)
    uvloop.run(serve(settings, lambda url: _show(settings, url), ignored=ignored))


def main_extender(settings: Settings, ignored: Sequence[SettingProblem] = ()) -> None:
    """Serve a scheduler without reviews, in a new event loop. Raises CommandError as `main`."""
    check_store(settings)
    settings = msgspec.structs.replace(settings, extender=True, register_webhook="")
    uvloop.run(serve(settings, lambda url: _show(settings, url), admission=False, ignored=ignored))


def _show(settings: Settings, url: str) -> None:
    """Print addresses and commands on a console; programs read the log line `serving`."""
    if settings.log_format != "console":
        return
    store = Path(settings.store_dir)
    authority = "" if settings.plain_http else f" --cacert {store / TLS_DIRECTORY / 'ca.crt'}"
    lines = (
        f"gpuledger serves at {url}",
        f"  store     {store}",
        f"  ready?    curl{authority} {url}/readyz?verbose",
        f"  metrics   curl{authority} {url}/metrics",
        f"  a quota   gpuledger quota set --store-dir {store} -n team main"
        " limits.nvidia.com/gpumem=16000",
        f"  usage     gpuledger usage --store-dir {store}",
        "  end       Ctrl-C",
    )
    sys.stderr.write("\n".join(lines) + "\n")
