"""`python -m simulation`: the ledger under seeded faults, in virtual time."""

from typing import Annotated

import msgspec
import typer

from gpuledger.cli.output import Format, Output, show_one
from gpuledger.cli.tables.table_columns import Listing, number

_CAMPAIGN = Listing(
    (number("SEEDS", "seeds"), number("STEPS", "steps"), number("VIOLATIONS", "violations"))
)


class Campaign(msgspec.Struct, frozen=True):
    """The outcome of some seeds: their number, callbacks run, and seeds that broke a rule."""

    seeds: int
    steps: int
    violations: int
    failed: tuple[int, ...]


def simulate(
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Run this seed alone and print its trace.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds to run.")] = 200,
    first: Annotated[int, typer.Option("--first", min=0, help="The first of them.")] = 0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Processes.")] = 1,
    output: Output = Format.TABLE,
) -> None:
    """Run the ledger against seeded misfortune.

    Several replicas, an API server, nodes, schedulers, crashes, lost answers and clock jumps, all
    worked out from one number, with every rule of the ledger checked after every step. A seed that
    breaks a rule is printed with a short way to it, and is run again by its number. Exits with 1
    then.
    """
    from gpuledger.cli.exit_codes import Exit

    broken = _replay(seed) if seed is not None else _campaign(seeds, first, workers, output)
    if broken:
        raise typer.Exit(Exit.FAILED)


def _replay(seed: int) -> bool:
    """Run one seed and print everything that happens in it; True when it breaks a rule."""
    from simulation.run import run

    result = run(seed)
    for line in result.trace:
        typer.echo(line)
    broken = result.violation
    verdict = "no violation" if broken is None else f"violates: {broken.rule}: {broken.message}"
    typer.echo(f"Seed {seed}, {result.steps} steps, {result.seconds:.0f} s: {verdict}.", err=True)
    return broken is not None


def _campaign(seeds: int, first: int, workers: int, output: Format) -> bool:
    """Run seeds and print what came of them; True when any broke a rule."""
    from contextlib import closing

    from gpuledger.cli.progress import bar
    from simulation.campaign import campaign, explain

    failed: list[int] = []
    steps = 0
    running = closing(campaign(range(first, first + seeds), workers))
    with bar("simulating") as progress, running as results:
        for done, result in enumerate(results, start=1):
            steps += result.steps
            if result.violation is not None:
                failed.append(result.seed)
                typer.echo(explain(result.seed), err=True)
            progress(done, seeds)
    show_one(Campaign(seeds, steps, len(failed), tuple(failed)), _CAMPAIGN, output)
    return bool(failed)


if __name__ == "__main__":
    typer.run(simulate)
