# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import unittest

import di_orchestrator as di
from di_orchestrator.testing import FakeJob


class Fakes(unittest.TestCase):
    def test_a_program_finds_its_job_and_leaves_no_trace(self) -> None:
        before = dict(os.environ)
        with FakeJob("pong", replicas={"learner": 1, "collector": 2}, task="collector", index=1, namespace="rl"):
            me = di.who_am_i()
            self.assertEqual((me.namespace, me.job, me.role, me.rank, me.index), ("rl", "pong", "collector", 2, 1))
            self.assertEqual((len(me.nodes), len(me.task_nodes), me.is_first), (3, 2, False))
            meeting = di.rendezvous()
            self.assertEqual((meeting.master_addr, meeting.world_size, meeting.rank), ("127.0.0.1", 3, 2))
        self.assertEqual(dict(os.environ), before)
        self.assertFalse(di.in_job())

    def test_reports_are_those_that_were_sent(self) -> None:
        with FakeJob() as job:
            self.assertTrue(di.report(progress=di.Progress(done=1, total=4, unit="step")))
            self.assertTrue(di.Meter(interval=0).report(policy_version=3))
            self.assertEqual(job.reports[0]["progress"], {"done": 1, "total": 4, "unit": "step"})
            self.assertEqual(job.reports[1]["policy_version"], 3)
            with self.assertRaises(ValueError):
                di.report(progress=di.Progress(done=-1, total=4, unit="step"))
            self.assertEqual(len(job.reports), 2)

    def test_replicas_are_resized_within_their_bounds(self) -> None:
        with FakeJob(replicas={"learner": 1, "collector": 2}, elastic="collector", most=4) as job:
            worker = di.Worker()
            self.assertEqual(worker.post_replicas(3), "granted are 2 of 3")
            self.assertEqual((job.replicas["collector"], len(worker.get_replicas())), (4, 5))
            self.assertEqual(worker.delete_replicas(9), "granted are 4 of 9")
            with self.assertRaisesRegex(di.RefusedError, "a FakeJob has no such thing"):
                worker.membership()

    def test_a_preempted_program_saves_and_ends(self) -> None:
        saved = []
        with FakeJob() as job, self.assertRaises(di.Preempted) as ended:
            with di.preemption(lambda: saved.append(True)) as stop:
                job.preempt()
                while True:
                    stop.check()
        self.assertEqual((saved, ended.exception.code), ([True], di.GRACEFUL_EXIT))

    def test_a_wrong_job_is_refused(self) -> None:
        for options, want in (
            ({"task": "actor"}, "task is 'actor': must be one of worker"),
            ({"index": 1}, "index is 1: must be from 0 to 0"),
        ):
            with self.assertRaisesRegex(ValueError, want):
                FakeJob(**options)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
