"""`gpuledger holders` and `gpuledger holds`: who is charged, and which attempts are not settled."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, amounts, number, show_rows, text
from gpuledger.cli.row_options import PLACE, Cluster, Namespace
from gpuledger.cli.time_options import At
from ledger.runtime.settings.setting_sources import LoadedSettings


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    command(
        app,
        "gpuledger holders -n team-a",
        "gpuledger holders -n team-a --root deployments.apps/web",
        "gpuledger holders --at 1200 -o yaml",
    )(holders)
    command(app, "gpuledger holds", "gpuledger holds -n team-a -o json")(holds)


async def holders(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    cluster: Cluster = "",
    at: At = "",
    pods: Annotated[
        bool, typer.Option("--pods", help="Also pods that are charged with their root.")
    ] = False,
    root: Annotated[
        str,
        typer.Option("--root", metavar="KEY", help="Only the pods of this root, as KEY shows it."),
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Show who is charged how much.

    One row per object, or attempt to write one: its charge is the largest of what is committed and
    what its open holds ask for. A root, such as a Deployment, is charged with its pods: the larger
    of its envelope, what its spec may run at once, and of what its pods have drawn together. So
    amounts add up to what is used; with --pods they do not.
    """
    from gpuledger.storage.projection_views import paged, viewing
    from projections.queries.holders import holders as ask
    from projections.queries.query_scope import QueryScope

    scope = QueryScope(namespace, cluster)
    async with viewing(loaded.settings, at) as (view, position):
        rows = await paged(
            lambda size, after: ask(
                view, position, scope, limit=size, after=after, pods=pods, root=root
            )
        )
    show_rows(rows, _HOLDERS, output, "No holders found.")


async def holds(
    loaded: LoadedSettings,
    namespace: Namespace = "",
    cluster: Cluster = "",
    at: At = "",
    output: Output = Format.TABLE,
) -> None:
    """Show what is admitted and not settled yet.

    A hold ends when its object is seen persisted, or is proved never to have been written.
    """
    from gpuledger.storage.projection_views import paged, viewing
    from projections.queries.holders import holds as ask
    from projections.queries.query_scope import QueryScope

    scope = QueryScope(namespace, cluster)
    async with viewing(loaded.settings, at) as (view, position):
        rows = await paged(lambda size, after: ask(view, position, scope, limit=size, after=after))
    show_rows(rows, _HOLDS, output, "No open holds found.")


_HOLDERS = (
    *PLACE,
    text("KEY", "key"),
    amounts("AMOUNTS", "amounts"),
    amounts("COMMITTED", "committed"),
    number("HOLDS", "holds"),
    number("PODS", "pods"),
    text("ROOT", "root"),
    text("SINCE", "since"),
)
_HOLDS = (
    *PLACE,
    text("KEY", "key"),
    text("UID", "uid"),
    number("BASE", "base"),
    amounts("AMOUNTS", "amounts"),
    text("ROOT", "root"),
    text("SINCE", "since"),
    text("ACTOR", "actor"),
)
