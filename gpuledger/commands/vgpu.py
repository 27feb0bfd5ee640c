"""`gpuledger vgpu`: the library that limits containers."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command, group
from gpuledger.cli.output import Format, Output
from gpuledger.cli.tables.table_columns import Listing, name, sentence, text
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group(
    "The library that limits containers on cards.",
    "gpuledger vgpu selftest",
)

COLUMNS = Listing((name("CHECK", "name"), text("RESULT", "result"), sentence("DETAIL", "detail")))


@command(
    app,
    "gpuledger vgpu selftest",
    "gpuledger vgpu selftest --library vgpu_native/build/libvgpu.so \\",
    "    --driver vgpu_native/build/stub/libcuda.so.1",
    takes=(),
)
def selftest(
    loaded: LoadedSettings,
    library: Annotated[
        str, typer.Option("--library", metavar="FILE", help="The libvgpu.so to check.")
    ] = "/usr/local/gpuledger/libvgpu.so",
    driver: Annotated[
        str,
        typer.Option("--driver", metavar="FILE", help="The libcuda.so.1 to check it with."),
    ] = "libcuda.so.1",
    output: Output = Format.TABLE,
) -> None:
    """Check on a node whether the library works.

    The library is preloaded into a process that allocates up to a limit and beyond. Exits with 0 if
    all checks pass, with 1 if one fails, and with 6 if one could not run without a driver or a card
    and the rest pass.
    """
    from gpuledger.node.library_self_test import main

    main(library, driver, output, COLUMNS)
