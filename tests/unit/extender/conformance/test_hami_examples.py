"""Examples with HAMi's behaviour give the expected answers of the extender over HTTP."""

import msgspec
import pytest
from support.recorded.hami_cases import cases
from support.recorded.hami_examples import EXPECTED, Asking, Example, run

EXAMPLES = [
    pytest.param(example, id=f"{case.id}-{number}")
    for case in cases()
    for number, example in enumerate(case.examples, 1)
]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_what_is_expected_comes_out(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {name: answer for name in EXPECTED if (answer := getattr(example, name)) is not None}
    assert expected, "an example expects something"
    assert await run(example, monkeypatch) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"given": "GPU-0,NVIDIA,1001,0:;"},
        {"cards_given": ["GPU-1"]},
        {"carries": {"hami.io/vgpu-node": "n2"}},
        {"reason": "1/1 CardNotHealthy"},
        {"fits": []},
        {"best": []},
        {"charged": {"gpu": 2, "gpumem": 1000}},
        {"denied": "InvalidQuantity"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_an_example_that_expects_something_else_fails(
    wrong: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = Asking(containers=[{"gpu": 1, "gpumem": 1000}])
    fields = {"pod": pod, "nodes": {"n1": [{}]}, **wrong}
    example = msgspec.convert(msgspec.to_builtins(fields), Example)
    assert await run(example, monkeypatch) != wrong
