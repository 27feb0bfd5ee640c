"""`gpuledger projection`: rebuilds the projection and compares it with the log."""

import typer

from gpuledger.cli.command_wrapper import command, group
from gpuledger.cli.output import Format, Output, show_one
from gpuledger.cli.tables.table_columns import Listing, flag, number, text
from gpuledger.cli.time_options import At
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group(
    "Rebuild, digest and compare the projection.",
    "gpuledger projection digest",
    "gpuledger projection rebuild",
)

_DIGEST = Listing((number("POSITION", "position"), text("DIGEST", "digest")), name="DIGEST")
_COMPARISON = Listing(
    (*_DIGEST.wide, text("REBUILT", "rebuilt"), flag("SAME", "same")), name="DIGEST"
)


@command(app, "gpuledger projection digest", "gpuledger projection digest --at 1200 -o json")
async def digest(loaded: LoadedSettings, at: At = "", output: Output = Format.TABLE) -> None:
    """Print one hash over the whole projection.

    All projections of one log have the same hash: live, killed and continued, or rebuilt.
    """
    from gpuledger.storage.projection_views import viewing
    from projections.store.digest import digest as ask

    async with viewing(loaded.settings, at) as (view, position):
        answer = await ask(view, position)
    show_one(answer, _DIGEST, output)


@command(app, "gpuledger projection rebuild", "gpuledger projection rebuild --at 1200")
async def rebuild(
    loaded: LoadedSettings,
    at: At = "",
    output: Output = Format.TABLE,
) -> None:
    """Rebuild the projection file from the log.

    The service must not run. The new file replaces the old one when it is complete. Denials are not
    part of the log; the service restores them when it runs again.
    """
    from gpuledger.storage import projection_rebuild

    show_one(await projection_rebuild.rebuild(loaded.settings, at), _DIGEST, output)


@command(app, "gpuledger projection compare", "gpuledger projection compare --at 1200 -o json")
async def compare(loaded: LoadedSettings, at: At = "", output: Output = Format.TABLE) -> None:
    """Compare the projection with a new one from the log.

    Exits with 1 when they differ.
    """
    from gpuledger.cli.exit_codes import Exit
    from gpuledger.storage import projection_rebuild

    comparison = await projection_rebuild.compare(loaded.settings, at)
    show_one(comparison, _COMPARISON, output)
    if not comparison.same:
        raise typer.Exit(Exit.FAILED)
