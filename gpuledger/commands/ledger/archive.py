"""`gpuledger backup` and `gpuledger restore`: copy the whole log to a file and back."""

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

    The file must not exist.

    The command verifies every record. The backup has every record up to the end of the log at its
    start; the service may run meanwhile. Store the printed RECORDS:HASH elsewhere, for `audit
    verify --expect`.
    """
    from gpuledger.storage import backup

    show_one(await backup.backup(loaded.settings, file), _SUMMARY, output)


async def restore(loaded: LoadedSettings, file: File, output: Output = Format.TABLE) -> None:
    """Write a backup to a new store, and verify it.

    Positions and hashes are the same as before.

    The store directory must be empty or not exist, and the log must not exist on the servers. An
    interrupted restore leaves an unusable store: empty it and start again.
    """
    from gpuledger.storage import backup

    show_one(await backup.restore(loaded.settings, file), _SUMMARY, output)
