"""`gpuledger backup` and `gpuledger restore`: copy the whole log to a file and back."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, show_one
from gpuledger.cli.tables.table_columns import Listing, number, text
from ledger.runtime.settings.setting_sources import LoadedSettings

File = Annotated[str, typer.Argument(metavar="FILE", help="The backup.")]

Target = Annotated[
    str, typer.Argument(metavar="PATH", help="The backup; with --keep, a directory for backups.")
]
Keep = Annotated[
    int | None,
    typer.Option(
        "--keep",
        metavar="N",
        min=1,
        max=10_000,
        help="Write a new file into the directory, and delete all but the newest N.",
    ),
]

_SUMMARY = Listing(
    (text("SHARD", "shard"), number("RECORDS", "records"), text("HASH", "hash")),
)
_ROTATED = Listing(
    name="FILE",
    wide=(
        *_SUMMARY.wide,
        text("FILE", "file"),
        number("KEPT", "kept"),
        number("DELETED", "deleted"),
    ),
)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    command(
        app,
        "gpuledger backup ledger.backup",
        "gpuledger backup ledger.backup -o json",
        "gpuledger backup --keep 7 /var/backups/gpuledger",
    )(backup)
    command(
        app,
        "gpuledger restore ledger.backup --store-dir new-store",
        "gpuledger restore ledger.backup --store-dir new-store --nats nats://nats.example:4222",
    )(restore)


async def backup(
    loaded: LoadedSettings, path: Target, keep: Keep = None, output: Output = Format.TABLE
) -> None:
    """Write the log to one file.

    The file must not exist. With --keep, the file gets the name SHARD-TIME.backup in a directory,
    and the oldest backups of the log there are deleted once it is complete. Damaged backups of the
    shard, and those with records that the log does not have, are kept and not counted, and the
    command exits with 1.

    The command verifies every record. The backup has every record up to the end of the log at its
    start; the service may run meanwhile. Store the printed RECORDS:HASH elsewhere, for `audit
    verify --expect`.
    """
    if keep is not None:
        from gpuledger.storage.backup_rotation import rotate

        show_one(await rotate(loaded.settings, path, keep), _ROTATED, output)
        return
    from gpuledger.storage import backup

    show_one(await backup.backup(loaded.settings, path), _SUMMARY, output)


async def restore(loaded: LoadedSettings, file: File, output: Output = Format.TABLE) -> None:
    """Write a backup to a new store, and verify it.

    Positions and hashes are the same as before.

    The store directory must be empty or not exist, and the log must not exist on the servers. An
    interrupted restore leaves an unusable store: empty it and start again.
    """
    from gpuledger.storage import backup

    show_one(await backup.restore(loaded.settings, file), _SUMMARY, output)
