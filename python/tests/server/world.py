# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The cluster of test/python: a real API server, operator and di-server, and pods that a test plays."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar

T = TypeVar("T")

WORLD = json.loads(Path(os.environ["DI_TEST_WORLD"]).read_text(encoding="utf-8"))
os.environ["KUBECONFIG"] = WORLD["kubeconfig"]
# The tests of CI run without the package.
if importlib.util.find_spec("kubernetes") is None:
    sys.path.append(str(Path(__file__).resolve().parent.parent / "standin"))

import di_orchestrator as di  # noqa: E402

#: A loaded machine takes many times as long as a free one.
PATIENCE = 120.0


def eventually(read: Callable[[], T], until: Callable[[T], Any] = bool) -> T:
    """Return the first value that fits."""
    end = time.monotonic() + PATIENCE
    while True:
        value = read()
        if until(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f"is still {value!r}")
        time.sleep(0.05)


class Pod:
    """A running pod of a job."""

    def __init__(self, name: str) -> None:
        self.folder = Path(WORLD["pods"]) / name
        self.environ: Dict[str, str] = json.loads(eventually(self._read))

    def _read(self) -> str:
        file = self.folder / "env.json"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    @property
    def me(self) -> di.Identity:
        return di.who_am_i(self.environ)

    def client(self, **options: Any) -> di.Client:
        return di.Client(self.me.server_url, token_file=str(self.folder / "token"), **options)

    def worker(self, **options: Any) -> di.Worker:
        return di.Worker(self.me, self.client(**options))

    def coordinator(self, **options: Any) -> di.Coordinator:
        return di.Coordinator(self.me, self.client(**options))

    def exit(self, code: int) -> None:
        (self.folder / "exit").write_text(str(code), encoding="utf-8")


class TestCase(unittest.TestCase):
    """A test with jobs of its own."""

    maxDiff = None
    jobs = di.Jobs()

    def submit(self, name: str, spec: Dict[str, Any]) -> di.Job:
        self.addCleanup(self.jobs.delete, name)
        return self.jobs.submit(manifest(name, spec))


def manifest(name: str, spec: Dict[str, Any]) -> Dict[str, Any]:
    return {"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "metadata": {"name": name}, "spec": spec}


def task(kind: str, replicas: Optional[int] = None, **fields: Any) -> Dict[str, Any]:
    template = {"spec": {"containers": [{"name": "di-container", "image": "di"}]}}
    counted = {} if replicas is None else {"replicas": replicas}
    return {"type": kind, "template": template, **counted, **fields}


def trainer() -> Dict[str, Any]:
    """Return the spec of a coordinator-led job."""
    return {"lifecycle": "CoordinatorLed", "tasks": [task("coordinator"), task("collector"), task("learner")]}


def workers(collectors: int = 2, **fields: Any) -> Dict[str, Any]:
    """Return the spec of a worker-led job."""
    return {"tasks": [task("learner", 1), task("collector", collectors)], **fields}


def names(urls: List[str]) -> List[str]:
    return [url.split(".")[0] for url in urls]
