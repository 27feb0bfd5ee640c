"""`gpuledger log`: the schema of the log's records."""

from gpuledger.cli.command_wrapper import command, group
from gpuledger.cli.output import Format, Output, show_one
from gpuledger.cli.tables.table_columns import Listing, number
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group("Raise the schema of the log's records.", "gpuledger log raise-schema")

_COLUMNS = Listing(
    (number("BEFORE", "before"), number("SCHEMA", "schema"), number("POSITION", "position"))
)


@command(app, "gpuledger log raise-schema", name="raise-schema")
async def raise_schema(loaded: LoadedSettings, output: Output = Format.TABLE) -> None:
    """Let all replicas write records of the newest schema.

    After an upgrade, replicas go on writing the schema of the log's last record, so that the older
    version can be installed again. This command appends the first record of the newest schema.
    Older replicas and agents stop reading there, so it is refused while a replica is older. Update
    agents before; they are not asked.
    """
    from gpuledger.changes import raised_schema

    show_one(await raised_schema.raise_schema(loaded.settings), _COLUMNS, output)
