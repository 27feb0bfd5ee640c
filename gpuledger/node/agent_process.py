"""Agent process: `gpuledger agent`, one node's part of the ledger, wired into one process.

The device plugin hands out cards by the ledger's placements, limits pages follow the log, the Node
announces its cards, and the usage of containers is exported. Each part continues while another
fails: a lost log stops no container, and a hanging driver removes no limits.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.node.agent_app import AgentApp
from gpuledger.node.agent_log_connection import AgentLog
from gpuledger.node.agent_settings import BYPASSES, FORMS, WRONG_CARDS, AgentSettings
from gpuledger.wiring import api_client_from_settings
from ledger.kube.client import pod_events
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.runtime import gc_tuning, log_setup
from ledger.runtime.http import http_server
from ledger.runtime.http.health import CheckResult, Health
from ledger.runtime.settings.settings import Settings
from vgpu_native.agent.bypass_detection import BypassDetector
from vgpu_native.agent.bypass_reports import BypassReporter
from vgpu_native.agent.cards.card_inventory import CardInventory
from vgpu_native.agent.limits_page_writer import LimitsWriter
from vgpu_native.agent.log_follower import LogFollower
from vgpu_native.agent.misallocation_reports import MisallocationReporter
from vgpu_native.agent.node_agent import NodeAgent
from vgpu_native.agent.node_annotator import NodeAnnotator
from vgpu_native.agent.node_metrics import AgentCollector
from vgpu_native.agent.pod_cgroups import ProcCgroups
from vgpu_native.agent.usage_observer import UsageObserver
from vgpu_native.nvml.nvml_library import NvmlLibrary
from vgpu_native.nvml.nvml_port import NvmlDriver
from vgpu_native.plugin.allocation.initial_limits import flags
from vgpu_native.plugin.server.plugin_server import DevicePluginServer

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


async def agent(
    settings: Settings, own: AgentSettings, started: Callable[[str], None] = lambda _: None
) -> None:
    """Run until SIGTERM or SIGINT; `started` is called with the base URL once HTTP is served.

    Raises ListenError, ClusterError when the credentials cannot be read, CommandError when the
    state directory cannot be used.
    """
    log_setup.configure(settings.log_level, settings.log_format)
    gc_tuning.collect_less_often()
    _prepare(own.state)
    listener = http_server.bind(own.listen)
    stop = asyncio.Event()
    try:
        with http_server.stopping_on_signals(stop):
            async with AsyncExitStack() as stack:
                app, health, background = await _wired(settings, own, stack)

                def on_started() -> None:
                    url = f"http://{listener.address}"
                    _log.info("agent_runs", node=own.name, cluster=settings.cluster, url=url)
                    started(url)

                http = http_server.serve(app.app, listener, stop, started=on_started)
                await _until_stopped(
                    http, [*background, health.report_changes(_report)], health, stop
                )
    finally:
        listener.close()


def _prepare(state: Path) -> None:
    """Create the state directory, and check that it is writable. Raises CommandError."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o755)
        with tempfile.TemporaryFile(dir=state):
            pass
    except OSError as error:
        raise CommandError(
            Exit.FAILED,
            f"--state-dir {str(state)!r}: {error.strerror or error}: name a directory in which the"
            " agent can create files, or permit it; in the cluster that is the volume `state` of"
            " deploy/agent/daemonset.yaml",
        ) from error


async def _wired(
    settings: Settings, own: AgentSettings, stack: AsyncExitStack
) -> tuple[AgentApp, Health, list[Coroutine[Any, Any, None]]]:
    """Create all parts; return the HTTP application, its health, and the background work."""
    cluster = await _cluster(settings, own.name, stack)
    nvml = NvmlLibrary()
    driver = NvmlDriver(nvml)
    # A hanging driver would also block the end.
    stack.callback(lambda: None if driver.is_asking else nvml.close())
    stack.callback(driver.close)
    inventory = CardInventory(driver, own.offer())
    log = AgentLog(settings)
    node = f"{settings.cluster}/{own.name}"
    follower = LogFollower(node, log.connect, file=own.state / "placements")
    plugin = DevicePluginServer(own.plugin_settings(), follower)
    limiter = LimitsWriter(flags(own.plugin_settings()))
    stack.callback(limiter.close)
    exported = AgentCollector(own.name, inventory, legacy=settings.legacy_metrics)
    observer = UsageObserver(driver, ProcCgroups(), comparer=BypassDetector(own.slack_bytes))
    reporter = BypassReporter(cluster, BYPASSES[own.bypass])
    work = NodeAgent(
        inventory,
        follower,
        plugin=plugin,
        limits=limiter,
        observer=observer,
        exported=exported,
        bypasses=reporter,
        misallocations=MisallocationReporter(cluster, WRONG_CARDS[own.wrong_cards]),
        look_seconds=own.look,
        overhead=own.overhead,
    )
    background = [inventory.run(), follower.run(), log.watch(), work.run()]
    if own.plugin:
        background.append(plugin.run())
    announcer = None
    if cluster is not None and own.announce:
        announcer = NodeAnnotator(
            cluster, own.name, inventory=inventory, offer=own.offer(), form=FORMS[own.form]
        )
        background.append(announcer.run())
    health = Health()
    app = AgentApp(
        own, health, follower=follower, inventory=inventory, exported=exported, limiter=limiter
    )
    app.add_checks(plugin if own.plugin else None, announcer)
    return app, health, background


async def _cluster(
    settings: Settings, node: str, stack: AsyncExitStack
) -> KubernetesCluster | None:
    """Return the cluster of the settings, None without one. Raises ClusterError."""
    if not settings.kubernetes:
        return None
    client = await api_client_from_settings.connect(settings)
    stack.push_async_callback(client.close)
    return KubernetesCluster(client, reporter=pod_events.agent_of(node))


async def _until_stopped(
    http: Coroutine[Any, Any, None],
    background: list[Coroutine[Any, Any, None]],
    health: Health,
    stop: asyncio.Event,
) -> None:
    """Run everything; end when HTTP has drained, or with the first error of any part."""

    async def unready() -> None:
        await stop.wait()
        health.stop()

    serving_http = asyncio.create_task(http)
    tasks = {
        serving_http,
        *(asyncio.create_task(coroutine) for coroutine in (unready(), *background)),
    }
    pending = set(tasks)
    try:
        while serving_http in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


def _report(finding: CheckResult) -> None:
    if not finding.ok:
        _log.warning("check_fails", check=finding.name, reason=finding.reason)
    elif finding.reason:
        _log.warning("check_warns", check=finding.name, reason=finding.reason)
    else:
        _log.info("check_passes", check=finding.name)


def main(settings: Settings, own: AgentSettings) -> None:
    """Run in an event loop of its own."""
    uvloop.run(agent(settings, own))
