"""`gpuledger agent`: the agent of one node."""

from typing import Annotated, Final

import typer

from gpuledger.cli.command_wrapper import LEDGER, command
from ledger.runtime.settings.setting_sources import LoadedSettings

TAKES: Final = (
    *LEDGER,
    "nats_user",
    "nats_password",
    "nats_login_file",
    "nats_creds",
    "nats_ca",
    "nats_domain",
    "cluster",
    "kubernetes",
    "kubeconfig",
    "log_level",
    "log_format",
    "legacy_metrics",
)

Name = Annotated[
    str,
    typer.Option("--node", metavar="NAME", envvar="NODE_NAME", help="This Node; none: the host's."),
]
Listen = Annotated[
    str,
    typer.Option("--listen", metavar="HOST:PORT", help="HOST:PORT for probes and metrics."),
]
State = Annotated[
    str,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="An absolute path: placements, allocations, limits pages.",
    ),
]
Kubelet = Annotated[
    str, typer.Option("--kubelet-dir", metavar="DIR", help="Directory of the kubelet's sockets.")
]
Library = Annotated[
    str, typer.Option("--library", metavar="FILE", help="Path of libvgpu.so on the host.")
]
Slots = Annotated[
    int, typer.Option("--slots", metavar="N", help="Containers that may share a card.")
]
Memory = Annotated[
    int,
    typer.Option("--memory-scaling", metavar="PERCENT", help="Memory that pods may get."),
]
Cores = Annotated[
    int, typer.Option("--cores-scaling", metavar="PERCENT", help="Time that pods may get.")
]
FormOf = Annotated[
    str,
    typer.Option(
        "--form", metavar="json|colons", help="Format of cards; colons for HAMi up to 2.7."
    ),
]
BypassOf = Annotated[
    str,
    typer.Option("--bypass", metavar="report|evict", help="Action on pods that bypass limits."),
]
WrongCardsOf = Annotated[
    str,
    typer.Option(
        "--wrong-cards",
        metavar="report|evict",
        help="Action on pods with another pod's cards.",
    ),
]
Slack = Annotated[
    int,
    typer.Option("--slack", metavar="MIB", help="Uncounted memory allowed for a process."),
]
Look = Annotated[
    float, typer.Option("--look", metavar="SECONDS", help="Interval of checking containers.")
]
PluginOf = Annotated[
    bool, typer.Option("--plugin/--no-plugin", help="Hand cards out to the kubelet.")
]
Announce = Annotated[
    bool, typer.Option("--announce/--no-announce", help="Announce the cards on the Node.")
]
Overhead = Annotated[
    bool,
    typer.Option("--overhead/--no-overhead", help="Count contexts and code as memory, too."),
]
Cdi = Annotated[bool, typer.Option("--cdi/--no-cdi", help="Use CDI devices instead of mounts.")]
CdiDir = Annotated[
    str, typer.Option("--cdi-dir", metavar="DIR", help="Directory of CDI device descriptions.")
]
Whole = Annotated[
    bool,
    typer.Option(
        "--limit-whole-cards/--no-limit-whole-cards",
        help="Limit containers with exclusive cards, too.",
    ),
]
MayDisable = Annotated[
    bool,
    typer.Option("--may-disable/--no-may-disable", help="Let containers switch limits off."),
]
CoresOff = Annotated[
    bool, typer.Option("--cores-off/--no-cores-off", help="Do not limit the time of cards.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger agent --nats tls://nats.example:4222 --cluster east-1 --node node-7",
        "gpuledger agent --config /etc/gpuledger.toml --memory-scaling 150 --bypass evict",
        "gpuledger agent --store-dir gpuledger-data --no-kubernetes --no-plugin \\",
        '    --state-dir "$PWD/agent-state"',
        takes=TAKES,
    )(agent)


def agent(  # noqa: PLR0913 - every option is one
    loaded: LoadedSettings,
    node: Name = "",
    listen: Listen = "127.0.0.1:9394",
    state_dir: State = "/var/lib/gpuledger",
    kubelet_dir: Kubelet = "/var/lib/kubelet",
    library: Library = "/usr/local/gpuledger/libvgpu.so",
    slots: Slots = 10,
    memory_scaling: Memory = 100,
    cores_scaling: Cores = 100,
    form: FormOf = "json",
    bypass: BypassOf = "report",
    wrong_cards: WrongCardsOf = "report",
    slack: Slack = 512,
    look: Look = 5.0,
    plugin: PluginOf = True,
    announce: Announce = True,
    overhead: Overhead = True,
    cdi: Cdi = False,
    cdi_dir: CdiDir = "/var/run/cdi",
    limit_whole_cards: Whole = False,
    may_disable: MayDisable = False,
    cores_off: CoresOff = False,
) -> None:
    """Run a node's agent: cards, limits and metrics.

    It hands out cards by the ledger's placements, applies the ledger's limits to running
    containers, announces the node's cards and their health, and reports the usage of containers. It
    only reads the log. It ends cleanly on SIGTERM, and containers keep their limits.
    """
    options = dict(locals())
    del options["loaded"]
    _run(loaded, options)


def _run(loaded: LoadedSettings, options: dict[str, object]) -> None:
    """Run the agent; `options` are the fields of `AgentSettings`. Raises CommandError."""
    import msgspec

    from gpuledger.cli.exit_codes import CommandError, Exit

    try:
        from gpuledger.node.agent_process import main
        from gpuledger.node.agent_settings import AgentSettings, checked
    except ModuleNotFoundError as error:
        remedy = "install the packages for nodes: pip install 'gpuledger[node]'"
        raise CommandError(Exit.FAILED, f"{error}; {remedy}") from error
    main(loaded.settings, checked(msgspec.convert(options, AgentSettings)))
