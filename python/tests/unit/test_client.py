# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from unittest import mock

import di_orchestrator as di
from di_orchestrator import client

DONE = (200, {"success": True, "code": 0, "message": "done", "data": 7})
LATER = (200, {"success": False, "code": 1, "message": "suspended", "data": None}, ("Retry-After", "2"))
UNAVAILABLE = (503, LATER[1])


class Server(ThreadingHTTPServer):
    """A server that gives prepared answers, and remembers the requests."""

    daemon_threads = True

    def __init__(self, *answers: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.requests: List[Tuple[str, str, Dict[str, str], Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def handle_any(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(content) if content else None
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        if answer is None:
            self.close_connection = True
            return
        status, reply, *headers = answer
        encoded = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *_: Any) -> None:
        pass


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        self.waited: List[float] = []
        self.now = 0.0
        patched = mock.patch.multiple(client.time, sleep=self.sleep, monotonic=lambda: self.now)
        patched.start()
        self.addCleanup(patched.stop)

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds

    def serve(self, *answers: Any, token: Optional[str] = None) -> Tuple[Server, di.Client]:
        server = Server(*answers)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.token = Path(folder.name) / "token"
        if token is not None:
            self.token.write_text(token, encoding="utf-8")
        return server, di.Client(f"127.0.0.1:{server.server_port}", token_file=str(self.token))

    def test_a_call_has_the_token_the_body_and_the_key(self) -> None:
        server, calls = self.serve(DONE, token="secret\n")
        self.assertEqual(calls.call("POST", "/path", query={"a": "b c"}, body={"x": 1}, key="k"), di.Answer("done", 7))
        method, path, headers, body = server.requests[0]
        self.assertEqual((method, path, body), ("POST", "/path?a=b+c", {"x": 1}))
        self.assertEqual((headers["Authorization"], headers["Idempotency-Key"]), ("Bearer secret", "k"))

    def test_without_a_token_file_no_token_is_sent(self) -> None:
        server, calls = self.serve(DONE)
        calls.call("GET", "/path")
        self.assertNotIn("Authorization", server.requests[0][2])

    def test_what_may_pass_is_repeated_with_the_same_key(self) -> None:
        server, calls = self.serve(LATER, (503, b"<html>"), (429, LATER[1]), (502, b""), None, DONE)
        self.assertEqual(calls.call("POST", "/path", body={}, key="k").data, 7)
        self.assertEqual([request[2]["Idempotency-Key"] for request in server.requests], ["k"] * 6)

    def test_a_retry_waits_as_long_as_the_server_says(self) -> None:
        _, calls = self.serve(LATER, (503, b"", ("Retry-After", "7")), DONE)
        calls.call("GET", "/path")
        self.assertEqual(self.waited, [2, 7])

    def test_the_backoff_grows_to_a_bound(self) -> None:
        _, calls = self.serve(*[UNAVAILABLE] * 10, DONE)
        calls.call("GET", "/path")
        for waited, expected in zip(self.waited, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15, 15]):
            self.assertAlmostEqual(waited, expected, delta=0.25 * expected)

    def test_the_deadline_ends_the_retries_with_the_last_reason(self) -> None:
        _, calls = self.serve(LATER)
        with self.assertRaisesRegex(di.UnansweredError, "GET /path has no answer of di-server after 20 seconds: suspended"):
            calls.call("GET", "/path", deadline=20)
        self.assertLess(self.now, 20)

    def test_a_server_that_is_not_there_is_tried_until_the_deadline(self) -> None:
        server, _ = self.serve(DONE)
        with self.assertRaisesRegex(di.UnansweredError, "ConnectionRefusedError"):
            di.Client("127.0.0.1:1", token_file=None, deadline=10).call("GET", "/path")
        self.assertEqual(server.requests, [])

    def test_a_refusal_is_not_repeated(self) -> None:
        for status in (400, 403, 404, 409, 501):
            server, calls = self.serve((status, {"success": False, "code": 1, "message": "wrong field", "data": None}))
            with self.assertRaises(di.RefusedError) as refused:
                calls.call("POST", "/path", body={})
            self.assertEqual((refused.exception.status, refused.exception.message), (status, "wrong field"))
            self.assertEqual(len(server.requests), 1)

    def test_what_a_policy_denies_is_not_repeated(self) -> None:
        server, calls = self.serve(LATER[:2])
        with self.assertRaises(di.RefusedError) as refused:
            calls.call("POST", "/path", body={})
        self.assertEqual((refused.exception.status, refused.exception.message), (200, "suspended"))
        self.assertEqual(len(server.requests), 1)

    def test_an_unknown_caller_tries_once_more(self) -> None:
        refusal = (401, {"success": False, "code": 1, "message": "no token", "data": None})
        server, calls = self.serve(refusal, DONE)
        self.assertEqual(calls.call("GET", "/path").data, 7)
        server, calls = self.serve(refusal)
        with self.assertRaises(di.RefusedError):
            calls.call("GET", "/path")
        self.assertEqual(len(server.requests), 2)

    def test_an_answer_of_another_server_is_an_error(self) -> None:
        for answer in ((200, b"<html>"), (200, {"kind": "Status"}), (404, b"not found")):
            _, calls = self.serve(answer)
            with self.assertRaisesRegex(di.OrchestratorError, "not di-server's"):
                calls.call("GET", "/path")

    def test_a_report_does_not_stop_a_training(self) -> None:
        me = di.who_am_i({"DI_JOB_ID": "n.j.0", "DI_RANK": "0", "DI_NODES": "j-a-0.di-j", "DI_SERVER_URL": "unused"})
        for answer in (LATER, LATER[:2]):
            _, calls = self.serve(answer)
            with self.assertLogs("di_orchestrator", "WARNING"):
                self.assertFalse(di.report(progress=di.Progress(1), to=di.Worker(me, calls)))

    def test_a_url_that_is_none_is_refused(self) -> None:
        for url in ("", "http://", "ftp://di-server"):
            with self.assertRaisesRegex(ValueError, "must be host:port"):
                di.Client(url)


if __name__ == "__main__":
    unittest.main()
