"""The page about kinds is complete, and its example is the tested one."""

import re

import pytest
from support.builders.kind_objects import BUILTIN, EXAMPLES, ROOT

from webhook.kinds.expression_functions import FUNCTIONS
from webhook.kinds.kind_schema import PodSet, WorkloadKind

PAGE = (ROOT / "docs" / "reference" / "kinds.md").read_text()


@pytest.mark.parametrize("kind", list(BUILTIN), ids=lambda kind: kind.name)
def test_every_kind_is_in_the_page(kind: WorkloadKind) -> None:
    assert f"| `{kind.name}` |" in PAGE


def test_every_field_is_in_the_page() -> None:
    for field in (*WorkloadKind.__struct_encode_fields__, "podSets"):
        assert f"`{field}`" in PAGE
    for field in PodSet.__struct_encode_fields__:
        assert f"| `podSets[].{field}` |" in PAGE


def test_every_function_is_in_the_page() -> None:
    for function in FUNCTIONS.values():
        assert f"`{function.usage}`" in PAGE


def test_the_example_of_the_page_is_the_file() -> None:
    examples = re.findall(r"<!-- example: (\S+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert examples
    for name, text in examples:
        assert text == (EXAMPLES / name).read_text()
