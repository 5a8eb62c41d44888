# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import unittest
from typing import Any, Dict
from unittest import mock

import di_orchestrator as di
from di_orchestrator import profilings

ME = di.who_am_i({"DI_JOB_ID": "n.j.0", "DI_RANK": "0", "DI_NODES": "j-collector-0.di-j", "DI_SERVER_URL": "unused"})


class Reports(unittest.TestCase):
    def test_a_report_has_what_is_given(self) -> None:
        made = di.make_report(
            throughput=[di.Rate(nodes=1, replicas=2, per_second=5200)],
            gradient=di.Gradient(sqr=0.0, var=0.5),
            progress=di.Progress(done=0),
            game="pong",
        )
        self.assertEqual(
            made,
            {
                "version": 1,
                "throughput": [{"nodes": 1, "replicas": 2, "per_second": 5200}],
                "gradient": {"sqr": 0.0, "var": 0.5},
                "progress": {"done": 0},
                "game": "pong",
            },
        )

    def test_numbers_of_other_libraries_become_those_of_json(self) -> None:
        class Float32(float):
            """Stands for numpy.float32."""

        found = di.make_report(steps=[di.Step(1, 1, 64, Float32(0.5))])["steps"][0]["seconds"]
        self.assertIs(type(found), float)

    def test_what_is_no_number_is_refused(self) -> None:
        wrong: Dict[str, Any] = {"done": "12"}
        for wrong in ({"done": "12"}, {"done": None}, {"done": True}, {"done": float("nan")}, {"done": float("inf")}):
            with self.assertRaisesRegex(ValueError, r"profilings.progress.done is .*: must be from 0 to 1e\+30"):
                di.make_report(progress=di.Progress(**wrong))


class Meters(unittest.TestCase):
    def test_a_meter_counts_and_reports_in_intervals(self) -> None:
        worker = mock.Mock(me=ME)
        now = [100.0]
        with mock.patch.object(profilings.time, "monotonic", lambda: now[0]), mock.patch.object(profilings.time, "time", lambda: 7.0):
            meter = di.Meter(to=worker)
            for _ in range(2):
                with meter.busy():
                    now[0] += 3
                with meter.blocked():
                    now[0] += 1
                meter.samples += 64
            self.assertTrue(meter.report(policy_version=5))
            self.assertFalse(meter.report())
            with meter.starved():
                now[0] += 10
            self.assertTrue(meter.report())
        first, second = (call.args[0] for call in worker.post_profilings.call_args_list)
        self.assertEqual(
            first,
            {"version": 1, "role": "collector", "time": 7.0, "samples": 128, "busy_seconds": 6, "blocked_seconds": 2, "policy_version": 5},
        )
        self.assertEqual(second["starved_seconds"], 10)

    def test_a_failure_counts_its_time_too(self) -> None:
        meter = di.Meter(to=mock.Mock(me=ME))
        with self.assertRaises(ZeroDivisionError), meter.busy():
            1 / 0
        self.assertIn("busy_seconds", meter.seconds)


if __name__ == "__main__":
    unittest.main()
