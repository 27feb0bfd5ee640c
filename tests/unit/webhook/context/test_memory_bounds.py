"""Caches that reviews fill are bounded by bytes, not by entries alone."""

import gc
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from support.builders.admission_reviews import GPU, CoreLedger, WebhookService, pod, review, serving

from ledger.core.model import traits
from ledger.core.model.traits import Requirement
from ledger.kube.requests import pod_traits, quantities
from webhook.context.admission_settings import AdmissionSettings

JSON = {"content-type": "application/json"}
MIB = 1024**2
LABELS_BYTES = 1_000_000
KEPT_MAX = 2 * MIB
"""Bytes that reviews may leave behind; one cached review of the attack is half of it."""

WARM, ATTACK, LONG_ATTACK = 5, 15, 1_400
POLICY = AdmissionSettings(body_max=8 * MIB)

Send = Callable[[int], Awaitable[None]]


def wide_labels(number: int) -> dict[str, Any]:
    """Return a pod with a megabyte of labels, different for each number."""
    value = f"{number:08}" * 7
    return pod({GPU: "1"}, labels={f"k{index}": value for index in range(LABELS_BYTES // 64)})


def long_label(number: int) -> dict[str, Any]:
    """Return a pod with one label of a megabyte."""
    return pod({GPU: "1"}, labels={"tier": f"{number:08}" * (LABELS_BYTES // 8)})


def long_quantity(number: int) -> dict[str, Any]:
    """Return a pod whose processors are a text of a megabyte."""
    new_pod = pod({GPU: "1"})
    requests = {"cpu": f"{number:08}" * (LABELS_BYTES // 8)}
    new_pod["spec"]["containers"][0]["resources"]["requests"] = requests
    return new_pod


def long_annotation(number: int) -> dict[str, Any]:
    """Return a pod with an annotation of a megabyte that a placement reads."""
    return pod({GPU: "1"}, annotations={"nvidia.com/use-gputype": f"{number:08}" * 125_000})


def long_name(number: int) -> dict[str, Any]:
    """Return a pod with a priority class of a megabyte."""
    new_pod = pod({GPU: "1"})
    new_pod["spec"]["priorityClassName"] = f"{number:08}" * (LABELS_BYTES // 8)
    return new_pod


PODS = [wide_labels, long_label, long_quantity, long_annotation, long_name]


def denying() -> CoreLedger:
    """Return a ledger that denies every card and selects by labels and by priority."""
    ledger = CoreLedger()
    ledger.limit(cards=0, selects=(Requirement("tier", "NotIn", ("free",)),))
    return ledger


def dry_runs(service: WebhookService, of: Callable[[int], dict[str, Any]]) -> Send:
    """Return a function that posts a dry run of a pod of this kind."""

    async def send(number: int) -> None:
        body = json.dumps(review(of(number), dryRun=True)).encode()
        answer = await service.client.post("/admission/validate", content=body, headers=JSON)
        assert answer.status_code in (200, 400)
        assert answer.status_code == 400 or not answer.json()["response"]["allowed"]

    return send


def forgetting(ledger: CoreLedger) -> None:
    """Forget what the stand-in of the ledger remembers for tests."""
    ledger.submitted.clear()
    gc.collect()


async def allocated(send: Send, ledger: CoreLedger, first: int, last: int) -> int:
    """Return by how many bytes the objects in memory grow while dry runs are sent."""
    forgetting(ledger)
    before = tracemalloc.get_traced_memory()[0]
    for number in range(first, last):
        await send(number)
    forgetting(ledger)
    return tracemalloc.get_traced_memory()[0] - before


@pytest.mark.parametrize("of", PODS)
async def test_denied_dry_runs_of_a_megabyte_leave_nothing_behind(
    of: Callable[[int], dict[str, Any]],
) -> None:
    ledger = denying()
    async with serving(ledger, policy=POLICY) as service:
        send = dry_runs(service, of)
        tracemalloc.start()
        try:
            await allocated(send, ledger, 0, WARM)
            kept = await allocated(send, ledger, WARM, WARM + ATTACK)
        finally:
            tracemalloc.stop()
    assert kept < KEPT_MAX, f"{kept / MIB:.1f} MiB of {ATTACK} reviews are kept"


def test_a_long_text_is_judged_as_a_short_one_is() -> None:
    longest = traits.REMEMBERED_CHARACTERS_MAX
    wanted = (Requirement("tier", "In", ("gold",)),)
    for size in (1, longest - 20, longest, longest + 1, 10 * longest):
        assert traits.matches(wanted, (f"pad={'x' * size},tier=gold",))
        assert not traits.matches(wanted, (f"pad={'x' * size},tier=lead",))


def test_a_long_selection_is_judged_as_a_short_one_is() -> None:
    names = tuple(f"name-{index}" for index in range(traits.REMEMBERED_CHARACTERS_MAX))
    assert traits.matches((Requirement("name", "In", names),), (f"name={names[-1]}",))
    assert not traits.matches((Requirement("name", "In", names),), ("name=other",))


LABEL: Final = (Requirement("tier", "In", ("gold",)),)
TEXTS: Final[list[Callable[[int], tuple[traits.Selection, str]]]] = [
    lambda number: (LABEL, f"tier={number:08}{'x' * LABELS_BYTES}"),
    lambda number: (
        (Requirement("tier", "In", (f"{number:08}{'x' * LABELS_BYTES}",)),),
        "tier=gold",
    ),
]


@pytest.mark.parametrize("judge", [traits.matches, traits.is_read])
@pytest.mark.parametrize("of", TEXTS)
def test_long_texts_and_conditions_leave_nothing_behind(
    of: Callable[[int], tuple[traits.Selection, str]],
    judge: Callable[[traits.Selection, traits.Traits], bool],
) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(ATTACK):
            selection, text = of(number)
            judge(selection, (text,))
        del selection, text
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < LABELS_BYTES / 2


def test_texts_are_remembered_up_to_a_bound_of_bytes() -> None:
    """A letter takes 4 bytes at most; so do these caches, with as many entries as they hold."""
    judged = traits.REMEMBERED_CHARACTERS_MAX + traits.REMEMBERED_SELECTION_MAX
    assert 4 * judged * traits.REMEMBERED_MAX <= 64 * MIB
    assert 4 * quantities.LENGTH_MAX * quantities.REMEMBERED_MAX <= 2 * MIB


def test_a_quantity_that_is_too_long_is_not_remembered() -> None:
    pod_traits.is_positive_cached.cache_clear()
    assert pod_traits.is_positive("9" * (quantities.LENGTH_MAX + 1))
    assert pod_traits.is_positive_cached.cache_info().currsize == 0
    assert pod_traits.is_positive("1")
    assert pod_traits.is_positive_cached.cache_info().currsize == 1


@pytest.mark.long
async def test_the_process_does_not_grow_with_denied_dry_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger, sizes = denying(), []
    async with serving(ledger, policy=POLICY) as service:
        send = dry_runs(service, wide_labels)
        for number in range(LONG_ATTACK):
            await send(number)
            if not number % 200 or number == LONG_ATTACK - 1:
                forgetting(ledger)
                sizes.append(resident())
    with capsys.disabled():
        print(" MiB, ".join(f"{size / MIB:.1f}" for size in sizes), "MiB")
    assert sizes[-1] - sizes[1] < 24 * MIB, sizes


def resident() -> int:
    """Return the resident size of this process, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
