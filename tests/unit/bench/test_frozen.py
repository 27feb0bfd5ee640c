"""The frozen baselines answer as the stack of 75bd653, and use no HTTP module of the product."""

import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec

from tests.bench.frozen.permissive_webhook import permissive_webhook
from tests.bench.load.review_load import RECORDED

IMPORTED = (
    "import sys, tests.bench.frozen.permissive_webhook, tests.bench.frozen.permissive_extender;"
    "print(*(name for name in sys.modules if name.startswith('ledger.runtime.http')"
    " or name.split('.')[0] in ('webhook', 'extender')))"
)
"""A program that prints the modules of the product that serve HTTP or answer."""


def test_frozen_baselines_import_no_module_that_serves_or_answers() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == []


def test_frozen_webhook_allows_a_recorded_pod(tmp_path: Path) -> None:
    calls = msgspec.json.decode(RECORDED.read_bytes())["calls"]
    with permissive_webhook(tmp_path) as floor:
        context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.crt")
        for call in calls:
            request = urllib.request.Request(
                f"https://{floor.address}/admission/{call['webhook']}",
                msgspec.json.encode(call["review"]),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                response = msgspec.json.decode(answer.read())["response"]
            assert response == {"uid": call["review"]["request"]["uid"], "allowed": True}
        configurations = floor.configurations("floor", ["team-1"])
        assert [each["kind"] for each in configurations] == [
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        ]
        assert len(floor.configurations("floor", ["team-1"], mutating=False)) == 1
    assert floor.answered == len(calls)
