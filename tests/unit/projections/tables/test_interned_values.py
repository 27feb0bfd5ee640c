"""Interned values: bounded memory, and the same numbers however often the projector restarts."""

import random
import weakref
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


class Compared:
    """A value that is recognised by its id."""


def test_remembered_numbers_end_with_their_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interned_values, "EPOCH", 4)
    values, known = InternedValues(), Compared()
    values.remember(values.remembered, ("a",), (values.number("a", 1),), known)
    assert values.remembered == {("a",): ((2,), known)}
    before = values.remembered
    numbers = (values.number("b", 1), values.number("c", 1))
    assert numbers == (3, 4), "the second number begins an epoch"
    values.remember(before, ("b", "c"), numbers, known)
    assert values.remembered == {}


def test_a_value_lives_as_long_as_its_id_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interned_values, "REMEMBERED_MAX", 2)
    values, compared = InternedValues(), [Compared() for _ in range(3)]
    alive = [weakref.ref(value) for value in compared]
    for number in range(3):
        value = compared.pop(0)
        values.remember(values.remembered, (id(value),), (number,), value)
        del value
        assert len(values.remembered) <= 2
        assert alive[number]() is not None
    assert [value() is None for value in alive] == [True, True, False]
