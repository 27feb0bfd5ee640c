"""Another validating webhook that reviews after, or rather beside, gpuledger's.

The API server calls validating webhooks in parallel and sends none of them the others' answers;
so gpuledger has already allowed each request that this one refuses. It looks only at objects that
carry its label: `deny` refuses them, `wait` keeps them until the test opens the gate.
"""

import asyncio
import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

LABEL: Final = "e2e.gpuledger.io/later"
DENY: Final = {LABEL: "deny"}
WAIT: Final = {LABEL: "wait"}

NAME: Final = "later.e2e.gpuledger.io"
REFUSAL: Final = "the later webhook says no"
GATE_SECONDS: Final = 9.0


class SecondWebhook:
    """Serves from a thread of its own until `stop`; on loopback if no address is given."""

    def __init__(
        self, certificate: Path, key: Path, *, listen: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self.seen: dict[str, Any] = {}
        """The last object that came, as other webhooks had left it."""
        self._gate = threading.Event()
        self._waiting = threading.Semaphore(0)
        self._certificate = certificate
        self._server = _Server(self, listen, _tls(certificate, key))
        self._thread = threading.Thread(target=self._server.serve_forever, name="later webhook")
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self.open_gate()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def shut_gate(self) -> None:
        """Hold requests with the label `wait` from now on."""
        self._gate.clear()

    def open_gate(self) -> None:
        """Let all requests through."""
        self._gate.set()

    async def a_request_waits(self) -> None:
        """Return when a request has come to the gate, once per request."""
        came = await asyncio.to_thread(self._waiting.acquire, timeout=GATE_SECONDS)
        assert came, f"nobody came to the later webhook within {GATE_SECONDS:g} s"

    def configuration(self) -> dict[str, Any]:
        """Return the ValidatingWebhookConfiguration that puts this webhook in every pod's way."""
        authority = base64.b64encode(self._certificate.read_bytes()).decode()
        url = f"https://127.0.0.1:{self._server.server_port}/"
        return configuration({"url": url, "caBundle": authority})

    def review(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one AdmissionReview request."""
        self.seen = request["object"]
        wish = self.seen["metadata"]["labels"][LABEL]
        if wish == "wait":
            self._waiting.release()
            self._gate.wait(GATE_SECONDS)
        allowed = wish != "deny"
        status = {} if allowed else {"status": {"code": 403, "message": REFUSAL}}
        return {"uid": request["uid"], "allowed": allowed, **status}


def configuration(client: dict[str, Any]) -> dict[str, Any]:
    """Return the ValidatingWebhookConfiguration that asks a client configuration about pods."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": NAME,
                "clientConfig": client,
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "objectSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(
        self, webhook: SecondWebhook, listen: tuple[str, int], context: ssl.SSLContext
    ) -> None:
        super().__init__(listen, _Handler)
        self.webhook = webhook
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that goes away in mid-request is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        response = self.server.webhook.review(json.loads(body)["request"])
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        answer = json.dumps(review | {"response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Keep the test output clean."""


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
