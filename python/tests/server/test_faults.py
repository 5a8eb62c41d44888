# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import http.client
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from unittest import mock

import di_orchestrator as di
from di_orchestrator import client
from world import WORLD, Pod, TestCase, eventually, trainer, workers


class Gateway(ThreadingHTTPServer):
    """A way to di-server that loses the next answers, after di-server has given them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Forward)
        self.losing = 0
        self.lost = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Forward(BaseHTTPRequestHandler):
    server: Gateway

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = http.client.HTTPConnection(urllib.parse.urlsplit(WORLD["url"]).netloc, timeout=60)
        try:
            server.request(self.command, self.path, body, dict(self.headers))
            response = server.getresponse()
            content = response.read()
        finally:
            server.close()
        self.close_connection = True
        if self.server.losing > 0:
            self.server.losing -= 1
            self.server.lost += 1
            return
        self.send_response(response.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *_: Any) -> None:
        pass


class LostAnswers(TestCase):
    def setUp(self) -> None:
        self.gateway = Gateway()
        thread = threading.Thread(target=self.gateway.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.gateway.server_close)
        self.addCleanup(self.gateway.shutdown)
        # The backoff has tests of its own.
        patched = mock.patch.object(client, "time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic))
        patched.start()
        self.addCleanup(patched.stop)

    def through(self, pod: Pod) -> di.Client:
        return di.Client(self.gateway.url, token_file=str(pod.folder / "token"))

    def test_a_coordinators_request_is_executed_once(self) -> None:
        self.submit("lost-led", trainer())
        pod = Pod("lost-led-coordinator")
        coordinator = di.Coordinator(pod.me, self.through(pod))
        self.gateway.losing = 2
        new = coordinator.post_replicas(3)
        self.assertEqual(coordinator.get_replicas(), new)
        self.gateway.losing = 2
        coordinator.post_replicas_failed(new.collectors[:1])
        self.assertEqual(len(coordinator.get_replicas().collectors), 3)
        self.gateway.losing = 2
        coordinator.delete_replicas(n_collectors=1)
        self.assertEqual(len(coordinator.get_replicas().collectors), 2)
        self.assertEqual(self.gateway.lost, 6)

    def test_a_workers_request_is_executed_once(self) -> None:
        self.submit("lost", workers(collectors=2, elastic={"task": "collector", "minReplicas": 0, "maxReplicas": 9}))
        pod = Pod("lost-learner-0")
        worker = di.Worker(pod.me, self.through(pod))
        for resize, total in ((lambda: worker.post_replicas(3), 6), (lambda: worker.delete_replicas(1), 5)):
            self.gateway.losing = 2
            resize()
            eventually(lambda: self.jobs.get("lost").replicas, lambda found: found == total)
        self.assertEqual(self.gateway.lost, 4)
