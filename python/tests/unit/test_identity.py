# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Dict

import di_orchestrator as di

WORKER = {
    "DI_JOB_ID": "rl.my-job.3",
    "DI_RANK": "2",
    "DI_NODES": "my-job-learner-0.di-my-job.rl.svc.cluster.local,,my-job-my-task-0.di-my-job.rl.svc.cluster.local",
    "DI_MY_TASK_NODES": "my-job-my-task-0.di-my-job.rl.svc.cluster.local",
    "DI_SERVER_URL": "http://di-server.di-system.svc.cluster.local:8081",
}


def replica(pod: str, **others: str) -> Dict[str, str]:
    return {"KUBERNETES_POD_NAME": pod, "KUBERNETES_POD_NAMESPACE": "rl", "KUBERNETES_SERVER_URL": "di-server.di-system:8080", **others}


class Workers(unittest.TestCase):
    def test_task_and_index_are_those_of_the_pod(self) -> None:
        me = di.who_am_i(WORKER)
        self.assertEqual((me.namespace, me.job, me.role, me.rank, me.index, me.generation), ("rl", "my-job", "my-task", 2, 0, 3))
        self.assertEqual((me.pod, me.port, me.job_id), ("my-job-my-task-0", 22270, "rl.my-job.3"))
        self.assertEqual((len(me.nodes), me.nodes[1], len(me.task_nodes)), (3, "", 1))

    def test_a_long_list_is_a_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "DI_NODES"
            file.write_text(WORKER["DI_NODES"], encoding="utf-8")
            self.assertEqual(di.who_am_i({**WORKER, "DI_NODES": f"@{file}"}), di.who_am_i(WORKER))

    def test_pods_of_an_earlier_release_have_no_generation(self) -> None:
        me = di.who_am_i({**WORKER, "DI_JOB_ID": "rl/my-job"})
        self.assertEqual((me.generation, me.job_id), (None, "rl.my-job"))

    def test_the_lowest_rank_with_a_replica_is_the_first(self) -> None:
        self.assertFalse(di.who_am_i(WORKER).is_first)
        self.assertTrue(di.who_am_i({**WORKER, "DI_NODES": ",," + WORKER["DI_MY_TASK_NODES"]}).is_first)

    def test_what_is_wrong_in_the_environment_is_named(self) -> None:
        for change, message in (
            ({"DI_JOB_ID": "job"}, "DI_JOB_ID is 'job': must be namespace.name.generation"),
            ({"DI_RANK": "first"}, "DI_RANK is 'first': must be a number"),
            ({"DI_SERVER_URL": ""}, "DI_SERVER_URL is not set"),
        ):
            with self.assertRaisesRegex(di.NotInJobError, message):
                di.who_am_i({**WORKER, **change})


class Replicas(unittest.TestCase):
    def test_the_role_is_that_of_the_pod(self) -> None:
        for pod, others, expected in (
            ("a-coordinator", {"COORDINATOR_PORT": "4000"}, ("a", "coordinator", 4000)),
            ("a-coordinator-coordinator", {}, ("a-coordinator", "coordinator", 22273)),
            ("a-b-collector-x2c4v", {}, ("a-b", "collector", 22270)),
            ("a-learner-x2c4v", {"LEARNER_PORT": "22271"}, ("a", "learner", 22271)),
            ("a-aggregator-x2c4v", {}, ("a", "aggregator", 22272)),
            ("a-ddp-learner-x2c4v", {"START_RANK": "0"}, ("a", "ddp-learner", 22271)),
            ("a-ddp-learner-x2c4v", {}, ("a-ddp", "learner", 22271)),
        ):
            me = di.who_am_i(replica(pod, **others))
            self.assertEqual((me.job, me.role, me.port), expected)
            self.assertEqual((me.protocol, me.pod, me.is_first), (di.COORDINATOR_LED, pod, expected[1] == "coordinator"))

    def test_the_path_of_the_protocol_may_be_another(self) -> None:
        self.assertEqual(di.who_am_i(replica("a-coordinator")).api_version, "/v1alpha1")
        self.assertEqual(di.who_am_i(replica("a-coordinator", KUBERNETES_SERVER_API_VERSION="v1alpha2")).api_version, "/v1alpha2")

    def test_a_pod_of_another_kind_is_refused(self) -> None:
        with self.assertRaisesRegex(di.NotInJobError, "must be the name of a replica"):
            di.who_am_i(replica("a-evaluator-1"))


class Outside(unittest.TestCase):
    def test_outside_of_a_job_there_is_no_identity(self) -> None:
        self.assertEqual((di.in_job({}), di.in_job(WORKER), di.in_job(replica("a-coordinator"))), (False, True, True))
        with self.assertRaisesRegex(di.NotInJobError, "runs in no pod of a DIJob"):
            di.who_am_i({})

    def test_each_protocol_has_its_own_calls(self) -> None:
        worker, coordinator = di.who_am_i(WORKER), di.who_am_i(replica("a-coordinator"))
        self.assertIsInstance(di.connect(worker), di.Worker)
        self.assertIsInstance(di.connect(coordinator), di.Coordinator)
        with self.assertRaisesRegex(ValueError, "use Coordinator"):
            di.Worker(coordinator)
        with self.assertRaisesRegex(ValueError, "use Worker"):
            di.Coordinator(worker)


class Torch(unittest.TestCase):
    def test_gaps_of_the_ranks_are_closed(self) -> None:
        found = di.rendezvous(environ=WORKER)
        self.assertEqual((found.world_size, found.rank, found.master_port), (2, 1, 10314))
        self.assertEqual(di.rendezvous(own_task=True, environ=WORKER).world_size, 1)

    def test_torchrun_has_the_last_word(self) -> None:
        told = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "m", "MASTER_PORT": "1", "WORLD_SIZE": "8", "RANK": "5"}
        found = di.rendezvous(environ={**WORKER, **told, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"})
        self.assertEqual(found, di.Rendezvous("m", 1, 8, 5, 1, 4))

    def test_a_ddp_learner_has_a_process_for_each_gpu(self) -> None:
        told = {"MASTER_ADDR": "a-ddp-learner-1", "MASTER_PORT": "10314", "WORLD_SIZE": "10", "LOCAL_WORLD_SIZE": "2", "START_RANK": "8"}
        environ = replica("a-ddp-learner-x2c4v", **told)
        self.assertEqual(di.rendezvous(local_rank=1, environ=environ), di.Rendezvous("a-ddp-learner-1", 10314, 10, 9, 1, 2))
        with self.assertRaisesRegex(ValueError, "local_rank is 2: must be from 0 to 1"):
            di.rendezvous(local_rank=2, environ=environ)

    def test_the_variables_are_set(self) -> None:
        environ: Dict[str, str] = {}
        di.rendezvous(environ=WORKER).apply(environ)
        self.assertEqual(
            environ,
            {
                "MASTER_ADDR": "my-job-learner-0.di-my-job.rl.svc.cluster.local",
                "MASTER_PORT": "10314",
                "WORLD_SIZE": "2",
                "RANK": "1",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
            },
        )

    def test_a_collector_of_a_coordinator_led_job_has_no_peers(self) -> None:
        with self.assertRaises(di.NotInJobError):
            di.rendezvous(environ=replica("a-collector-x2c4v"))


if __name__ == "__main__":
    unittest.main()
