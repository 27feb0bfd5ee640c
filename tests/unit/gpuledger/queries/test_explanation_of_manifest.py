"""The input of the command `explain`."""

from pathlib import Path

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.queries.explanation_of_manifest import explain
from ledger.runtime.settings.settings import Settings

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BOMB, r"write \*a out"),
        ("a: &a [*a]", r"write \*a out"),
        ("[" * 5_000 + "]" * 5_000, "nested too deeply"),
        ("!!python/object/apply:os.system [id]", "neither JSON nor YAML"),
    ],
)
async def test_yaml_without_a_manifest_is_refused_with_its_file(
    content: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(content)
    with pytest.raises(CommandError, match=rf"pod\.yaml.*{said}") as stopped:
        await explain(Settings(store_dir=str(tmp_path)), str(file), "", "")
    assert stopped.value.status is Exit.USAGE
