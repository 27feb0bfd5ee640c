"""`gpuledger simulate`: the service's own parts in a simulated world, seed by seed."""

from typing import Annotated

import typer

from gpuledger.command import epilog


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(
        epilog=epilog(
            "gpuledger simulate --seeds 1000",
            "gpuledger simulate --seeds 1000 --first 5000 --workers 4",
            "gpuledger simulate --seed 4711",
        )
    )(simulate)


def simulate(
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="COUNT", min=1, help="How many seeds to run.")
    ] = 200,
    first: Annotated[
        int, typer.Option("--first", metavar="SEED", min=0, help="The first of them.")
    ] = 0,
    workers: Annotated[
        int, typer.Option("--workers", metavar="COUNT", min=1, help="Processes to run them in.")
    ] = 1,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="SEED", min=0, help="Replay one seed and print its trace."),
    ] = None,
) -> None:
    """Run writers, webhooks and settlement among seeded faults.

    Replicas are killed, answers and requests get lost, stores are slow, clocks jump, watches have
    gaps; after every step everything that must always be true is checked. A seed runs the same way
    every time. Exits with 1 after a violation, with the shortest trace to it that was found.
    """
    if seed is None:
        _campaign(range(first, first + seeds), workers)
    else:
        _replay(seed)


def _campaign(seeds: range, workers: int) -> None:
    from gpuledger.exits import Exit
    from gpuledger.progress import bar
    from gpuledger.simulation.campaigns import campaign, explain

    steps = 0
    with bar("simulating") as progress:
        for done, result in enumerate(campaign(seeds, workers), 1):
            progress(done, len(seeds))
            steps += result.steps
            failed = result if result.violation is not None else None
            if failed is not None:
                break
    if failed is not None:
        typer.echo(explain(failed.seed))
        raise typer.Exit(Exit.FAILED)
    typer.echo(f"{len(seeds)} seeds from {seeds.start}, {steps} steps: no violation")


def _replay(seed: int) -> None:
    from gpuledger.exits import Exit
    from gpuledger.simulation.running import run

    result = run(seed)
    for line in result.trace:
        typer.echo(line)
    typer.echo(f"seed {seed}: {result.steps} steps, {result.seconds:.0f} s, trace {result.digest}")
    if result.violation is not None:
        typer.echo(f"violated: {result.violation.rule}: {result.violation.message}", err=True)
        raise typer.Exit(Exit.FAILED)
    typer.echo("no violation")
