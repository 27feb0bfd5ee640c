"""import-linter finds planted imports, and ARCHITECTURE.md lists its layers."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
SECONDS = 120

PLANTED = {
    "ledger/core/model/clock.py": "import datetime\n",
    "ledger/log/records.py": "def f():\n    import ledger.log.recovery\n",
    "webhook/api/reviews.py": "if TYPE_CHECKING:\n    import webhook.app\n",
    "webhook/unlisted.py": "",
    "extender/fit/planted.py": "import tests.support\n",
}
"""Files with imports that contracts forbid, and a module that is in no layer."""

REPORTED = [
    "ledger.core.model.clock -> datetime",
    "ledger.log.records -> ledger.log.recovery",
    "webhook.api.reviews -> webhook.app",
    "- webhook.unlisted",
    "extender.fit.planted -> tests",
]


def test_contracts_find_planted_imports(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in SETTINGS["root_packages"]:
        unread = shutil.ignore_patterns("build", "tests", "src", "__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=unread)
    for path, text in PLANTED.items():
        with (tmp_path / path).open("a") as file:
            file.write(f"\n{text}")
    command = "import sys; from importlinter.cli import lint_imports_command as c; c(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert [line for line in REPORTED if line not in done.stdout] == [], done.stdout + done.stderr


def test_architecture_page_lists_the_layers_of_each_contract() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text().replace(r"\|", "|")
    rows = [
        f"| `{container.replace('.', '/')}` | {' > '.join(contract['layers'])} |"
        for contract in SETTINGS["contracts"]
        for container in contract.get("containers", ())
    ]
    assert [row for row in rows if row not in page] == []
