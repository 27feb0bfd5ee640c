"""Interned values: bounded memory, and the same numbers however often the projector restarts."""

import random
from pathlib import Path

import pytest
from support.harness.projection_harness import digest_of, log_of, project, random_payloads

from projections.tables import interned_values
from projections.tables.interned_values import InternedValues


def test_values_of_an_earlier_epoch_get_new_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interned_values, "EPOCH", 4)
    values = InternedValues()
    assert [values.number(value, 1) for value in ("", "-", "a", "b", "a", "b")] == [
        0,
        1,
        2,
        3,
        2,
        3,
    ]
    assert [values.number(value, 2) for value in ("c", "a", "c", "", "-")] == [4, 5, 4, 0, 1]


async def test_projector_that_restarts_in_an_epoch_assigns_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interned_values, "EPOCH", 8)
    log, source = log_of(random_payloads(8, 300)), random.Random(8)
    whole, pieces = tmp_path / "whole.sqlite", tmp_path / "pieces.sqlite"
    await project(whole, log)
    last = (await log.extent()).last
    for stop in (*sorted(source.sample(range(1, last), 9)), last):
        await project(pieces, log, stop)
        assert await digest_of(pieces) == await digest_of(whole, stop)
