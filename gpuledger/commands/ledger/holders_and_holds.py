"""`gpuledger holders`, `holds` and `waiting`: charges, unsettled attempts, waiting pods."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuledger.cli.command_wrapper import READING, command
from gpuledger.cli.output import Format, Output, show_rows
from gpuledger.cli.prose import note
from gpuledger.cli.row_options import PLACE, AllNamespaces, Cluster, Namespace, OptionalLimit
from gpuledger.cli.tables.display_texts import NOTHING, amounts_text
from gpuledger.cli.tables.table_columns import (
    CLUSTER,
    KEY,
    KEY_LEAST,
    NAMESPACE,
    Listing,
    TableColumn,
    age,
    amounts,
    name,
    number,
    sentence,
    short_amounts,
    text,
)
from gpuledger.cli.time_options import At
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from projections.queries.holders import HolderCharge


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    command(
        app,
        "gpuledger holders -n team-a",
        "gpuledger holders -n team-a --root deployments.apps/web",
        "gpuledger holders --at 1200 -o yaml",
        "gpuledger holders -A --limit 20",
        takes=READING,
    )(holders)
    command(app, "gpuledger holds", "gpuledger holds -n team-a -o json", takes=READING)(holds)
    command(
        app,
        "gpuledger waiting -n team-a",
        "gpuledger waiting --context prod -o json",
        takes=READING,
    )(waiting)


async def holders(  # noqa: PLR0913 - every option is one
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    at: At = "",
    pods: Annotated[
        bool, typer.Option("--pods", help="Also pods that are charged with their root.")
    ] = False,
    root: Annotated[
        str,
        typer.Option("--root", metavar="KEY", help="Only the pods of this root, as KEY shows it."),
    ] = "",
    limit: OptionalLimit = None,
    output: Output = Format.TABLE,
) -> None:
    """Show who is charged how much.

    One row per object, or attempt to write one: its charge is the largest of what is committed and
    what its open holds ask for. A root, such as a Deployment, is charged with its pods: the larger
    of its envelope, what its spec may run at once, and of what its pods have drawn together. So
    amounts add up to what is used; with --pods they do not.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        answer = await queries.holders(scope, at=at, pods=pods, root=root, limit=limit or 0)
    answer.announce()
    show_rows(answer.rows, _HOLDERS, output, "No holders found.", namespace=scope.namespace)
    if answer.more:
        note("There is more: raise --limit.")


async def holds(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    at: At = "",
    output: Output = Format.TABLE,
) -> None:
    """Show what is admitted and not settled yet.

    A hold ends when its object is seen persisted, or is proved never to have been written.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        answer = await queries.holds(scope, at=at)
    answer.announce()
    show_rows(answer.rows, _HOLDS, output, "No open holds found.", namespace=scope.namespace)


async def waiting(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    cluster: Cluster = "",
    output: Output = Format.TABLE,
) -> None:
    """Show the pods that wait for room, by place in the queue.

    PLACE counts from 1 in the queue of the namespace; 0 is a pod that is set aside, because it
    could not fit on empty quotas. The log does not record waiting pods, so a service of the cluster
    answers, and a store cannot.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, cluster, everywhere=all_namespaces)
        answer = await queries.waiting(scope)
    show_rows(answer.rows, WAITING, output, "No pods wait.", namespace=scope.namespace)


def _pods(row: "HolderCharge") -> str:
    """Return the pods of a root as text; a pod is one."""
    return "1" if row.key.startswith("pods/") else str(row.pods)


_PODS = TableColumn("PODS", _pods, number=True)


def _devices(row: Any) -> str:
    """Return the devices of a holder as one word, each `DRIVER/POOL/DEVICE` or with `:SHARE`."""
    return (
        ",".join(
            f"{device.driver}/{device.pool}/{device.device}{device.share and f':{device.share}'}"
            for device in row.devices
        )
        or NOTHING
    )


_HOLDERS = Listing(
    name="KEY",
    wide=(
        *PLACE,
        text("KEY", "key"),
        amounts("AMOUNTS", "amounts"),
        amounts("COMMITTED", "committed"),
        number("HOLDS", "holds"),
        _PODS,
        text("ROOT", "root"),
        text("SINCE", "since"),
        TableColumn("DEVICES", _devices),
    ),
    view=(
        CLUSTER,
        NAMESPACE,
        KEY,
        _PODS,
        age("AGE", "since"),
        short_amounts("AMOUNTS", "amounts"),
    ),
)
_HOLDS = Listing(
    name="UID",
    wide=(
        *PLACE,
        text("KEY", "key"),
        text("UID", "uid"),
        number("BASE", "base"),
        amounts("AMOUNTS", "amounts"),
        text("ROOT", "root"),
        text("SINCE", "since"),
        text("ACTOR", "actor"),
    ),
    view=(
        CLUSTER,
        NAMESPACE,
        KEY,
        name("ACTOR", "actor"),
        age("AGE", "since"),
        short_amounts("AMOUNTS", "amounts"),
    ),
)
WAITING = Listing(
    name="KEY",
    wide=(
        *PLACE,
        number("PLACE", "place"),
        text("KEY", "key"),
        amounts("AMOUNTS", "amounts"),
        text("SINCE", "since"),
        text("OBSTACLE", "obstacle"),
    ),
    view=(
        CLUSTER,
        NAMESPACE,
        number("PLACE", "place"),
        KEY,
        TableColumn("AMOUNTS", lambda row: amounts_text(row.amounts), least=KEY_LEAST),
        age("AGE", "since"),
        sentence("OBSTACLE", "obstacle"),
    ),
)
