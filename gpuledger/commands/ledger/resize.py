"""`gpuledger resize`: changes the amounts of a running pod on its cards."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import LEDGER, command
from gpuledger.cli.output import Format, Output, show_object, show_rows
from gpuledger.cli.tables.table_columns import KEY_LEAST, Listing, name, number, text
from ledger.core.model.amounts import AMOUNT_MAX
from ledger.runtime.settings.setting_sources import LoadedSettings

_AMOUNTS = (
    number("MEMORY-BEFORE", "memory_before"),
    number("MEMORY", "memory"),
    number("CORES-BEFORE", "cores_before"),
    number("CORES", "cores"),
)
CARDS = Listing(
    name="UUID",
    wide=(text("CONTAINER", "container"), text("NODE", "node"), text("UUID", "uuid"), *_AMOUNTS),
    view=(
        name("CONTAINER", "container", 6),
        name("NODE", "node", 6),
        name("UUID", "uuid", KEY_LEAST // 2),
        *_AMOUNTS,
    ),
)


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    command(
        app,
        "gpuledger resize -n team-a web-0 --container main --memory 12000",
        "gpuledger resize -n team-a web-0 --container main --memory 4000 --cores 20 --dry-run",
        takes=(*LEDGER, "cluster", "vendors", "vendors_file", "gpu_types"),
    )(resize)


async def resize(
    loaded: LoadedSettings,
    pod: Annotated[str, typer.Argument(metavar="POD", help="Name of the pod.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Namespace of the pod.")
    ],
    container: Annotated[
        str, typer.Option("--container", "-c", metavar="CONTAINER", help="Name of its container.")
    ],
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory", metavar="MIB", min=1, max=AMOUNT_MAX, help="MiB of each of its cards."
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            "--cores",
            metavar="PERCENT",
            min=0,
            max=AMOUNT_MAX,
            help="Percent of each of its cards.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the decision; change nothing.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Give a container more or less of its cards.

    The card's free amounts and the namespace's quotas decide together, and the ledger records the
    change. The new amounts replace those of the pod's spec until the pod ends; the pod keeps its
    cards. Exits with 4 when there is no room.
    """
    from gpuledger.changes import container_resize
    from gpuledger.cli.exit_codes import CommandError, Exit

    if memory is None and cores is None:
        raise CommandError(Exit.USAGE, "nothing would change: give --memory, --cores or both")
    wanted = container_resize.ResizeRequest(namespace, pod, container, memory, cores)
    resized = await container_resize.resize(loaded.settings, wanted, dry_run=dry_run)
    if output.is_object:
        show_object(resized, output)
    else:
        show_rows(resized.cards, CARDS, output, "No card changes.")
    if dry_run:
        typer.echo("It would be allowed; nothing was changed.", err=True)
