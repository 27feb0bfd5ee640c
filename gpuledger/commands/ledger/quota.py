"""`gpuledger quota`: quotas of clusters that the ledger does not watch."""

from typing import Annotated, Any

import typer

from gpuledger.cli.command_wrapper import LEDGER, READING, command, group
from gpuledger.cli.output import Format, Output, show_one, show_rows
from gpuledger.cli.row_options import AllNamespaces, Namespace
from gpuledger.cli.tables.display_texts import NOTHING
from gpuledger.cli.tables.table_columns import (
    CLUSTER,
    NAMESPACE,
    Listing,
    Omitted,
    TableColumn,
    flag,
    number,
    quantity,
    resource,
    text,
)
from gpuledger.cli.tables.table_columns import (
    name as name_column,
)
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group(
    "Set, list and delete quotas by hand.",
    "gpuledger quota list",
    "gpuledger quota set -n team-a gpus limits.nvidia.com/gpumem=16000",
)

OfQuota = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Namespace of the quota.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the quota.")]

_TAKES = (*LEDGER, "cluster")


def _counts(row: Any) -> str:
    return ", ".join(part for part in (row.selects, row.covers) if part) or NOTHING


_LIMITS = Listing(
    name="QUOTA",
    wide=(
        text("CLUSTER", "cluster"),
        text("NAMESPACE", "namespace"),
        text("QUOTA", "quota"),
        text("RESOURCE", "resource"),
        number("LIMIT", "limit"),
        text("COVERS", "covers"),
        text("SELECTS", "selects"),
    ),
    view=(
        CLUSTER,
        NAMESPACE,
        name_column("QUOTA", "quota"),
        resource("RESOURCE", "resource"),
        quantity("LIMIT", "limit"),
        TableColumn("COUNTS", _counts, wraps=True, omitted=Omitted.EMPTY),
    ),
)
_WRITTEN = Listing(
    (text("ACCOUNT", "account"), flag("CHANGED", "changed"), number("POSITION", "position"))
)


@command(
    app,
    "gpuledger quota set -n team-a gpus limits.nvidia.com/gpumem=16000 requests.nvidia.com/gpu=2",
    "gpuledger quota set -n team-a gpus requests.nvidia.com/gpu=0",
    name="set",
    takes=_TAKES,
)
async def set_(
    loaded: LoadedSettings,
    name: Name,
    limits: Annotated[
        list[str], typer.Argument(metavar="KEY=QUANTITY...", help="All limits of the quota.")
    ],
    namespace: OfQuota,
    output: Output = Format.TABLE,
) -> None:
    """Set all limits of a quota.

    Keys that are not given have no limit.

    Keys and quantities are those of a ResourceQuota: limits.RESOURCE or requests.RESOURCE, whole
    numbers, 0 to block. Memory of cards is in the unit of pod requests: the setting memory_factor
    is applied once, as for requests. `gpuledger usage` then shows MiB. Lowering a limit below the
    used amount evicts no pod.
    """
    from gpuledger.changes import quotas_set_by_hand

    read = quotas_set_by_hand.parse_limits(limits, loaded.settings)
    written = await quotas_set_by_hand.set_limits(loaded.settings, namespace, name, read)
    show_one(written, _WRITTEN, output)


@command(
    app,
    "gpuledger quota list",
    "gpuledger quota list -n team-a -o json",
    name="list",
    takes=READING,
)
async def list_(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TABLE,
) -> None:
    """List the quotas and their limits.

    COUNTS shows the objects that a quota counts, and the namespaces of a quota over several
    namespaces. With -o wide, these are SELECTS and COVERS.
    """
    from gpuledger.reading.query_source import ledger_queries

    async with ledger_queries(loaded) as queries:
        scope = queries.scope(namespace, "", everywhere=all_namespaces)
        answer = await queries.limits(scope)
    answer.announce()
    show_rows(answer.rows, _LIMITS, output, "No quotas found.", namespace=scope.namespace)


@command(app, "gpuledger quota delete -n team-a gpus", takes=_TAKES)
async def delete(
    loaded: LoadedSettings, name: Name, namespace: OfQuota, output: Output = Format.TABLE
) -> None:
    """Delete a quota.

    Its limits end; the ledger keeps the charges of its holders.
    """
    from gpuledger.changes import quotas_set_by_hand

    show_one(await quotas_set_by_hand.close(loaded.settings, namespace, name), _WRITTEN, output)
