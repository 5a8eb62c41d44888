# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import di_orchestrator as di
from world import WORLD, Pod, TestCase, eventually, task, workers


class WorkerLed(TestCase):
    def test_a_worker_knows_who_it_is(self) -> None:
        self.submit("ranks", workers(collectors=2))
        me = Pod("ranks-collector-1").me
        self.assertEqual(
            (me.protocol, me.namespace, me.job, me.pod, me.role, me.rank, me.index, me.generation, me.is_first),
            (di.WORKER_LED, WORLD["namespace"], "ranks", "ranks-collector-1", "collector", 2, 1, 0, False),
        )
        self.assertEqual([node.split(".")[0] for node in me.nodes], ["ranks-learner-0", "ranks-collector-0", "ranks-collector-1"])
        self.assertEqual(me.task_nodes, me.nodes[1:])
        self.assertEqual(me.job_id, WORLD["namespace"] + ".ranks.0")
        self.assertTrue(Pod("ranks-learner-0").me.is_first)

    def test_replicas_are_asked_for_and_released_within_the_bounds(self) -> None:
        self.submit("elastic", workers(collectors=2, elastic={"task": "collector", "minReplicas": 1, "maxReplicas": 3}))
        worker = Pod("elastic-learner-0").worker()
        self.assertEqual(len(worker.get_replicas()), 3)
        self.assertIn("1 of 4", worker.post_replicas(4))
        changes = worker.watch_replicas(interval=0.05)
        self.assertEqual(len(eventually(lambda: next(changes), lambda found: len(found) == 4 and all(found))), 4)
        key = di.new_key()
        self.assertEqual(worker.delete_replicas(1, key=key), worker.delete_replicas(1, key=key))
        self.assertEqual(len(eventually(worker.get_replicas, lambda found: len(found) == 3)), 3)

    def test_a_job_that_holds_no_state_has_no_membership(self) -> None:
        self.submit("stateless", workers())
        with self.assertRaises(di.RefusedError) as refused:
            Pod("stateless-learner-0").worker().membership()
        self.assertEqual(refused.exception.status, 409)

    def test_a_worker_of_an_earlier_generation_is_refused(self) -> None:
        self.submit("replaced", workers(backoffLimit=3))
        old = Pod("replaced-learner-0")
        old.exit(1)
        eventually(lambda: Pod("replaced-collector-0").me.generation)
        with self.assertRaisesRegex(di.RefusedError, "generation 0"):
            di.Worker(old.me, Pod("replaced-collector-0").client()).post_replicas(1)

    def test_a_report_reaches_the_status_and_what_is_wrong_does_not(self) -> None:
        self.submit("speed", workers())
        worker = Pod("speed-learner-0").worker()
        self.assertTrue(di.report(batch=di.Batch(initial=128), steps=[di.Step(1, 2, 64, 0.25)], game="pong", to=worker))
        self.assertEqual(
            self.jobs.get("speed").object["status"]["profilings"],
            {
                "version": 1,
                "batch": {"initial": 128},
                "steps": [{"nodes": 1, "replicas": 2, "samples": 64, "seconds": 0.25}],
                "game": "pong",
            },
        )
        with self.assertRaises(ValueError):
            di.report(steps=[di.Step(1, 2, 64, -0.25)], to=worker)

    def test_the_server_refuses_what_the_library_does(self) -> None:
        self.submit("bounds", workers())
        worker = Pod("bounds-learner-0").worker()
        numbers = ({"samples": -1}, {"time": 1e13}, {"rank": 100_000}, {"max_staleness": 1e7}, {"batch_samples": 2**41})
        for wrong in (*numbers, {"role": "Learner"}):
            with self.subTest(**wrong):
                with self.assertRaises(ValueError) as ours:
                    di.report_role(worker, **wrong)
                with self.assertRaises(di.RefusedError) as theirs:
                    worker.post_profilings({"version": 1, "role": "learner", **wrong})
                self.assertEqual(str(ours.exception).replace("'", '"'), theirs.exception.message)

    def test_torch_meets_at_the_first_replica(self) -> None:
        self.submit("torch", {"clusterSpec": ["Torch"], "tasks": [task("none", 1, name="master"), task("none", 2, name="worker")]})
        last = Pod("torch-worker-1").environ
        told = di.rendezvous(environ=last)
        self.assertEqual(told.environ()["MASTER_ADDR"], last["DI_NODES"].split(",")[0])
        self.assertEqual((told.world_size, told.rank), (3, 2))
        without = {name: value for name, value in last.items() if name.startswith("DI_")}
        self.assertEqual(di.rendezvous(environ=without), told)
        second = di.rendezvous(processes=2, local_rank=1, own_task=True, environ=last)
        self.assertEqual((second.world_size, second.rank), (4, 3))
        self.assertTrue(second.master_addr.startswith("torch-worker-0."))


class State(TestCase):
    def test_members_follow_the_list_and_acknowledge(self) -> None:
        spec = {"tasks": [task("none", 1, name="worker"), task("none", 2, name="ps", drain={})], "elastic": {"task": "ps"}}
        self.submit("stateful", spec)
        pods = [Pod(name) for name in ("stateful-worker-0", "stateful-ps-0", "stateful-ps-1")]
        members = pods[0].worker()
        versions = members.watch_membership()
        found = eventually(lambda: next(versions), lambda found: len(found.of("ps")) == 2 and len(found.of("worker")) == 1)
        self.assertEqual([member.name for member in found.of("ps")], ["stateful-ps-0", "stateful-ps-1"])
        self.assertEqual(members.membership(), found)

        self.jobs.scale("stateful", 1)
        leaving = eventually(lambda: next(versions), lambda found: found.of("ps", di.LEAVING))
        self.assertEqual([member.name for member in leaving.of("ps", di.LEAVING)], ["stateful-ps-1"])
        for pod in pods:
            self.assertGreaterEqual(pod.worker().acknowledge(leaving.version), leaving.version)
        after = eventually(lambda: next(versions), lambda found: not found.of("ps", di.LEAVING))
        self.assertEqual([member.name for member in after.of("ps")], ["stateful-ps-0"])

    def test_a_member_refuses_with_a_reason(self) -> None:
        spec = {"tasks": [task("none", 1, name="worker"), task("none", 2, name="ps", drain={})], "elastic": {"task": "ps"}}
        self.submit("refusing", spec)
        member = Pod("refusing-ps-0").worker()
        Pod("refusing-ps-1"), Pod("refusing-worker-0")
        versions = member.watch_membership()
        eventually(lambda: next(versions), lambda found: len(found.of("ps")) == 2)
        self.jobs.scale("refusing", 1)
        member.refuse(eventually(lambda: next(versions), lambda found: found.of("ps", di.LEAVING)).version, "no memory")
        conditions = eventually(
            lambda: [each for each in self.jobs.get("refusing").object["status"]["conditions"] if each["type"] == "DrainFailed"]
        )
        self.assertIn("no memory", conditions[0]["message"])
