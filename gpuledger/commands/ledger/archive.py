"""`gpuledger backup` and `gpuledger restore`: the whole log in one file, and back."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command
from gpuledger.cli.output import Format, Output, number, show_one, text
from ledger.runtime.settings.setting_sources import LoadedSettings

File = Annotated[str, typer.Argument(metavar="FILE", help="The backup.")]

_SUMMARY = (text("SHARD", "shard"), number("RECORDS", "records"), text("HASH", "hash"))


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    command(app, "gpuledger backup ledger.backup", "gpuledger backup ledger.backup -o json")(backup)
    command(
        app,
        "gpuledger restore ledger.backup --store-dir new-store",
        "gpuledger restore ledger.backup --store-dir new-store --nats nats://nats.example:4222",
    )(restore)


async def backup(loaded: LoadedSettings, file: File, output: Output = Format.TABLE) -> None:
    """Write the log to one file.

    The file must not exist yet. Every record is verified on the way.

    It holds every record up to the end of the log at the start of the backup; the service may
    run meanwhile. Keep the printed RECORDS:HASH elsewhere: `audit verify --expect` takes it.
    """
    from gpuledger.storage import backup

    show_one(await backup.backup(loaded.settings, file), _SUMMARY, output)


async def restore(loaded: LoadedSettings, file: File, output: Output = Format.TABLE) -> None:
    """Write a backup to a new store, and verify it.

    Positions and hashes are the same as before.

    The store directory must be empty or not exist, and the log must not exist on the servers. A
    restore that was interrupted leaves a store that refuses to serve: empty it and begin again.
    """
    from gpuledger.storage import backup

    show_one(await backup.restore(loaded.settings, file), _SUMMARY, output)
