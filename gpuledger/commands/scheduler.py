"""`gpuledger scheduler`: shows configuration for a kube-scheduler."""

import msgspec

from gpuledger.cli.command_wrapper import command, group
from gpuledger.cli.output import Format, Output, show_object, show_rows
from gpuledger.cli.tables.table_columns import Listing, text
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group("Show configuration for a kube-scheduler.")

_RESOURCES = Listing((text("RESOURCE", "name"),))


@command(
    app,
    "gpuledger scheduler resources",
    "gpuledger scheduler resources --vendors nvidia,hygon",
    "gpuledger scheduler resources --config /etc/gpuledger/gpuledger.toml -o json",
    takes=("vendors", "vendors_file"),
)
def resources(loaded: LoadedSettings, output: Output = Format.YAML) -> None:
    """Print the resources that kube-scheduler ignores.

    They are the managedResources of the extender in a KubeSchedulerConfiguration: all resources of
    the vendors in the settings whose cards the extender places. A pod with a resource that is
    missing there stays Pending.
    """
    from gpuledger.wiring import demand_rules_from_settings
    from ledger.kube.hami.managed_resources import managed_resources

    managed = managed_resources(demand_rules_from_settings.demand_rules(loaded.settings).vendors)
    if output.is_object:
        show_object({"managedResources": msgspec.to_builtins(managed)}, output)
    else:
        show_rows(managed, _RESOURCES, output, "The extender places no cards of these vendors.")
