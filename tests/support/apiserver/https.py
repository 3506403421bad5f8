"""An HTTPS server of a test: a thread for each connection, every request written down, answered by whoever plays it."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from etcdfix.testing.certificates import CertificateAuthority
from tests.support.apiserver.answers import Answer
from tests.support.apiserver.requests import Request

TOKEN = "token-of-the-test-that-must-not-be-shown"

_POLL_SECONDS = 0.02


class Listener:
    """A server on loopback.

    Attributes:
        stopping: Set when it ends; who keeps a client waiting waits for it.
    """

    def __init__(
        self,
        authority: CertificateAuthority,
        answer: Callable[[Request], Answer | None],
        *,
        hosts: tuple[str, ...],
        expired: bool = False,
    ) -> None:
        self.stopping = threading.Event()
        self._authority = authority
        self._answer = answer
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_port
        self.url = f"https://127.0.0.1:{self.port}"
        files = authority.issue(f"api-{self.port}", hosts=hosts, expired=expired)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def kubeconfig(
        self, folder: Path, token: str = TOKEN, change: Callable[[dict[str, Any]], None] | None = None
    ) -> Path:
        """Write a kubeconfig for this server; ``change`` may alter it first. JSON is YAML."""
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": self.url, "certificate-authority": str(self._authority.cert)},
                }
            ],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        if change is not None:
            change(config)
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def stop(self) -> None:
        """End it; connections that are open are not waited for."""
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # headers and body in one piece: else each answer waits 40 ms for the client

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    self.command,
                    self.path,
                    self.rfile.read(length),
                    self.headers.get("Authorization"),
                    self.headers.get("Accept") or "application/json",
                    self.headers.get("Content-Type") or "",
                )
                answer = listener._answer(request)
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                for name, value in answer.headers:
                    self.send_header(name, value)
                if answer.lines is not None:
                    self._stream(answer)
                    return
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names that it calls

            def _stream(self, answer: Answer) -> None:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                assert answer.lines is not None
                for line in answer.lines:
                    if listener.stopping.is_set():
                        break
                    if not line:
                        time.sleep(_POLL_SECONDS)
                        continue
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            def handle(self) -> None:
                # A client that hangs up, or does not trust us, is part of the play.
                with contextlib.suppress(OSError):
                    super().handle()

            def log_message(self, *_arguments: object) -> None:
                return

        return Handler


class _Server(ThreadingHTTPServer):
    # A client may keep its connection, or stall; none is waited for.
    daemon_threads = True
    block_on_close = False
