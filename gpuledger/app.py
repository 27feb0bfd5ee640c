"""The app: every command of `gpuledger`, put together from its families."""

import typer

from gpuledger.command import epilog
from gpuledger.commands import (
    agent,
    archive,
    audit,
    cards,
    demo,
    drift,
    explain,
    extender,
    fit,
    importing,
    node,
    projection,
    pseudonym,
    quota,
    reading,
    resize,
    scheduler,
    serve,
    settle,
    simulate,
    version,
    vgpu,
    webhook,
    what_if,
)
from gpuledger.commands.times import today

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
        serve,
        extender,
        agent,
        reading,
        cards,
        fit,
        what_if,
        resize,
        drift,
        explain,
        settle,
        pseudonym,
        archive,
        simulate,
        version,
    ):
        family.register(app)
    app.add_typer(quota.app, name="quota")
    app.add_typer(audit.app, name="audit")
    app.add_typer(projection.app, name="projection")
    app.add_typer(webhook.app, name="webhook")
    app.add_typer(scheduler.app, name="scheduler")
    app.add_typer(importing.app, name="import")
    app.add_typer(node.app, name="node")
    app.add_typer(vgpu.app, name="vgpu")
    return app
