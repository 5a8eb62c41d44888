# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from unittest import mock

import di_orchestrator as di
from di_orchestrator import client
from world import WORLD, Pod, TestCase, eventually, trainer


class CoordinatorLed(TestCase):
    def start(self, name: str) -> Pod:
        self.submit(name, trainer())
        return Pod(name + "-coordinator")

    def test_a_coordinator_knows_who_it_is(self) -> None:
        me = self.start("known").me
        self.assertEqual(
            (me.protocol, me.namespace, me.job, me.pod, me.role, me.port, me.is_first),
            (di.COORDINATOR_LED, WORLD["namespace"], "known", "known-coordinator", "coordinator", 22273, True),
        )

    def test_replicas_are_asked_for_listed_replaced_and_released(self) -> None:
        coordinator = self.start("asking").coordinator()
        self.assertEqual(coordinator.get_replicas(), di.Replicas())
        new = coordinator.post_replicas(di.Resources(replicas=2, cpus="500m"), learners=1)
        self.assertEqual((len(new.collectors), len(new.learners)), (2, 1))
        self.assertEqual(coordinator.get_replicas(), new)

        failed = new.collectors[0]
        replaced = coordinator.post_replicas_failed(collectors=[failed])
        self.assertEqual((len(replaced.collectors), replaced.learners), (1, ()))
        self.assertNotIn(failed, coordinator.get_replicas().collectors)

        gone = coordinator.delete_replicas(n_collectors=1, n_learners=1)
        self.assertEqual((len(gone.collectors), len(gone.learners)), (1, 1))
        left = coordinator.get_replicas()
        self.assertEqual((len(left.collectors), len(left.learners)), (1, 0))

    def test_two_equal_requests_count_twice_and_a_repeat_once(self) -> None:
        coordinator = self.start("twice").coordinator()
        first, second = coordinator.post_replicas(1), coordinator.post_replicas(1)
        self.assertNotEqual(first, second)
        key = di.new_key()
        third = coordinator.post_replicas(1, key=key)
        self.assertEqual(third, coordinator.post_replicas(1, key=key))
        self.assertEqual(len(coordinator.get_replicas().collectors), 3)

    def test_changes_of_the_list_are_followed(self) -> None:
        coordinator = self.start("followed").coordinator()
        changes = coordinator.watch_replicas(interval=0.01)
        self.assertEqual(next(changes), di.Replicas())
        new = coordinator.post_replicas(1)
        self.assertEqual(next(changes), new)

    def test_a_collector_reports_for_its_coordinator(self) -> None:
        coordinator = self.start("reported").coordinator()
        collector = Pod(coordinator.post_replicas(1).collectors[0].split(".")[0])
        self.assertEqual((collector.me.role, collector.me.job, collector.me.port), ("collector", "reported", 22270))
        self.assertTrue(di.report_role(collector.coordinator(), samples=10, busy_seconds=2.5))
        rates = eventually(lambda: self.jobs.get("reported").object["status"].get("rates"))
        self.assertEqual([rate["role"] for rate in rates], ["collector"])

    def test_a_report_reaches_the_status(self) -> None:
        coordinator = self.start("progress").coordinator()
        self.assertTrue(di.report(progress=di.Progress(done=12, total=200, unit="round"), to=coordinator))
        self.assertEqual(
            self.jobs.get("progress").object["status"]["profilings"],
            {"version": 1, "progress": {"done": 12, "total": 200, "unit": "round"}},
        )

    def test_what_is_wrong_is_refused_with_its_field(self) -> None:
        coordinator = self.start("refused").coordinator()
        with self.assertRaises(di.RefusedError) as refused:
            coordinator.post_replicas(-1)
        self.assertEqual(refused.exception.status, 400)
        self.assertIn("collectors.replicas", refused.exception.message)


class Aggregators(TestCase):
    def test_an_aggregator_lists_and_reports_its_learners(self) -> None:
        self.submit("gpus", trainer())
        coordinator = Pod("gpus-coordinator").coordinator()
        unit = coordinator.post_replicas(learners=di.Resources(replicas=1, gpus=2)).learners[0]
        aggregator = Pod(unit.split(".")[0]).coordinator()
        self.assertEqual(aggregator.me.role, "aggregator")
        processes = aggregator.get_replicas().learners
        self.assertEqual(len(processes), 2)
        pod = processes[0].split(".")[0]
        learner = Pod(pod)
        self.assertEqual((learner.me.job, learner.me.role), ("gpus", "ddp-learner"))
        self.assertEqual(
            [di.rendezvous(local_rank=rank, environ=learner.environ) for rank in (0, 1)],
            [di.Rendezvous("localhost", 10314, 2, rank, rank, 2) for rank in (0, 1)],
        )
        self.assertTrue(di.report_role(learner.coordinator(), samples=1))
        aggregator.post_replicas_failed(learners=[pod])
        eventually(lambda: unit not in coordinator.get_replicas().learners)


class Identities(TestCase):
    def test_a_pod_of_another_job_is_forbidden(self) -> None:
        self.submit("mine", trainer())
        self.submit("yours", trainer())
        mine, yours = Pod("mine-coordinator"), Pod("yours-coordinator")
        with self.assertRaises(di.RefusedError) as refused:
            di.Coordinator(yours.me, mine.client()).get_replicas()
        self.assertEqual(refused.exception.status, 403)

    def test_without_a_token_a_caller_from_elsewhere_is_unknown(self) -> None:
        self.submit("tokenless", trainer())
        me = Pod("tokenless-coordinator").me
        with self.assertRaises(di.RefusedError) as refused:
            di.Coordinator(me, di.Client(me.server_url, token_file=None)).get_replicas()
        self.assertEqual(refused.exception.status, 401)

    def test_a_token_that_was_renewed_meanwhile_is_read_again(self) -> None:
        self.submit("renewed", trainer())
        pod = Pod("renewed-coordinator")
        token = (pod.folder / "token").read_text(encoding="utf-8")
        (pod.folder / "token").write_text("expired", encoding="utf-8")
        with mock.patch.object(client.time, "sleep", lambda _: (pod.folder / "token").write_text(token, encoding="utf-8")):
            self.assertEqual(pod.coordinator().get_replicas(), di.Replicas())

    def test_tls_is_verified_by_the_published_authority(self) -> None:
        self.submit("secure", trainer())
        pod = Pod("secure-coordinator")
        token = str(pod.folder / "token")
        trusting = di.Client(WORLD["tls_url"], token_file=token, ca_file=WORLD["ca_file"])
        self.assertEqual(di.Coordinator(pod.me, trusting).get_replicas(), di.Replicas())
        with self.assertRaisesRegex(di.OrchestratorError, "is not trusted"):
            di.Coordinator(pod.me, di.Client(WORLD["tls_url"], token_file=token)).get_replicas()
