"""Working day: a day of six teams in two clusters, for pages, commands and their screenshots.

The day has 24 hours and ends with its last record. Deployments follow the visitors, notebooks the
office hours, Jobs the night. There are denials for several reasons, corrections of drift, a resized
pod, a quota that was lowered below its use, a card that failed and one that was lost.
"""

from typing import Final

import msgspec
from support.page_data import day_cluster
from support.page_data.day_cluster import A100_NODES, L4_NODES, OSLO_NODES, cards_of
from support.page_data.day_workloads import (
    CORES,
    GPU,
    MEMORY,
    WATCH,
    Pods,
    PodShape,
    Root,
    uid_of,
)
from support.page_data.decided_day import HOUR, DecidedDay

from ledger.core.model import commands
from ledger.core.model.cards import Part, Phase, Share

HOURS: Final = 24
SMALL_HOURS: Final = 0.01


class DayLog(msgspec.Struct, frozen=True):
    """The records of a log and the denials beside it, as both are stored."""

    payloads: list[bytes]
    denials: list[bytes]


def working_day(end: int) -> DayLog:
    """Return the log of the day that ends at `end`, in µs of Unix time."""
    day = DecidedDay(end - HOURS * HOUR)
    day.at(0, day_cluster.set_up, day)
    for team in (_vision, _speech, _search, _notebooks, _robotics, _nightly, _oslo, _faults):
        team(day)
    day.run()
    return DayLog(day.payloads, day.denials)


def _vision(day: DecidedDay) -> None:
    shape = PodShape(A100_NODES, 20_000, 25)
    detector = Root(day, "berlin/vision", "detector", shape, "ada@example.com", kind="Deployment")
    segmenter = Root(
        day,
        "berlin/vision",
        "segmenter",
        PodShape(A100_NODES, 40_000, 50),
        "ada@example.com",
        kind="Deployment",
    )
    whole = PodShape(A100_NODES, 81_920, 100, cards=4, whole=True)
    resnet = Root(day, "berlin/vision", "train-resnet", whole, "grace@example.com", kind="Job")
    large = PodShape(A100_NODES, 81_920, 100, cards=8, whole=True)
    giant = Root(day, "berlin/vision", "train-vit-huge", large, "grace@example.com", kind="Job")
    day.at(0.2, detector.scale, 3)
    day.at(0.3, segmenter.scale, 2)
    day.at(1.0, resnet.scale, 1)
    day.at(14.5, resnet.delete, "finished")
    day.at(16.0, giant.scale, 2)
    day.at(16.1, giant.scale, 1)
    day.at(17.2, detector.scale, 5)
    vit = Root(day, "berlin/vision", "train-vit", whole, "grace@example.com", kind="Job")
    day.at(18.0, vit.scale, 1)


def _speech(day: DecidedDay) -> None:
    shape = PodShape(L4_NODES, 8_000, 30)
    asr = Root(day, "berlin/speech", "asr", shape, "alan@example.com", kind="Deployment")
    day.at(0.1, asr.scale, 5)
    day.at(7.5, asr.scale, 7)
    for number in range(9):
        # An autoscaler tries again and again, because it does not read the quota.
        day.at(9.2 + number * 1.55, asr.scale, 9)
    batch = Root(day, "berlin/speech", "transcribe", shape, "alan@example.com", kind="Job")
    day.at(12.4, batch.scale, 12)
    day.at(20.2, batch.scale, 2)


def _search(day: DecidedDay) -> None:
    shape = PodShape(L4_NODES, 4_000, 20, spread=True)
    ranker = Root(day, "berlin/search", "ranker", shape, "hpa-controller", kind="Deployment")
    visitors = (2, 2, 2, 2, 3, 3, 4, 6, 8, 9, 9, 8, 7, 8, 9, 10, 10, 9, 7, 6, 5, 4, 3, 4)
    for hour, replicas in enumerate(visitors):
        day.at(hour + 0.4, ranker.scale, replicas)


def _notebooks(day: DecidedDay) -> None:
    people = ("mia", "noah", "emma", "liam", "zoe", "finn", "lea", "ben", "ida", "paul", "eva")
    for number, person in enumerate(people):
        memory = (3_000, 5_500, 7_000, 9_500)[number % 4]
        shape = PodShape(L4_NODES, memory, 10, spread=True)
        pods = Pods(day, "berlin/notebooks", shape, f"{person}@example.com")
        name = f"jupyter-{person}"
        came = 7.6 + number * 0.37
        day.at(came, pods.create, name)
        if number % 3:
            day.at(came + 7 + number % 5, pods.delete, name)
        day.at(came + 12, pods.create, f"{name}-2")
    greedy = Pods(day, "berlin/notebooks", PodShape(L4_NODES, 22_000), "max@example.com")
    for number in range(4):
        day.at(15.1 + number * 0.02, greedy.create, "jupyter-max")


def _robotics(day: DecidedDay) -> None:
    shape = PodShape(A100_NODES, 30_000, 20)
    sim = Root(day, "berlin/robotics", "simulator", shape, "rosa@example.com", kind="StatefulSet")
    day.at(0.5, sim.scale, 3)
    day.at(19.0, day_cluster.limits, day, "berlin/robotics", {GPU: 6, MEMORY: 80_000})
    day.at(21.0, sim.scale, 4)

    def resize() -> None:
        name, uid = next(iter(sim.pods.alive.items()))
        placed = day.state.namespaces["berlin/robotics"].placed[f"pods/{name}"]
        (part,) = placed.parts
        share = msgspec.structs.replace(part.shares[0], memory=24_000)
        parts = (Part(part.container, part.phase, (share,)),)
        day.do(
            commands.Resize(
                "berlin/robotics",
                f"pods/{name}",
                uid,
                parts,
                {MEMORY: 24_000},
                actor="rosa@example.com",
            )
        )

    day.at(11.0, resize)


def _nightly(day: DecidedDay) -> None:
    shape = PodShape((*A100_NODES, *L4_NODES), 20_000, 40)
    for number in range(8):
        job = Root(
            day, "berlin/nightly", f"evaluate-{number}", shape, "cron@example.com", kind="Job"
        )
        started = number * 0.45 if number < 5 else 22.3 + (number - 5) * 0.5
        pods = 2 + number % 3
        day.at(started + 0.6, job.scale, pods)
        if number < 5:
            day.at(started + 3.1, job.delete, "finished")


def _oslo(day: DecidedDay) -> None:
    shape = PodShape(OSLO_NODES, 40_000, 40)
    tracker = Root(day, "oslo/vision", "tracker", shape, "olav@example.com", kind="Deployment")
    day.at(0.7, tracker.scale, 2)
    day.at(10.5, tracker.scale, 4)
    day.at(18.4, tracker.scale, 8)
    whole = PodShape(OSLO_NODES, 81_920, 100, whole=True)
    model = Root(day, "oslo/climate", "downscale", whole, "ingrid@example.com", kind="Job")
    day.at(2.0, model.scale, 2)
    day.at(13.0, model.delete, "finished")
    late = Root(day, "oslo/climate", "hindcast", whole, "ingrid@example.com", kind="Job")
    day.at(19.3, late.scale, 3)
    day.at(19.9, late.scale, 6)


def _faults(day: DecidedDay) -> None:
    """Let cards fail, and objects pass by the reviews."""
    second, (busy, idle) = A100_NODES[1], L4_NODES
    day.at(17.8, day_cluster.announce, day, second, cards_of(second, unhealthy=5))
    day.at(20.6, day_cluster.announce, day, idle, cards_of(idle, cordoned=6))
    day.at(22.8, day_cluster.announce, day, busy, cards_of(busy, lost=2))

    def bypass() -> None:
        uid, demand = uid_of("manual"), {GPU: 1, MEMORY: 12_000, CORES: 10}
        pod = ("berlin/robotics", "pods/manual-debug", uid)
        day.do(commands.Observe(*pod, day.number(), demand, WATCH))
        share = Share(f"GPU-berlin-gpu-l4-2-{3:012x}", 12_000, 10)
        parts = (Part("debug", Phase.APP, (share,)),)
        day.do(commands.Place(*pod, idle, parts, seen=True, actor=WATCH))

    def lost() -> None:
        uid, demand = uid_of("lost"), {GPU: 1, MEMORY: 3_000}
        pod = ("berlin/notebooks", "pods/jupyter-left", uid)
        day.do(commands.Reserve(*pod, demand, owner="kim", actor="kim@example.com"))
        day.do(commands.Observe(*pod, day.number(), demand, WATCH))

    def recount() -> None:
        pod = ("berlin/notebooks", "pods/jupyter-left", uid_of("lost"))
        day.do(commands.End(*pod, day.number(), "deleted", "recount"))

    def pending() -> None:
        pod = ("berlin/nightly", "pods/warm-up", uid_of("pending"))
        demand = {GPU: 1, MEMORY: 4_000, CORES: 10}
        day.do(commands.Reserve(*pod, demand, owner="cron", actor="cron@example.com"))

    day.at(9.7, bypass)
    day.at(8.9, lost)
    day.at(12.3, recount)
    day.at(HOURS - SMALL_HOURS, pending)
