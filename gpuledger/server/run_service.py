"""Run the service: log, webhooks, settlement and projection of `gpuledger serve`, in one process.

The order matters. The port is bound first, so a port in use ends the start before other changes.
HTTP is served from then on, and the ledger is unavailable until the log is open. At the end
readiness fails first, then requests in flight are answered, then the log is closed.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog
import uvloop

from gpuledger.page.page_paths import HOME
from gpuledger.server.aggregated.aggregated_server import AggregatedServer
from gpuledger.server.cluster_tasks import ClusterTasks
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.server.service_app import ServiceApp
from gpuledger.server.shared_certificate import SharedCertificate
from gpuledger.storage.open_log import check_store
from gpuledger.wiring import (
    api_client_from_settings,
    connection_bounds,
    demand_rules_from_settings,
    log_from_settings,
    service_certificate,
    store_layout,
)
from ledger.kube.hami.managed_resources import counted_only
from ledger.log.embedded.nats_server import EmbeddedServer
from ledger.runtime import gc_tuning, log_setup
from ledger.runtime.counter_protocol import Count
from ledger.runtime.http import http_server
from ledger.runtime.http.health import CheckResult, Health
from ledger.runtime.http.http_server import Listener
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.setting_sources import SettingProblem
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_authority import CertificateError
from ledger.runtime.tls.certificate_reload import Tls
from ledger.runtime.writer_metrics import WriterMetrics

T = TypeVar("T")
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
    for setting in ignored:
        _log.warning(
            "setting_ignored", source=setting.source, field=setting.field, reason=setting.remedy
        )
    _log_counted_vendors(settings)
    gc_tuning.collect_less_often()
    store_layout.prepare(settings)
    connection_bounds.raise_descriptors(settings)
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
    vendors = counted_only(demand_rules_from_settings.demand_rules(settings).vendors)
    if vendors:
        reason = (
            "nodes announce only a number of these cards, so kube-scheduler alone chooses the node"
        )
        _log.info("vendors_counted_only", vendors=list(vendors), reason=reason)


class _Reached(NamedTuple):
    """The certificate to serve, and the log's servers, one of which may be embedded."""

    certificates: Tls | None
    shared: SharedCertificate | None
    servers: log_from_settings.LogServers
    server: EmbeddedServer | None


async def _serve(
    settings: Settings,
    listener: Listener,
    stop: asyncio.Event,
    stack: AsyncExitStack,
    started: Callable[[str], None],
    admission: bool,
) -> None:
    if (reached := await _unless_stopped(_reached(settings, listener, stack), stop)) is None:
        return
    servers, certificates = reached.servers, reached.certificates
    telemetry, health = Telemetry(legacy=settings.legacy_metrics), Health()
    replica = LedgerReplica(settings, servers, observer=WriterMetrics(telemetry), settles=admission)
    cluster_tasks = await _cluster_tasks(settings, replica, telemetry, stack)
    application = ServiceApp(
        settings,
        replica=replica,
        cluster_tasks=cluster_tasks,
        telemetry=telemetry,
        health=health,
        certificates=certificates,
        shared=reached.shared,
        reviews=admission,
    )
    stack.push_async_callback(application.close)
    url = f"{'http' if certificates is None else 'https'}://{listener.address}"

    def on_started() -> None:
        _log.info("serving", url=url, store_dir=settings.store_dir, nats=list(servers.urls))
        started(url)

    background: list[Work] = [replica.run(), health.report_changes(_report_finding)]
    background += _background(application, reached, partial(_is_trusted, settings, cluster_tasks))
    if cluster_tasks is not None:
        authority = partial(service_certificate.authority, settings)
        background.append(cluster_tasks.run(authority, health.is_ready, reviews=admission))
    if cluster_tasks is not None and certificates is not None:
        server = _aggregated(settings, application, cluster_tasks, certificates, telemetry.count)
        background += [server.run(stop)] if server is not None else []
    http = http_server.serve(
        application.app,
        listener,
        stop,
        tls=certificates,
        direct=application.direct,
        accepting=connection_bounds.acceptor_settings(settings, telemetry),
        watched=application.watch,
        started=on_started,
    )
    await _until_stopped(http, background, health, stop)


async def _cluster_tasks(
    settings: Settings, replica: LedgerReplica, telemetry: Telemetry, stack: AsyncExitStack
) -> ClusterTasks | None:
    """Return the tasks of the cluster, None without one. Raises ClusterError."""
    if not settings.kubernetes:
        return None
    cluster_tasks = await ClusterTasks.connect(settings, replica, telemetry.count)
    stack.push_async_callback(cluster_tasks.close)
    return cluster_tasks


def _aggregated(
    settings: Settings,
    application: ServiceApp,
    cluster_tasks: ClusterTasks,
    certificates: Tls,
    count: Count,
) -> AggregatedServer | None:
    """Return the server of the aggregated API, None without the setting. Raises ListenError."""
    if not settings.aggregated_listen:
        return None
    listener = http_server.bind(settings.aggregated_listen, "aggregated_listen")
    return AggregatedServer(
        settings,
        listener=listener,
        routes=application.routes,
        cluster_tasks=cluster_tasks,
        certificates=certificates,
        count=count,
    )


def _is_trusted(settings: Settings, cluster_tasks: ClusterTasks | None) -> bool:
    """Return whether clients may meet the certificates in the files now."""
    if cluster_tasks is None:
        return True
    try:
        return cluster_tasks.is_trusted(service_certificate.authority(settings))
    except CertificateError:
        return True  # loading the files reports the problem


def _background(
    application: ServiceApp, reached: _Reached, is_trusted: Callable[[], bool]
) -> list[Work]:
    """Return the work of the optional parts: embedded server, certificates and extender.

    `is_trusted` returns whether clients may meet the certificates in the files now.
    """
    background: list[Work] = []
    if reached.server is not None:
        background += [reached.server.keep_running(), reached.server.keep_storing()]
    if reached.certificates is not None:
        background.append(
            reached.certificates.keep_fresh(_report_certificate, is_trusted=is_trusted)
        )
    if reached.shared is not None:
        background.append(reached.shared.run())
    if application.service_extender is not None:
        background.append(application.service_extender.run())
    return background


async def _reached(settings: Settings, listener: Listener, stack: AsyncExitStack) -> _Reached:
    """Load the certificate, and find or start the log's servers, which may take a minute."""
    shared = await _shared_certificate(settings, stack) if settings.tls_secret else None
    find = shared.find if shared is not None else None
    certificates = service_certificate.load(settings, listener.address, find)
    servers, server = await stack.enter_async_context(log_from_settings.log_servers(settings))
    return _Reached(certificates, shared, servers, server)


async def _shared_certificate(settings: Settings, stack: AsyncExitStack) -> SharedCertificate:
    """Return the certificate that the replicas share, ready to be served. Raises ClusterError and
    CertificateError.
    """
    client = await stack.enter_async_context(await api_client_from_settings.connect(settings))
    shared = SharedCertificate(settings, client, names=service_certificate.shared_names(settings))
    await shared.prepare()
    return shared


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Return the result of the work; cancel it and return None when `stop` came first."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return None


async def _until_stopped(
    http: Work,
    background: list[Work],
    health: Health,
    stop: asyncio.Event,
) -> None:
    """Run everything; end when HTTP has drained, or with the first error of any part."""
    tasks = [asyncio.create_task(work) for work in (http, _unready(health, stop), *background)]
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
    settings = msgspec.structs.replace(
        settings, extender=True, register_webhook="", register_service="", aggregated_listen=""
    )
    uvloop.run(serve(settings, lambda url: _show(settings, url), admission=False, ignored=ignored))


def _show(settings: Settings, url: str) -> None:
    """Print addresses and commands on a console; programs read the log line `serving`."""
    if settings.log_format != "console":
        return
    store = Path(settings.store_dir)
    authority = "" if settings.plain_http else f" --cacert {store_layout.authority(settings)}"
    lines = (
        f"gpuledger serves at {url}",
        f"  store     {store}",
        f"  ready?    curl{authority} {url}/readyz?verbose",
        f"  metrics   curl{authority} {url}/metrics",
        *([] if settings.page == "off" else [f"  page      {url}{HOME}"]),
        f"  a quota   gpuledger quota set --store-dir {store} -n team main"
        " limits.nvidia.com/gpumem=16000",
        f"  usage     gpuledger usage --store-dir {store}",
        "  end       Ctrl-C",
    )
    sys.stderr.write("\n".join(lines) + "\n")
