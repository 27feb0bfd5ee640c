"""The extender's answer to any body is one that the scheduler can parse, or a 400.

A 400 has a reason. No value in any place of a question makes it fail.
"""

import json
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.harness.extender_over_http import container, http_extender, listed, pod

from extender.scheduler_extender import ExtenderSettings

VERBS = ("filter", "select", "prioritize", "bind", "preempt")
NODES = ("n1", "n2", "nobody")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["n1", "16Gi", "-1", "100", "9" * 400, "binpack", "mutex,numa"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
BODIES = st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode())
_WISH = pod(
    "a",
    container(gpu=2, gpumem=100, gpucores=5),
    init=(container(gpu=1, gpumem=100, restart=True),),
    annotations={"nvidia.com/numa-bind": "true", "hami.io/gpu-scheduler-policy": "binpack"},
)
_NODE = {"metadata": {"name": "n1", "annotations": {"hami.io/node-nvidia-register": listed({})}}}
QUESTIONS: dict[str, Any] = {
    "filter": {"Pod": _WISH, "Nodes": {"items": [_NODE, _NODE]}, "NodeNames": ["n1", "n1", "n2"]},
    "select": {"Pod": _WISH, "Nodes": {"items": [_NODE]}, "NodeNames": None},
    "prioritize": {"Pod": _WISH, "Nodes": None, "NodeNames": ["n2", "n1", "n1", "nobody"]},
    "bind": {"PodName": "a", "PodNamespace": "team", "PodUID": "uid-a", "Node": "n1"},
    "preempt": {
        "Pod": _WISH,
        "NodeNameToVictims": {"n1": {"Pods": [_WISH], "NumPDBViolations": 1}},
        "NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": "uid-b"}], "NumPDBViolations": 0}},
    },
}


def places(thing: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a JSON value."""
    keys = range(len(thing)) if isinstance(thing, list) else thing
    ways = [(*way, key) for key in keys] if isinstance(thing, list | dict) else []
    return ways + [deeper for child in ways for deeper in places(thing[child[-1]], child)]


PLACES = [(verb, way) for verb, question in QUESTIONS.items() for way in places(question)]


def changed(verb: str, way: tuple[Any, ...], value: Any) -> Any:
    """Return the question of a verb with another value at a place."""
    question = deepcopy(QUESTIONS[verb])
    inside = question
    for key in way[:-1]:
        inside = inside[key]
    inside[way[-1]] = value
    return question


async def answered(posts: list[tuple[str, bytes]]) -> list[Any]:
    """Post bodies to one extender, and return the answers; None for a 400 with a reason."""
    answers = []
    async with http_extender(ExtenderSettings(bind_wait_seconds=0.0)) as site:
        for name in ("n1", "n2"):
            await site.announce(name, listed({"id": f"{name}-0"}, {"id": f"{name}-1"}))
        for verb, body in posts:
            answer = await site.client.post(
                f"/extender/{verb}", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code in (200, 400), answer.text
            if answer.status_code == 400:
                assert answer.json()["message"]
            answers.append(answer.json() if answer.status_code == 200 else None)
    return answers


def is_valid(verb: str, answer: Any) -> bool:
    """Return whether the scheduler's decoder would take this for an answer of the verb."""
    if verb == "bind":
        return set(answer) == {"Error"} and isinstance(answer["Error"], str)
    if verb == "prioritize":
        return all(isinstance(node["Host"], str) and 0 <= node["Score"] <= 10 for node in answer)
    if verb == "preempt":
        return set(answer) == {"NodeNameToMetaVictims"}
    reasons = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    return isinstance(answer["Error"], str) and all(
        isinstance(reason, str) for reason in reasons.values()
    )


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(VERBS), BODIES), min_size=20, max_size=20))
async def test_no_bytes_make_the_extender_fail(posts: list[tuple[str, bytes]]) -> None:
    for (verb, _), answer in zip(posts, await answered(posts), strict=True):
        assert answer is None or is_valid(verb, answer)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=20, max_size=20))
async def test_no_value_in_any_place_of_a_question_makes_the_extender_fail(changes: Any) -> None:
    verbs = [verb for (verb, _), _ in changes]
    bodies = [json.dumps(changed(verb, way, value)).encode() for (verb, way), value in changes]
    answers = await answered(list(zip(verbs, bodies, strict=True)))
    for verb, answer in zip(verbs, answers, strict=True):
        assert answer is None or is_valid(verb, answer)


async def test_ten_thousand_names_are_answered_each_once() -> None:
    names = [f"n{number}" for number in range(9_998)] + ["n1", "n1"]
    question = json.dumps({"Pod": _WISH, "NodeNames": names}).encode()
    [answer] = await answered([("filter", question)])
    refused = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    assert set(answer["NodeNames"]) | set(refused) == set(names)
    assert set(answer["NodeNames"]).isdisjoint(refused)


async def test_what_is_given_twice_is_answered_alike() -> None:
    both = {"Pod": _WISH, "Nodes": {"items": [_NODE]}, "NodeNames": ["n2"]}
    [answer] = await answered([("filter", json.dumps(both).encode())])
    assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == ["n1"]
    assert answer["NodeNames"] is None


async def test_a_pod_without_anything_is_not_ours() -> None:
    empty = {"Pod": {}, "NodeNames": list(NODES)}
    filtered, scored = await answered(
        [(verb, json.dumps(empty).encode()) for verb in ("filter", "prioritize")]
    )
    assert filtered["NodeNames"] == list(NODES)
    assert [node["Score"] for node in scored] == [0, 0, 0]
