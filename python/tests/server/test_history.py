# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import unittest
from datetime import datetime, timezone

import di_orchestrator as di
from world import WORLD


class Readers(unittest.TestCase):
    def setUp(self) -> None:
        self.history = di.History(WORLD["history_url"], WORLD["namespace"], token_file=WORLD["token_file"], ca_file=WORLD["ca_file"])

    def test_a_job_that_is_gone_is_listed_and_shown(self) -> None:
        found = list(self.history.list(phase="Failed", reason="OOMKilled"))
        self.assertEqual([(job.name, job.creator) for job in found], [("gone", "jane")])
        job = self.history.show("gone")
        self.assertEqual(job.created, datetime(2026, 3, 1, tzinfo=timezone.utc))
        self.assertEqual(job.object["attempts"][0]["reason"], "OOMKilled")

    def test_curves_are_read(self) -> None:
        start = datetime(2026, 3, 1, tzinfo=timezone.utc).timestamp()
        self.assertEqual(self.history.curves("gone"), {"reward": [(start + 10, 1.0), (start + 20, 2.5)]})

    def test_an_unknown_job_is_not_found(self) -> None:
        with self.assertRaises(di.NotFoundError):
            self.history.show("unknown")

    def test_without_a_right_nothing_is_listed(self) -> None:
        elsewhere = di.History(WORLD["history_url"], "default", token_file=WORLD["token_file"], ca_file=WORLD["ca_file"])
        with self.assertRaises(di.RefusedError) as refused:
            next(elsewhere.list())
        self.assertEqual(refused.exception.status, 403)


if __name__ == "__main__":
    unittest.main()
