"""A pseudonym is the same for a name and a key, and holds nothing else."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.wiring.user_pseudonyms import PREFIX, pseudonym

KEY, OTHER = b"k" * 32, b"o" * 32


def test_a_pseudonym_is_the_documented_hmac() -> None:
    digest = hmac.new(KEY, "jürgen".encode(), hashlib.sha256).hexdigest()
    assert pseudonym(KEY, "jürgen") == f"pseudonym-{digest[:32]}"


@given(st.text(min_size=1), st.text(min_size=1))
def test_names_have_one_pseudonym_each(name: str, other: str) -> None:
    assert (pseudonym(KEY, name) == pseudonym(KEY, other)) == (name == other)


def test_another_key_gives_another_pseudonym() -> None:
    assert pseudonym(KEY, "ada") != pseudonym(OTHER, "ada")


@pytest.mark.parametrize("name", ["", "system:serviceaccount:a:b", "system:node:n"])
def test_name_of_a_component_stays_readable(name: str) -> None:
    assert pseudonym(KEY, name) == name


def test_pseudonym_is_distinguishable_from_a_name() -> None:
    assert pseudonym(KEY, "ada").startswith(PREFIX)
    assert "ada" not in pseudonym(KEY, "ada")
