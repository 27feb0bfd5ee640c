"""The language of expressions: its forms, and its errors of compiling and of evaluation."""

from typing import Any

import pytest

from ledger.core.model.denials import Reason
from webhook.kinds.expression_grammar import KindExpressionError
from webhook.kinds.expressions import COUNT_MAX, LENGTH_MAX, KindExpression
from webhook.kinds.object_values import ExpressionScope, InvalidObject

SPEC = {
    "replicas": 3,
    "percent": "25%",
    "on": True,
    "off": False,
    "none": None,
    "mode": "fast",
    "list": [5, 6],
    "map": {"a/b": 7},
    "half": 0.5,
    "giant": 10**4000,
}
STATUS = {"conditions": [{"type": "Done", "status": "True"}, {"type": "Bad", "status": "False"}]}

SCOPE = ExpressionScope(
    {"spec": SPEC, "status": STATUS, "item": {"n": 2}, "key": "Worker"}, "spec.groups[1]"
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("spec.replicas", 3),
        ("spec.replicas + 2 * 3 - 1", 8),
        ("(spec.replicas + 2) * 3", 15),
        ("- 1 + 3", 2),
        ("min(4, spec.replicas, 9)", 3),
        ("max(4, spec.replicas)", 4),
        ("default(spec.none, 8)", 8),
        ("default(spec.missing.deeper, 8)", 8),
        ("default(spec.replicas, spec.half)", 3),
        ("spec.list[1]", 6),
        ("default(spec.list[2], 0)", 0),
        ("spec.map['a/b']", 7),
        ("item.n", 2),
        ("1 if key == 'Worker' else 9", 1),
        ("1 if spec.on and not spec.off else 9", 1),
        ("1 if spec.off or spec.missing else 9", 9),
        ("1 if spec.replicas >= 3 and spec.replicas < 4 else 9", 1),
        ("1 if spec.replicas > 3 or spec.replicas <= 2 or spec.mode != 'fast' else 9", 9),
        ("1 if has(spec.mode) and not has(spec.none) else 9", 1),
        ("1 if condition('Done') and not condition('Bad') and not condition('Other') else 9", 1),
        ("1 if true and not false else 9", 1),
        ("portion(spec.percent, spec.replicas)", 1),
        ("portion_down(spec.percent, spec.replicas)", 0),
        ("portion(2, spec.replicas)", 2),
        ("portion('100%', 7)", 7),
        ("portion('0%', 7)", 0),
        ("indexes('1,3-5,7')", 5),
        ("indexes('')", 0),
        ("indexes(spec.missing)", 0),
        (4, 4),
    ],
)
def test_an_expression_comes_to_a_number(text: str | int, number: int) -> None:
    assert KindExpression(text).pods(SCOPE) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "1; 2",
        "1.5",
        "None",
        "b'1'",
        "replicas",
        "__import__('os')",
        "spec.replicas / 2",
        "spec.replicas ** 9",
        "spec.replicas // 2",
        "spec.replicas % 2",
        "1 < 2 < 3",
        "1 in spec.list",
        "~1",
        "+1",
        "[1]",
        "{}",
        "[n for n in spec.list]",
        "lambda: 1",
        "(n := 1)",
        "f'{spec}'",
        "spec.list[0:1]",
        "spec.list[1.5]",
        "spec.list[spec.replicas]",
        "spec.append(1)",
        "min(1)",
        "default(spec.replicas)",
        "default(spec.replicas, 1, instead=1)",
        "min(*spec.list, 1)",
        "sum(spec.list)",
        "true.real",
        "-" * 200 + "1",
        "(" * 300,
        "spec." + "a" * LENGTH_MAX,
        "\0",
    ],
)
def test_what_is_not_in_the_language_is_not_compiled(text: str) -> None:
    with pytest.raises(KindExpressionError):
        KindExpression(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("spec.missing", "spec.missing"),
        ("spec.mode", "spec.mode"),
        ("spec.half + 1", "spec.half"),
        ("spec.on * 2", "spec.on"),
        ("spec.giant * spec.giant", "spec.giant"),
        ("2 * default(spec.mode, 1)", "spec.mode"),
        ("item.missing", "spec.groups[1].missing"),
        ("1 if spec.mode else 2", "spec.mode"),
        ("portion(spec.mode, 3)", "spec.mode"),
        ("portion(spec.half, 3)", "spec.half"),
        ("portion('25%', spec.mode)", "spec.mode"),
        ("indexes(spec.mode)", "spec.mode"),
        ("indexes(spec.replicas)", "spec.replicas"),
        ("spec.replicas - 4", "spec.replicas"),
        ("0 if spec.off else spec.mode", "spec.mode"),
        (f"spec.replicas * {COUNT_MAX}", "spec.replicas"),
    ],
)
def test_what_cannot_be_calculated_names_its_field(text: str, field: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        KindExpression(text).pods(SCOPE)
    assert caught.value.denial.field == field
    assert caught.value.denial.reason == Reason.INVALID_COUNT
    assert field in caught.value.denial.remedy


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("item.n.deeper", "spec.groups[1].n"),
        ("spec.mode.deeper", "spec.mode"),
        ("spec.mode[0]", "spec.mode"),
        ("spec.list.first", "spec.list"),
    ],
)
def test_what_is_of_another_shape_names_its_field(text: str, field: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        KindExpression(text).pods(SCOPE)
    assert caught.value.denial.field == field
    assert caught.value.denial.reason == Reason.INVALID_REVIEW


@pytest.mark.parametrize("status", [None, [], "x", {"conditions": "x"}, {"conditions": [1]}])
def test_a_status_of_any_other_shape_has_no_conditions(status: Any) -> None:
    assert not KindExpression("condition('Done')").truth(ExpressionScope({"status": status}))


def test_missing_value_is_false_and_a_text_is_an_invalid_condition() -> None:
    assert not KindExpression("spec.missing").truth(SCOPE)
    assert KindExpression("spec.on").truth(SCOPE)
    with pytest.raises(InvalidObject, match=r"spec\.mode is fast and not true or false"):
        KindExpression("spec.mode").truth(SCOPE)


def test_the_names_of_an_expression_are_the_roots_of_its_paths() -> None:
    assert KindExpression("min(item.n, spec.replicas) * 2").names == {"item", "spec"}


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("metadata.annotations['a'] == 'b'", True),
        ("metadata['annotations'].a == 'b'", True),
        ("metadata.labels.a == 'b'", False),
        ("spec.annotations.a == 'b'", False),
    ],
)
def test_expression_has_whether_it_reads_annotations(text: str, reads: bool) -> None:
    assert KindExpression(text).reads_annotations is reads
