"""Command line: the Typer app of `gpuledger` with all its commands."""

import typer

from gpuledger.cli.command_wrapper import epilog
from gpuledger.cli.time_options import today
from gpuledger.commands import (
    agent,
    check,
    demo,
    import_hami,
    log_schema,
    node,
    page,
    pseudonym,
    scheduler,
    serve_and_extender,
    uninstall,
    version,
    vgpu,
    webhook,
)
from gpuledger.commands.ledger import (
    audit,
    backup_and_restore,
    cards,
    drift,
    explain,
    fit,
    history_and_denials,
    holders_and_holds,
    projection,
    quota,
    resize,
    settle,
    usage,
    what_if,
)

_HELP = """Quotas for GPUs on Kubernetes, kept in a ledger that survives crashes and can be audited.

Exit codes: 0 done, 1 failed or a check does not hold, 2 wrong usage, 3 not found, 4 denied,
5 the log cannot be reached, 6 not ready in time.
"""


def build() -> typer.Typer:
    """Return the app with all its commands."""
    app = typer.Typer(
        name="gpuledger",
        help=_HELP,
        epilog=epilog(
            "gpuledger serve --no-kubernetes",
            "gpuledger quota set -n team-a gpus limits.nvidia.com/gpumem=16000",
            "gpuledger usage -n team-a",
        ),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": today},
        callback=version.option,
    )
    for family in (
        demo,
        serve_and_extender,
        page,
        agent,
        check,
        uninstall,
        usage,
        holders_and_holds,
        history_and_denials,
        cards,
        fit,
        what_if,
        resize,
        drift,
        explain,
        settle,
        pseudonym,
        backup_and_restore,
        version,
    ):
        family.register(app)
    app.add_typer(quota.app, name="quota")
    app.add_typer(audit.app, name="audit")
    app.add_typer(projection.app, name="projection")
    app.add_typer(log_schema.app, name="log")
    app.add_typer(webhook.app, name="webhook")
    app.add_typer(scheduler.app, name="scheduler")
    app.add_typer(import_hami.app, name="import")
    app.add_typer(node.app, name="node")
    app.add_typer(vgpu.app, name="vgpu")
    return app
