# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
import unittest
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List
from unittest import mock

import di_orchestrator as di
from di_orchestrator import jobs


class Problem(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Core:
    """The pods of a cluster with kubelets, which the tests on a real API server lack."""

    logs: Dict[str, Any] = {"job-a-0": "one\ntwo\n", "job-b-0": Problem(400)}

    def list_namespaced_pod(self, namespace: str, label_selector: str) -> Any:
        return SimpleNamespace(items=[SimpleNamespace(metadata=SimpleNamespace(name=name)) for name in self.logs])

    def read_namespaced_pod(self, name: str, namespace: str) -> Any:
        return SimpleNamespace(spec=SimpleNamespace(containers=[SimpleNamespace(name="sidecar"), SimpleNamespace(name="di-container")]))

    def read_namespaced_pod_log(self, name: str, namespace: str, container: str, **options: Any) -> Any:
        found = self.logs[name]
        if container != "di-container":
            raise AssertionError(container)
        if isinstance(found, Exception):
            raise found
        if not options.get("follow"):
            return found

        def stream() -> Iterator[bytes]:
            yield from (b"on", b"e\ntw", b"o\nlast \xff")

        return SimpleNamespace(stream=stream)


class Logs(unittest.TestCase):
    def setUp(self) -> None:
        self.jobs = object.__new__(di.Jobs)
        self.jobs.namespace = "rl"
        self.jobs._core = Core()
        self.jobs._objects = mock.Mock()
        self.jobs._objects.get_namespaced_custom_object.return_value = {"metadata": {"name": "job", "namespace": "rl"}, "spec": {}}

    def test_logs_are_those_of_main_containers_that_have_started(self) -> None:
        self.assertEqual(self.jobs.logs("job"), {"job-a-0": "one\ntwo\n"})

    def test_another_error_is_not_hidden(self) -> None:
        with mock.patch.dict(Core.logs, {"job-b-0": Problem(403)}), self.assertRaises(Problem):
            self.jobs.logs("job")

    def test_lines_are_followed_as_they_come(self) -> None:
        lines: List[str] = list(self.jobs.follow("job-a-0"))
        self.assertEqual(lines, ["one", "two", "last \ufffd"])


class Waiting(unittest.TestCase):
    def wait(self, *answers: Any) -> di.Job:
        found = object.__new__(di.Jobs)
        found.namespace = "rl"
        found._objects = mock.Mock()
        found._objects.get_namespaced_custom_object.side_effect = answers
        with mock.patch.object(jobs.time, "sleep"):
            return found.wait("job", timeout=60)

    def test_an_outage_of_the_api_server_is_waited_for(self) -> None:
        lost = type("MaxRetryError", (Exception,), {"__module__": "urllib3.exceptions"})("connection refused")
        done = {"metadata": {"name": "job", "namespace": "rl"}, "status": {"phase": "Succeeded"}}
        with self.assertLogs("di_orchestrator", "WARNING"):
            self.assertEqual(self.wait(lost, Problem(503), Problem(429), done).phase, "Succeeded")

    def test_a_job_that_does_not_exist_is_not_waited_for(self) -> None:
        for error in (Problem(404), Problem(403), ValueError()):
            with self.assertRaises(type(error)):
                self.wait(error)


class Missing(unittest.TestCase):
    def test_without_the_package_the_error_says_how_to_get_it(self) -> None:
        with mock.patch.dict(sys.modules, {"kubernetes": None}), self.assertRaisesRegex(di.OrchestratorError, "python3-kubernetes"):
            di.Jobs()


if __name__ == "__main__":
    unittest.main()
