# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
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
        self.body: Any = None


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
        with mock.patch.dict(Core.logs, {"job-b-0": Problem(403)}), self.assertRaises(di.RefusedError):
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
        for error, want in ((Problem(404), di.NotFoundError), (Problem(403), di.RefusedError), (ValueError(), ValueError)):
            with self.assertRaises(want):
                self.wait(error)

    def test_a_failed_job_says_what_its_program_said(self) -> None:
        status = {
            "phase": "Failed",
            "conditions": [{"type": "Failed", "message": "pod job-learner-0 has failed (exit code 1)"}],
            "lastFailure": {"pod": "job-learner-0", "message": "flag provided but not defined: -learning-rat"},
        }
        with self.assertRaisesRegex(di.JobFailedError, "has failed .exit code 1.: flag provided but not defined: -learning-rat$"):
            self.wait({"metadata": {"name": "job", "namespace": "rl"}, "status": status})


class Answers(unittest.TestCase):
    def setUp(self) -> None:
        self.jobs = object.__new__(di.Jobs)
        self.jobs.namespace = "rl"
        self.jobs._objects = mock.Mock()
        self.jobs._api = mock.Mock()

    def answer(self, status: int, **body: Any) -> None:
        problem = Problem(status)
        problem.body = json.dumps({"kind": "Status", **body})
        self.jobs._objects.get_namespaced_custom_object.side_effect = problem
        self.jobs._objects.create_namespaced_custom_object.side_effect = problem

    def test_a_missing_job_is_not_found(self) -> None:
        self.answer(404, message='dijobs.diengine.opendilab.org "pong" not found')
        with self.assertRaisesRegex(di.NotFoundError, '^job rl/pong: .* not found$'):
            self.jobs.get("pong")

    def test_a_cluster_without_the_operator_says_so(self) -> None:
        problem = Problem(404)
        problem.body = "404 page not found"
        self.jobs._objects.list_namespaced_custom_object.side_effect = problem
        with self.assertRaisesRegex(di.NotFoundError, "is DI Orchestrator installed"):
            self.jobs.list()

    def test_what_is_refused_names_its_fields(self) -> None:
        causes = [
            {"field": "spec.tasks[0].type", "message": "Unsupported value"},
            {"field": "spec.backoffLimit", "message": "must be greater"},
        ]
        self.answer(422, message='DIJob "pong" is invalid', details={"causes": causes})
        with self.assertRaises(di.RefusedError) as refused:
            self.jobs.submit({"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "metadata": {"name": "pong"}})
        self.assertEqual(refused.exception.status, 422)
        self.assertEqual(refused.exception.fields, [("spec.tasks[0].type", "Unsupported value"), ("spec.backoffLimit", "must be greater")])
        want = "the API server refused a request about job rl/pong with status 422: DIJob \"pong\" is invalid"
        self.assertEqual(str(refused.exception), want)

    def test_a_job_prints_on_one_line(self) -> None:
        job = di.Job("pong", "rl", "Running", 3, 3, {"spec": {"tasks": ["x" * 4000]}})
        self.assertEqual(repr(job), "Job(name='pong', namespace='rl', phase='Running', replicas=3, ready_replicas=3)")

    def test_what_another_decides_is_not_scaled(self) -> None:
        collectors = [{"type": "learner"}, {"type": "collector"}]
        for spec, phase, want in (
            ({"lifecycle": "CoordinatorLed", "tasks": collectors}, "Running", "coordinator-led"),
            ({"preemptible": True, "tasks": collectors}, "Running", "the allocator decides"),
            ({"tasks": [{"type": "learner"}, {"type": "evaluator"}]}, "Running", "no task that can be resized"),
            ({"tasks": collectors, "elastic": {"task": "absent"}}, "Running", "no task that can be resized"),
            ({"tasks": collectors}, "Succeeded", "it has finished"),
            ({"tasks": collectors}, "Running", ""),
            ({"tasks": [{"type": "learner"}]}, "Running", ""),
            ({"tasks": collectors, "elastic": {"replicas": 5}}, "Running", "the total of 9 in its status.* set status.replicas to 6"),
            ({"tasks": collectors, "elastic": {"replicas": 4}}, "Running", ""),
        ):
            status = {"phase": phase, "replicas": 9, "scaling": {"specReplicas": {"learner": 1, "collector": 5}}}
            job = {"metadata": {"name": "pong", "namespace": "rl"}, "spec": spec, "status": status}
            self.jobs._objects.get_namespaced_custom_object.return_value = job
            self.jobs._api.reset_mock()
            if want:
                with self.assertRaisesRegex(di.RefusedError, want):
                    self.jobs.scale("pong", 5)
            else:
                self.jobs.scale("pong", 5)
            self.assertEqual(self.jobs._api.call_api.called, not want)


class Missing(unittest.TestCase):
    def test_without_the_package_the_error_says_how_to_get_it(self) -> None:
        with mock.patch.dict(sys.modules, {"kubernetes": None}), self.assertRaisesRegex(di.OrchestratorError, "python3-kubernetes"):
            di.Jobs()


if __name__ == "__main__":
    unittest.main()
