"""Properties of the webhooks: no bytes make them fail, and nothing but sense makes them allow."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.builders.admission_reviews import (
    CORES,
    GPU,
    MEMORY,
    CoreLedger,
    pod,
    recorded,
    review,
    serving,
)

from ledger.kube.requests.quantities import QuantityError, parse_integer
from webhook.context.admission_settings import AdmissionSettings

PERCENTAGE = "nvidia.com/gpumem-percentage"
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
QUANTITIES = st.integers() | st.text(max_size=20) | st.from_regex(r"-?[0-9]{1,20}(m|k|M|Gi|e3)?")
PATHS = st.sampled_from(["/admission/validate", "/admission/mutate"])


def places(thing: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a JSON value."""
    keys = range(len(thing)) if isinstance(thing, list) else thing
    ways = [(*way, key) for key in keys] if isinstance(thing, list | dict) else []
    return ways + [deeper for child in ways for deeper in places(thing[child[-1]], child)]


def is_whole(quantity: str | int) -> bool:
    """Return whether a quantity is a whole amount."""
    try:
        parse_integer(quantity)
    except QuantityError:
        return False
    return True


CREATION = review(pod({GPU: "1", MEMORY: "8k"}, annotations={"gpuledger.io/stamp": "a.1.b"}))
[(_, RESIZE)] = recorded("pod-resize", "validate")


async def status_of(path: str, body: bytes) -> int:
    """Post bytes and return the status; any status but 200 must have a reason."""
    async with serving(CoreLedger(), policy=AdmissionSettings(deadline=5)) as service:
        answer = await service.client.post(
            path, content=body, headers={"content-type": "application/json"}
        )
    if answer.status_code == 200:
        assert "response" in answer.json()
    else:
        assert answer.status_code == 400
        assert answer.json()["message"]
    return answer.status_code


@given(PATHS, st.binary(max_size=200))
async def test_no_bytes_make_the_webhook_fail(path: str, body: bytes) -> None:
    assert await status_of(path, body) == 400


@given(PATHS, VALUES)
async def test_no_json_makes_the_webhook_fail(path: str, value: Any) -> None:
    assert await status_of(path, json.dumps(value).encode()) == 400


@given(PATHS, st.sampled_from([CREATION, RESIZE]), st.data())
async def test_no_value_in_any_place_of_a_review_makes_the_webhook_fail(
    path: str, whole: dict[str, Any], data: st.DataObject
) -> None:
    broken = deepcopy(whole)
    *way, last = data.draw(st.sampled_from(places(broken)))
    target: Any = broken
    for step in way:
        target = target[step]
    target[last] = data.draw(VALUES)
    await status_of(path, json.dumps(broken).encode())


@given(PATHS, st.integers(0, 10_000), st.binary(min_size=1, max_size=3))
async def test_no_changed_bytes_make_the_webhook_fail(path: str, at: int, by: bytes) -> None:
    text = json.dumps(CREATION).encode()
    at %= len(text)
    await status_of(path, text[:at] + by + text[at + len(by) :])


@given(st.dictionaries(st.sampled_from([GPU, MEMORY, CORES, PERCENTAGE]), QUANTITIES))
async def test_what_is_allowed_is_charged_in_whole_amounts(limits: dict[str, Any]) -> None:
    ledger = CoreLedger()
    async with serving(ledger) as service:
        response = await service.post(review(pod(limits)))
    for command in ledger.commands():
        assert all(0 < amount <= 2**53 for amount in command.demand.values())
    if not all(map(is_whole, limits.values())):
        assert not response["allowed"]
