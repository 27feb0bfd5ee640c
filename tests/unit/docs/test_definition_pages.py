"""The pages about our own objects name every field that their definitions have."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]


def fields_of(definition: str) -> dict[str, object]:
    """Return the fields of the spec that a definition in `deploy/crds` has."""
    crd = yaml.safe_load((ROOT / "deploy" / "crds" / definition).read_text())
    [version] = crd["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert isinstance(fields, dict)
    return fields


@pytest.mark.parametrize(
    ("definition", "page"),
    [("ledgerpolicies.yaml", "policy.md"), ("universeresourcequotas.yaml", "universe.md")],
)
def test_every_field_of_a_spec_is_in_its_page(definition: str, page: str) -> None:
    text = (ROOT / "docs" / "reference" / page).read_text()
    assert [field for field in fields_of(definition) if f"`{field}" not in text] == []


def test_the_page_about_policies_names_every_choice_with_the_default_first() -> None:
    text = (ROOT / "docs" / "reference" / "policy.md").read_text()
    for name, field in fields_of("ledgerpolicies.yaml").items():
        assert isinstance(field, dict)
        if "enum" in field:
            others = [choice for choice in field["enum"] if choice != field["default"]]
            values = ", ".join(f"`{choice}`" for choice in (field["default"], *others))
            assert f"| `{name}` | {values} |" in text
