"""Shares of the card's time: of the kernels that end, those that end alone are 100 %.

Each length is first measured alone, without a library. If the card is not busy then, a limit cannot
be measured. A kernel's own timer corrects for a clock that has changed since.
"""

from __future__ import annotations

from contextlib import ExitStack

from gpu_check.bench import HAMI, NONE, OURS, Bench, Started
from gpu_check.outcome import Findings, NotTried

US, MS = 1_000, 1_000_000
POINTS = 3.0
"""How far a share may be from its limit, percentage points."""

LONG_POINTS = 5.0
"""The same for kernels of which few fit into a window."""

BUSY_LEAST = 60.0
"""Percent of the time for which the card must be busy without a limit."""

MEMORY_MIB = 2048

STUB_LOAD_NS = 60 * MS
"""Loading of a module's kernels on the stub: it takes no time by itself."""

Load = tuple[int, ...]
"""Lengths of kernels in turn, nanoseconds."""

PATTERNS: dict[str, Load] = {
    "2 and 10 us": (2 * US, 10 * US),
    "one of 1 ms in 4": (50 * US, 50 * US, 50 * US, 1 * MS),
    "one of 1 ms in 8": (50 * US,) * 7 + (1 * MS,),
}
QUICK_PATTERNS = ("2 and 10 us", "one of 1 ms in 8")


class Loads:
    """Runs loads, and remembers how each runs alone."""

    def __init__(self, bench: Bench, seconds: float, way: str = "queue") -> None:
        """Measure for `seconds` after a start of a third of it, at least 0.3 s."""
        self.bench, self.seconds, self.way = bench, seconds, way
        self.warm = max(seconds / 3, 0.3)
        self._alone: dict[Load, tuple[float, float]] = {}

    def start(self, load: Load, env: dict[str, str]) -> Started:
        """Start a load."""
        return self.bench.start(
            self.bench.program("share", self.seconds, self.warm, self.way, *load), env
        )

    def rate(self, load: Load, env: dict[str, str]) -> tuple[float, float]:
        """Return rounds per second, and the mean nanoseconds of a kernel, 0 if unknown."""
        with self.start(load, env) as running:
            return _rate(running.end().values)

    def alone(self, load: Load) -> tuple[float, float]:
        """Return the same without a limit. Raises NotTried if that does not keep the card busy."""
        if load not in self._alone:
            rounds, kernel = self.rate(load, self.bench.env(NONE))
            if _busy(load, rounds, kernel) < BUSY_LEAST:
                rounds, kernel = self.rate(load, self.bench.env(NONE))
            busy = _busy(load, rounds, kernel)
            if busy < BUSY_LEAST and not self.bench.stub:
                raise NotTried(
                    f"alone, kernels of {load[0]:,} ns keep the card busy for only {busy:.0f} %"
                )
            # The stub's kernels have exactly their length. A busy processor delays launches.
            self._alone[load] = (1e9 / sum(load) if self.bench.stub else rounds), kernel
        return self._alone[load]

    def percent(self, load: Load, measured: tuple[float, float]) -> float:
        """Return a rate as percent of that alone."""
        rounds, kernel = self.alone(load)
        clock = measured[1] / kernel if kernel and measured[1] else 1.0
        return 100 * measured[0] / rounds * clock

    def share(self, load: Load, limit: int, library: str = OURS) -> float:
        """Return the percent of the card's time that one process has under a limit."""
        env = self.bench.env(library, MEMORY_MIB, limit)
        self.alone(load)
        return self.percent(load, self.rate(load, env))


def _busy(load: Load, rounds: float, kernel: float) -> float:
    return rounds * (kernel * len(load) if kernel else sum(load)) / 1e7


def control(bench: Bench) -> float:
    """Return the share of a container with 30 % for which no library is loaded: it must be seen."""
    loads, load = Loads(bench, 0.5 if bench.quick else 1.0), (500 * US,)
    loads.alone(load)
    return loads.percent(load, loads.rate(load, bench.env(NONE, 0, 30)))


def _rate(values: dict[str, float]) -> tuple[float, float]:
    return values["rounds"] * 1e9 / values["elapsed_ns"], values.get("kernel_ns", 0.0)


def _shares(
    findings: Findings, loads: Loads, cases: dict[str, Load], limits: tuple[int, ...], library: str
) -> Findings:
    for name, load in cases.items():
        for limit in limits:
            try:
                share = loads.share(load, limit, library)
            except NotTried as reason:
                findings.notes.append(f"{name}: {reason}")
                break
            measure = f"{name} at {limit} %"
            findings.add(measure, share, "%", limit - POINTS, limit + POINTS)
            findings.compare(f"share of {measure}", "%", **{NONE: 100.0, library: share})
    return findings


def short_kernels(bench: Bench, library: str = OURS) -> Findings:
    """Measure queued kernels of 5 to 5,000 us."""
    lengths = (5, 500) if bench.quick or library == HAMI else (5, 50, 500, 5000)
    limits = (10, 50) if bench.quick else (10, 30, 50) if library == HAMI else (10, 30, 50, 90)
    loads = Loads(bench, 0.7 if bench.quick else 1.5)
    cases = {f"kernels of {us:,} us": (us * US,) for us in lengths}
    return _shares(bench.begin(), loads, cases, limits, library)


def patterns(bench: Bench, library: str = OURS) -> Findings:
    """Measure one grid whose kernels differ in length, in periods of 2, 4 and 8."""
    limits = (30,) if bench.quick or library == HAMI else (10, 30, 50, 90)
    cases = {name: PATTERNS[name] for name in (QUICK_PATTERNS if bench.quick else PATTERNS)}
    loads = Loads(bench, 0.8 if bench.quick else 1.5)
    return _shares(bench.begin(), loads, cases, limits, library)


def long_kernels(bench: Bench) -> Findings:
    """Measure queued kernels of 200 and 500 ms."""
    findings = bench.begin()
    cases = [(60, 50, 1.5)] if bench.quick else [(200, 50, 5.0), (200, 30, 6.0), (500, 10, 12.0)]
    for length, limit, seconds in cases:
        load = (length * MS,)
        rate = Loads(bench, seconds).rate(load, bench.env(OURS, MEMORY_MIB, limit))
        kernel = rate[1] or length * MS
        share = rate[0] * kernel / 1e7
        findings.add(
            f"kernels of {length} ms at {limit} %",
            share,
            "%",
            limit - LONG_POINTS,
            limit + LONG_POINTS,
        )
    return findings


def graphs(bench: Bench) -> Findings:
    """Measure launches of graphs, and memory of a pool around each kernel."""
    findings, seconds = bench.begin(), 0.6 if bench.quick else 2.0
    for way, name in (("graph", "graphs of 4 kernels"), ("async", "kernels with memory of a pool")):
        load = (100 * US,) * 4 if way == "graph" else (200 * US,)
        for limit in (30,) if bench.quick else (10, 50):
            share = Loads(bench, seconds, way).share(load, limit)
            findings.add(f"{name} at {limit} %", share, "%", limit - POINTS, limit + POINTS)
    return findings


def green_contexts(bench: Bench) -> Findings:
    """Measure kernels in a green context."""
    findings, load = bench.begin(), (200 * US,)
    share = Loads(bench, 0.6 if bench.quick else 2.0, "green").share(load, 30)
    findings.add("kernels of a green context at 30 %", share, "%", 30 - POINTS, 30 + POINTS)
    return findings


def processes(bench: Bench) -> Findings:
    """Measure two and eight processes of one container with 40 %, together."""
    findings, load = bench.begin(), (300 * US,)
    loads = Loads(bench, 1.0 if bench.quick else 3.0)
    loads.alone(load)
    for count in (2,) if bench.quick else (2, 8):
        env = bench.env(OURS, MEMORY_MIB * 4, 40)
        rates = together(loads, [(load, env)] * count)
        share = sum(loads.percent(load, (rate, 0)) for rate, _ in rates)
        findings.add(f"{count} processes at 40 %, together", share, "%", 40 - POINTS, 40 + POINTS)
    return findings


def tenants(bench: Bench, library: str = OURS) -> Findings:
    """Measure two containers on one card, each beside the other."""
    findings, load = bench.begin(), (500 * US,)
    loads = Loads(bench, 1.2 if bench.quick else 4.0)
    loads.alone(load)
    for limits in ((30, 70),) if bench.quick or library == HAMI else ((30, 70), (50, 50), (20, 20)):
        rates = together(loads, [(load, bench.env(library, MEMORY_MIB, limit)) for limit in limits])
        # The timer in a kernel also counts the slices of others, so it cannot correct here.
        shares = [loads.percent(load, (rate, 0)) for rate, _ in rates]
        for limit, share in zip(limits, shares):  # noqa: B905
            measure = f"{limit} % beside {sum(limits) - limit} %"
            findings.add(measure, share, "%", limit - LONG_POINTS, limit + POINTS)
            findings.compare(f"share of {measure}", "%", **{library: share})
    return findings


def together(loads: Loads, users: list[tuple[Load, dict[str, str]]]) -> list[tuple[float, float]]:
    """Return the rates of simultaneous loads."""
    with ExitStack() as stack:
        running = [stack.enter_context(loads.start(load, env)) for load, env in users]
        return [_rate(each.end().values) for each in running]


def fresh_kernels(bench: Bench) -> Findings:
    """Launch kernels that the driver has to load first, with lazy loading and without."""
    findings, count, bulk = bench.begin(), 5 if bench.quick else 20, 400
    for mode in ("LAZY", "EAGER"):
        alone = _first_launches(bench, bench.env(NONE, **_loading(mode)), count, bulk)
        for limit in (10,) if bench.quick else (10, 30):
            env = bench.env(OURS, MEMORY_MIB, limit, **_loading(mode))
            limited = _first_launches(bench, env, count, bulk)
            # Twice the work's own time at its share, and a fifth of a second.
            most = 2 * count * 0.01 * 100 / limit + 200
            more = limited["launch_ms"] - alone["launch_ms"]
            findings.add(
                f"{mode.lower()}: first launches at {limit} % take longer by",
                more,
                "ms",
                None,
                most,
            )
        findings.add(f"{mode.lower()}: first launches alone", alone["launch_ms"], "ms")
    return findings


def _loading(mode: str) -> dict[str, str]:
    loading = {"CUDA_MODULE_LOADING": mode, "CUDA_CACHE_DISABLE": "1"}
    return loading | {"VGPU_STUB_LOAD_NS": str(STUB_LOAD_NS)}


def _first_launches(bench: Bench, env: dict[str, str], count: int, bulk: int) -> dict[str, float]:
    return bench.run(bench.program("fresh", count, 10 * US, bulk), env).values


def hami_short_kernels(bench: Bench) -> Findings:
    """Measure queued kernels with HAMi-core."""
    return short_kernels(bench, HAMI)


def hami_patterns(bench: Bench) -> Findings:
    """Measure patterns with HAMi-core."""
    return patterns(bench, HAMI)


def hami_tenants(bench: Bench) -> Findings:
    """Measure two containers with HAMi-core."""
    return tenants(bench, HAMI)
