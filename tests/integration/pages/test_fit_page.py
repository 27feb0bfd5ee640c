"""Would it fit: a pasted manifest gets the answers of `gpuledger explain` and `gpuledger fit`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from support.browser import axe
from support.browser.chromium import Visit, visiting
from support.harness.command_line import gpuledger
from support.servers.page_process import page_process

pytestmark = pytest.mark.integration

WHERE = ("-n", "notebooks", "--cluster", "berlin")


def manifest(cards: int, memory: int, name: str = "new-pod") -> str:
    limits = {"nvidia.com/gpu": cards, "nvidia.com/gpumem": memory}
    container = {"name": "main", "image": "cuda:12", "resources": {"limits": limits}}
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return json.dumps({**pod, "spec": {"containers": [container]}})


@pytest.fixture
def visit(browser: Browser, day_pages: str) -> Iterator[Visit]:
    with visiting(browser, day_pages) as opened:
        opened.open("/page/fit")
        yield opened
        assert opened.complaints == []


def ask(visit: Visit, text: str, namespace: str) -> str:
    visit.page.locator("#fit-namespace").fill(namespace)
    visit.page.locator("#fit-manifest").fill(text)
    visit.page.get_by_role("button", name="Would it fit?").click()
    visit.page.wait_for_load_state()
    return visit.text()


def test_pod_that_fits_gets_the_nodes_of_the_command(visit: Visit, day_store: Path) -> None:
    text = manifest(1, 1_000)
    shown = ask(visit, text, "notebooks")
    done = gpuledger("fit", "-f", "-", *WHERE, store=day_store, stdin=text)
    assert done.status == 0, done
    assert "Allowed: there is room." in shown
    assert "allowed Allowed" not in shown
    assert "It fits." in shown
    assert "gpu-l4-2" in shown
    assert "gpu-l4-2" in done.out


def test_pod_over_its_quota_gets_the_sentence_of_the_denial(visit: Visit, day_store: Path) -> None:
    text = manifest(1, 20_000)
    shown = ask(visit, text, "notebooks")
    explained = gpuledger("explain", "-f", "-", *WHERE, store=day_store, stdin=text)
    sentence = "Pod new-pod would need 20000 MiB"
    assert sentence in explained.out + explained.err
    assert "Denied:" in shown
    assert sentence in shown


def test_pages_of_several_clusters_offer_a_choice(browser: Browser, day_store: Path) -> None:
    with page_process(day_store) as process, visiting(browser, process.origin) as opened:
        opened.open("/page/fit")
        assert axe.findings(opened.page) == []
        offered = opened.page.locator("#fit-cluster option").all_inner_texts()
        assert offered == ["berlin", "oslo"]
        opened.page.get_by_label("Cluster").select_option("oslo")
        shown = ask(opened, manifest(1, 1_000), "vision")
        assert "Answer for namespace vision of cluster oslo" in shown
        assert opened.page.locator("#fit-cluster").input_value() == "oslo"


def test_manifest_and_namespace_stay_in_the_form(visit: Visit) -> None:
    text = manifest(1, 1_000)
    ask(visit, text, "notebooks")
    assert visit.page.locator("#fit-manifest").input_value().strip() == text
    assert visit.page.locator("#fit-namespace").input_value() == "notebooks"


def test_answer_and_problem_are_seen_without_scrolling(visit: Visit) -> None:
    visit.resize(1_280, 720)
    for text in (manifest(1, 1_000), "{"):
        ask(visit, text, "notebooks")
        seen = visit.page.locator("#fit-answer, #fit-problem")
        box = seen.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 720
    visit.complaints[:] = [text for text in visit.complaints if "status of 4" not in text]


def test_answer_has_no_accessibility_findings(visit: Visit) -> None:
    ask(visit, manifest(1, 20_000), "notebooks")
    visit.resize(360)
    assert axe.findings(visit.page) == []
    assert visit.overflow() == []


@pytest.mark.parametrize("text", ["{", "kind: Pod", "a: [b", "<script>window.attacked=1</script>"])
def test_unreadable_manifest_is_refused_beside_the_form(visit: Visit, text: str) -> None:
    ask(visit, text, "notebooks")
    assert visit.page.get_by_role("alert").is_visible()
    assert visit.page.locator("#fit-manifest").input_value().strip() == text
    assert visit.page.evaluate("window.attacked") is None
    visit.complaints[:] = [text for text in visit.complaints if "status of 4" not in text]
