"""`gpuledger webhook`: the configurations for the API server."""

from typing import Annotated

import typer

from gpuledger.cli.command_wrapper import command, group
from gpuledger.cli.output import write_line
from ledger.runtime.settings.setting_sources import LoadedSettings

app = group(
    "Show the webhook configurations for the API server.",
    "gpuledger webhook print --url https://gpuledger.example:8443",
)

_TAKES = (
    "store_dir",
    "managed_resources",
    "vendors",
    "vendors_file",
    "namespace",
    "exempt_namespaces",
    "webhook_name",
    "webhook_failure_policy",
    "tls_secret",
    "trusted_identities",
    "trust_hami_defaults",
    "workload_kinds",
    "controller_identities",
)


@command(
    app,
    "gpuledger webhook print --url https://gpuledger.example:8443",
    "gpuledger webhook print --service gpuledger --ca ca.crt | kubectl apply -f -",
    name="print",
    takes=_TAKES,
)
async def print_(
    loaded: LoadedSettings,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Base URL of the service.")] = "",
    service: Annotated[
        str, typer.Option("--service", metavar="NAME", help="Its Service, in --namespace.")
    ] = "",
    authority: Annotated[
        str,
        typer.Option(
            "--ca", metavar="FILE", help="CA of the service, PEM; default: that of the store."
        ),
    ] = "",
) -> None:
    """Print both webhook configurations as YAML, for kubectl.

    Give --url or --service. `gpuledger serve --register-webhook URL` registers the same
    configurations.
    """
    from gpuledger.wiring import webhook_manifest

    manifest = webhook_manifest.render_manifest(loaded.settings, url, service, authority)
    write_line(manifest.rstrip("\n"))
