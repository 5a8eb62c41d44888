# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""A job on this computer, for tests of training programs: `from di_orchestrator.testing import FakeJob`. Needs no cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

_LOCAL = "127.0.0.1"
_MAX_BODY = 1 << 20


class FakeJob:
    """A worker-led job, one of whose replicas is this process while the `with` block runs.

    who_am_i(), rendezvous(), Worker, Meter and report() find it in the environment. `reports` are those that were sent, and
    `replicas` the numbers of replicas by task, which Worker changes within `least` and `most` for `elastic`, by default the
    first task. preempt() sends this process SIGTERM, as Kubernetes does. There is one replica in fact: the others are only
    counted. Membership, coordinators and the allocator are not faked.
    """

    def __init__(
        self,
        name: str = "fake",
        *,
        replicas: Optional[Mapping[str, int]] = None,
        task: Optional[str] = None,
        index: int = 0,
        elastic: Optional[str] = None,
        least: int = 0,
        most: int = 1000,
        namespace: str = "default",
    ) -> None:
        self.name, self.namespace, self.index = name, namespace, index
        self.replicas: Dict[str, int] = dict(replicas or {"worker": 1})
        self.task = task or next(iter(self.replicas))
        self.elastic = elastic or next(iter(self.replicas))
        self.least, self.most = least, most
        self.reports: List[Mapping[str, Any]] = []
        for each in (self.task, self.elastic):
            if each not in self.replicas:
                raise ValueError(f"task is {each!r}: must be one of {', '.join(self.replicas)}")
        if not 0 <= index < self.replicas[self.task]:
            raise ValueError(f"index is {index}: must be from 0 to {self.replicas[self.task] - 1}")
        self._server: Optional[ThreadingHTTPServer] = None
        self._thread: Optional[threading.Thread] = None
        self._before: Dict[str, Optional[str]] = {}

    def preempt(self) -> None:
        """Send SIGTERM to this process, as when its pod is deleted."""
        os.kill(os.getpid(), signal.SIGTERM)

    def addresses(self, task: Optional[str] = None) -> List[str]:
        """Return the addresses of all replicas by rank, or of a task."""
        counts = self.replicas if task is None else {task: self.replicas[task]}
        return [f"{self.name}-{each}-{i}.di-{self.name}.{self.namespace}.svc" for each, count in counts.items() for i in range(count)]

    def __enter__(self) -> "FakeJob":
        self._server = ThreadingHTTPServer((_LOCAL, 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        for name, value in self._environ(self._server.server_address[1]).items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        for name, before in self._before.items():
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
        if self._server and self._thread:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _environ(self, port: int) -> Dict[str, str]:
        own = f"{self.name}-{self.task}-{self.index}"
        nodes = self.addresses()
        rank = next(i for i, address in enumerate(nodes) if address.split(".")[0] == own)
        with socket.socket() as free:
            free.bind((_LOCAL, 0))
            master = free.getsockname()[1]
        return {
            "DI_JOB_ID": f"{self.namespace}.{self.name}.0",
            "DI_SERVER_URL": f"http://{_LOCAL}:{port}",
            "DI_RANK": str(rank),
            "DI_NODES": ",".join(nodes),
            "DI_" + self.task.upper().replace("-", "_") + "_NODES": ",".join(self.addresses(self.task)),
            "HOSTNAME": own,
            # As with spec.clusterSpec [Torch]: the processes meet on this computer.
            "MASTER_ADDR": _LOCAL,
            "MASTER_PORT": str(master),
            "WORLD_SIZE": str(len(nodes)),
            "RANK": str(rank),
        }

    def _answer(self, method: str, what: str, body: Mapping[str, Any]) -> Tuple[int, str, Any]:
        """Return the status, the message and the data of di-server's answer."""
        if what == "profilings" and method == "POST":
            self.reports.append(body.get("data", {}))
            return 200, "reported", None
        if what != "replicas":
            return 404, f"{method} {what}: a FakeJob has no such thing", None
        if method != "GET":
            by = int(body.get("replicas", 0)) * (1 if method == "POST" else -1)
            before = self.replicas[self.elastic]
            self.replicas[self.elastic] = max(self.least, min(self.most, before + by))
            return 200, f"granted are {abs(self.replicas[self.elastic] - before)} of {abs(by)}", None
        return 200, "", [f"{_LOCAL}:{22270 + rank}" for rank, _ in enumerate(self.addresses())]


def _handler(job: FakeJob) -> Type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers as di-server does."""

        def _do(self) -> None:
            length = min(int(self.headers.get("Content-Length") or 0), _MAX_BODY)
            body = json.loads(self.rfile.read(length) or b"{}")
            what = self.path.split("?")[0].rpartition("/")[2]
            status, message, data = job._answer(self.command, what, body)
            content = json.dumps({"success": status == 200, "message": message, "data": data}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _do

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return Handler
