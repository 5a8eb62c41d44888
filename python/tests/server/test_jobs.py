# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import di_orchestrator as di
from world import WORLD, Pod, TestCase, eventually, manifest, task, trainer, workers


class Users(TestCase):
    def test_a_job_is_submitted_followed_and_deleted(self) -> None:
        job = self.submit("user", workers(collectors=1))
        self.assertEqual((job.name, job.namespace), ("user", WORLD["namespace"]))
        running = eventually(lambda: self.jobs.get("user"), lambda job: job.phase == "Running")
        self.assertEqual((running.replicas, running.ready_replicas), (2, 2))
        self.assertIn("user", [job.name for job in self.jobs.list()])
        self.assertEqual(self.jobs.pods("user"), ["user-collector-0", "user-learner-0"])
        self.assertEqual(self.jobs.pods("user", task="learner"), ["user-learner-0"])
        for pod in ("user-collector-0", "user-learner-0"):
            Pod(pod).exit(0)
        self.assertEqual(self.jobs.wait("user", timeout=60, interval=0.1).phase, "Succeeded")
        self.jobs.delete("user")
        self.jobs.delete("user")
        eventually(lambda: "user" not in [job.name for job in self.jobs.list()])

    def test_a_failed_job_says_why(self) -> None:
        self.submit("failing", {"backoffLimit": 0, "tasks": [task("learner", 1)]})
        Pod("failing-learner-0").exit(3)
        with self.assertRaisesRegex(di.JobFailedError, "job python/failing has failed: .+") as failed:
            self.jobs.wait("failing", timeout=60, interval=0.1)
        self.assertEqual(failed.exception.job["status"]["phase"], "Failed")

    def test_waiting_ends(self) -> None:
        self.submit("waiting", workers())
        with self.assertRaisesRegex(TimeoutError, "job python/waiting is .* after 0.2 seconds"):
            self.jobs.wait("waiting", timeout=0.2, interval=0.05)

    def test_a_job_is_scaled_suspended_and_resumed(self) -> None:
        self.submit("scaled", workers(collectors=1, elastic={"task": "collector", "replicas": 1}))
        Pod("scaled-collector-0")
        self.jobs.scale("scaled", 2)
        Pod("scaled-collector-1")
        self.jobs.suspend("scaled")
        eventually(lambda: not self.jobs.pods("scaled"))
        self.jobs.suspend("scaled", False)
        eventually(lambda: len(self.jobs.pods("scaled")) == 3)

    def test_pods_of_a_coordinator_led_job_are_found_by_role(self) -> None:
        self.submit("roles", trainer())
        Pod("roles-coordinator").coordinator().post_replicas(1)
        eventually(lambda: len(self.jobs.pods("roles")) == 2)
        self.assertEqual(self.jobs.pods("roles", task="coordinator"), ["roles-coordinator"])

    def test_a_manifest_comes_from_a_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job.yaml"
            file.write_text(json.dumps(manifest("filed", workers())), encoding="utf-8")
            self.addCleanup(self.jobs.delete, "filed")
            self.assertEqual(self.jobs.submit(file).name, "filed")

    def test_what_is_no_job_is_refused_before_it_is_sent(self) -> None:
        with self.assertRaisesRegex(ValueError, "must be diengine.opendilab.org/v2alpha1 and DIJob"):
            self.jobs.submit({"apiVersion": "v1", "kind": "Pod"})
        elsewhere = manifest("elsewhere", workers())
        elsewhere["metadata"]["namespace"] = "other"
        with self.assertRaisesRegex(ValueError, "metadata.namespace is 'other': must be 'python'"):
            self.jobs.submit(elsewhere)

    def test_a_function_runs_as_a_job(self) -> None:
        self.addCleanup(self.jobs.delete, "ran")
        job = self.jobs.run("ran", greet, arguments={"whom": "world"}, image="di", replicas={"learner": 1})
        container = job.object["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
        self.assertEqual((container["command"], container["workingDir"]), (["python3", "program.py"], "/code"))
        name = job.object["spec"]["tasks"][0]["template"]["spec"]["volumes"][0]["configMap"]["name"]
        packed = self.jobs._core.read_namespaced_config_map(name, self.jobs.namespace)
        self.assertIn("def greet(whom: str)", packed.data["f000"])
        owners = [each["uid"] if isinstance(each, dict) else each.uid for each in packed.metadata.owner_references]
        self.assertEqual(owners, [job.object["metadata"]["uid"]])
        # The same program runs again under another name, and under its own.
        with self.assertRaisesRegex(di.RefusedError, "already exists"):
            self.jobs.run("ran", greet, arguments={"whom": "world"}, image="di", replicas={"learner": 1})

    def test_a_job_is_watched_to_its_end(self) -> None:
        self.submit("watched", {"tasks": [task("learner", 1)]})
        pod = Pod("watched-learner-0")
        phases = []
        for job in self.jobs.watch("watched", timeout=60):
            phases.append(job.phase)
            if job.phase == "Running":
                pod.exit(0)
        self.assertEqual((phases[-1], "Running" in phases), ("Succeeded", True))
        self.assertEqual([job.phase for job in self.jobs.watch("watched")], ["Succeeded"])
        events = eventually(lambda: self.jobs.events("watched"), lambda found: any(not each.pod for each in found))
        self.assertEqual(events, sorted(events, key=lambda event: event.at))

    def test_a_job_that_is_deleted_ends_its_watch(self) -> None:
        self.submit("unwatched", workers())
        watching = self.jobs.watch("unwatched", timeout=60)
        next(watching)
        self.jobs.delete("unwatched")
        with self.assertRaisesRegex(di.NotFoundError, "unwatched"):
            for _ in watching:
                pass
        with self.assertRaises(di.NotFoundError):
            next(self.jobs.watch("unwatched"))


def greet(whom: str) -> None:
    print("hello", whom)
