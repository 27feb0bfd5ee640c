"""Row options of commands: the namespace, the cluster and the number of the rows to print."""

from typing import Annotated, Final

import typer

from gpuledger.cli.tables.table_columns import text

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Only this namespace.")
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="All namespaces; -n is ignored.")
]
Cluster = Annotated[
    str, typer.Option("--cluster", metavar="CLUSTER", help="Only this cluster of the ledger.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Most rows to print.")]
OptionalLimit = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=100_000, help="Most rows to print; without it, all."),
]

PLACE: Final = (text("CLUSTER", "cluster"), text("NAMESPACE", "namespace"))
"""The columns of the cluster and the namespace of a row."""
