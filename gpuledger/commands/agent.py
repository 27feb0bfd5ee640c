"""`gpuledger agent`: one node's part of the ledger."""

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
)

Name = Annotated[
    str,
    typer.Option("--node", metavar="NAME", envvar="NODE_NAME", help="This Node; none: the host's."),
]
Listen = Annotated[
    str,
    typer.Option("--listen", metavar="HOST:PORT", help="Where probes and metrics are answered."),
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
    str, typer.Option("--library", metavar="FILE", help="libvgpu.so, as the host has it.")
]
Slots = Annotated[
    int, typer.Option("--slots", metavar="N", help="Containers that may share a card.")
]
Memory = Annotated[
    int,
    typer.Option("--memory-scaling", metavar="PERCENT", help="Promise so much of cards' memory."),
]
Cores = Annotated[
    int, typer.Option("--cores-scaling", metavar="PERCENT", help="Promise so much of cards' time.")
]
FormOf = Annotated[
    str,
    typer.Option(
        "--form", metavar="json|colons", help="How cards are announced; colons for HAMi to 2.7."
    ),
]
BypassOf = Annotated[
    str,
    typer.Option(
        "--bypass", metavar="report|evict", help="Action on pods that allocate past limits."
    ),
]
WrongCardsOf = Annotated[
    str,
    typer.Option(
        "--wrong-cards",
        metavar="report|evict",
        help="Action on pods that got another pod's cards.",
    ),
]
Slack = Annotated[
    int,
    typer.Option("--slack", metavar="MIB", help="Memory that a process may use uncounted."),
]
Look = Annotated[
    float, typer.Option("--look", metavar="SECONDS", help="How often containers are looked at.")
]
PluginOf = Annotated[
    bool, typer.Option("--plugin/--no-plugin", help="Hand cards out to the kubelet.")
]
Announce = Annotated[
    bool, typer.Option("--announce/--no-announce", help="Announce the cards on the Node.")
]
Overhead = Annotated[
    bool,
    typer.Option(
        "--overhead/--no-overhead", help="Hold contexts and code against memory limits, too."
    ),
]
Cdi = Annotated[
    bool, typer.Option("--cdi/--no-cdi", help="Answer with CDI devices, not with mounts.")
]
CdiDir = Annotated[
    str, typer.Option("--cdi-dir", metavar="DIR", help="Where CDI devices are described.")
]
Whole = Annotated[
    bool,
    typer.Option(
        "--limit-whole-cards/--no-limit-whole-cards",
        help="Limit containers that have their cards alone, too.",
    ),
]
MayDisable = Annotated[
    bool,
    typer.Option(
        "--may-disable/--no-may-disable", help="Let a container's environment switch limits off."
    ),
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

    It hands out the cards that the ledger has placed pods on, applies the ledger's limits to
    running containers, announces the node's cards and their health, and shows what
    containers use. It reads the log and never writes it. Ends cleanly on SIGTERM; containers go
    on with their limits.
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
        remedy = "install what nodes need: pip install 'gpuledger[node]'"
        raise CommandError(Exit.FAILED, f"{error}; {remedy}") from error
    main(loaded.settings, checked(msgspec.convert(options, AgentSettings)))
