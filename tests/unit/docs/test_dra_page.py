"""The page about Dynamic Resource Allocation has the built-in drivers, and a file that is valid."""

import re
from pathlib import Path
from typing import Final

import yaml

from ledger.kube.resource_claims.device_classes import class_mapping

PAGE: Final = (Path(__file__).parents[3] / "docs" / "how-to" / "dra.md").read_text()
ROW: Final = re.compile(r"^\| `([a-z0-9.-]+)` \| `([a-z]+)` \|$", re.MULTILINE)
BLOCK: Final = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def test_the_page_has_the_built_in_drivers() -> None:
    drivers = {(driver.driver, driver.vendor) for driver in class_mapping().drivers}
    assert set(ROW.findall(PAGE)) == drivers


def test_the_file_of_device_classes_on_the_page_is_valid(tmp_path: Path) -> None:
    [file] = [block for block in BLOCK.findall(PAGE) if block.startswith("drivers:")]
    path = tmp_path / "classes.yaml"
    path.write_text(file)
    mapping = class_mapping(path)
    assert mapping.by_driver["gpu.example.com"].vendor == "nvidia"
    assert "any-gpu" in mapping.by_class
    assert "nic.example.com" in mapping.other_drivers


def test_the_template_on_the_page_has_the_requests_of_a_claim() -> None:
    [objects] = [block for block in BLOCK.findall(PAGE) if "ResourceClaimTemplate" in block]
    kinds = {each["kind"]: each for each in yaml.safe_load_all(objects)}
    [request] = kinds["ResourceClaimTemplate"]["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"memory": "7500Mi"}
    used = kinds["Deployment"]["spec"]["template"]["spec"]["resourceClaims"]
    assert (
        used[0]["resourceClaimTemplateName"] == kinds["ResourceClaimTemplate"]["metadata"]["name"]
    )
