# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
import unittest
from datetime import datetime, timezone
from typing import Any, Tuple

import di_orchestrator as di
from di_orchestrator import history
from test_client import Server

PONG = {
    "name": "pong", "namespace": "rl", "uid": "1", "phase": "Failed", "reason": "OOMKilled",
    "created": "2026-03-01T12:00:00.123456789Z", "ended": "2026-03-01T12:10:00Z",
}  # fmt: skip


class Histories(unittest.TestCase):
    def serve(self, *answers: Any) -> Tuple[Server, di.History]:
        server = Server(*answers)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        read = di.History("https://localhost", "rl")
        read._client = history._Reader(f"http://127.0.0.1:{server.server_port}", token_file=None, deadline=5)
        return server, read

    def test_jobs_are_listed_page_by_page(self) -> None:
        server, read = self.serve((200, {"jobs": [PONG], "next": "n"}), (200, {"jobs": [dict(PONG, uid="2")]}))
        since = datetime(2026, 3, 1, tzinfo=timezone.utc)
        self.assertEqual([job.uid for job in read.list(phase="Failed", since=since)], ["1", "2"])
        first, second = (request[1] for request in server.requests)
        self.assertEqual(
            first, "/v1alpha1/history/jobs?namespace=rl&phase=Failed&limit=500&since=2026-03-01T00%3A00%3A00%2B00%3A00"
        )
        self.assertEqual(second, first + "&from=n")

    def test_a_job_has_times_and_all_that_is_recorded(self) -> None:
        server, read = self.serve((200, dict(PONG, restarts=[{"kind": "Restart"}])))
        job = read.show("pong", uid="1")
        self.assertEqual((job.name, job.phase, job.reason, job.started), ("pong", "Failed", "OOMKilled", None))
        self.assertEqual(job.created, datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=timezone.utc))
        self.assertEqual(job.object["restarts"], [{"kind": "Restart"}])
        self.assertEqual(server.requests[0][1], "/v1alpha1/history/jobs/rl/pong?uid=1")

    def test_curves_of_several_pages_are_joined(self) -> None:
        def page(value: float, **more: Any) -> Tuple[int, Any]:
            return 200, {"uid": "1", "series": [{"name": "reward", "points": [{"at": "1970-01-01T00:00:07.5Z", "value": value}]}], **more}

        server, read = self.serve(page(1, next="1970-01-01T00:00:08Z"), page(2))
        self.assertEqual(read.curves("pong"), {"reward": [(7.5, 1), (7.5, 2)]})
        self.assertEqual(server.requests[1][1], "/v1alpha1/history/jobs/rl/pong/series?uid=1&after=1970-01-01T00%3A00%3A08Z")

    def test_what_is_not_there_is_not_found(self) -> None:
        _, read = self.serve((404, {"kind": "Status", "message": 'dijobs "pong" not found'}))
        with self.assertRaisesRegex(di.NotFoundError, 'the history: dijobs "pong" not found'):
            read.show("pong")

    def test_a_refusal_says_why(self) -> None:
        _, read = self.serve((403, {"kind": "Status", "message": "you may not list them"}))
        with self.assertRaisesRegex(di.RefusedError, "the history refused the request with status 403: you may not list them"):
            next(read.list())

    def test_what_may_pass_is_repeated(self) -> None:
        server, read = self.serve((503, b"<html>"), (503, {"message": "try again later"}), (200, PONG))
        self.assertEqual(read.show("pong").uid, "1")
        self.assertEqual(len(server.requests), 3)

    def test_another_server_is_recognized(self) -> None:
        _, read = self.serve((404, b"<html>"))
        with self.assertRaisesRegex(di.OrchestratorError, "an answer that is not the history's: b'<html>'"):
            read.show("pong")

    def test_a_url_without_tls_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "url is 'di-history': must start with https://"):
            di.History("di-history", "rl")


if __name__ == "__main__":
    unittest.main()
