"""Baseline: the findings that each file had when it was written; they may only become fewer.

One line per rule and path, `rule path number`, sorted, so that git can merge two of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tools.lint.findings import Finding

Counts = dict[tuple[str, str], int]
"""How far each path exceeds each rule, summed over its findings."""

REWRITE: Final = "make lint-baseline"
_FINDINGS_SHOWN_MAX: Final = 30


def count(findings: Iterable[Finding]) -> Counts:
    """Return the numbers of a baseline of these findings."""
    counts: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        counts[finding.rule, finding.path] += finding.excess
    return dict(counts)


def render(counts: Counts) -> str:
    """Return the text of a baseline."""
    return "".join(f"{rule} {path} {number}\n" for (rule, path), number in sorted(counts.items()))


def parse(text: str) -> tuple[Counts, list[str]]:
    """Return the recorded numbers, and the keys that occur twice.

    Merging two versions repeats keys; the higher number of a key counts.
    """
    counts: Counts = {}
    repeated = []
    for line in text.splitlines():
        rule, path, number = line.split(" ")
        if (rule, path) in counts:
            repeated.append(f"{rule} {path}")
        counts[rule, path] = max(int(number), counts.get((rule, path), 0))
    return counts, repeated


def compare(findings: Sequence[Finding], recorded: Counts) -> Iterator[str]:
    """Return a line for each number of the baseline that is too low or too high."""
    by_key: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        by_key[finding.rule, finding.path].append(finding)
    counts = count(findings)
    for key in sorted(counts.keys() | recorded.keys()):
        real, known = counts.get(key, 0), recorded.get(key, 0)
        if real > known:
            yield from map(str, by_key[key][:_FINDINGS_SHOWN_MAX])
            if known:
                yield f"{key[1]}: {key[0]}: {real} in all, {known} recorded: mend {real - known}"
        elif real < known:
            yield f"{key[1]}: {key[0]}: {real}, but {known} recorded: run {REWRITE}"


def risen(counts: Counts, recorded: Counts) -> Iterator[str]:
    """Return a line for each rule that has more findings in the whole tree than recorded."""
    now, before = _totals(counts), _totals(recorded)
    for rule in sorted(now):
        if now[rule] > before[rule]:
            more = now[rule] - before[rule]
            yield f"{rule}: {now[rule]} findings, {before[rule]} recorded: mend {more}"


def _totals(counts: Counts) -> Counter[str]:
    totals: Counter[str] = Counter()
    for (rule, _path), number in counts.items():
        totals[rule] += number
    return totals
