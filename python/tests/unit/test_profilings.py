# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import sys
import unittest
from types import ModuleType, SimpleNamespace
from typing import Any, Dict, Optional
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


def torch_with(name: str, *, available: bool = True, initialized: bool = True) -> ModuleType:
    """Return a stand-in of PyTorch, which the tests do not need."""
    torch = ModuleType("torch")
    cuda = SimpleNamespace(is_available=lambda: available, is_initialized=lambda: initialized, get_device_name=lambda: name)
    torch.cuda = cuda  # type: ignore[attr-defined]
    return torch


def device_of(torch: Optional[ModuleType], given: str = "") -> Optional[str]:
    """Return the device in a report of a program that does not name it."""
    with mock.patch.dict(os.environ, {"DI_DEVICE": given}), mock.patch.dict(sys.modules):
        sys.modules.pop("torch", None)
        if torch is not None:
            sys.modules["torch"] = torch
        return di.make_report(steps=[di.Step(1, 1, 64, 0.5)])["steps"][0].get("device")


class Devices(unittest.TestCase):
    def test_a_step_names_the_gpu_as_the_label_of_its_node(self) -> None:
        for name, label in (
            ("Tesla T4", "Tesla-T4"),
            ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
            (" NVIDIA  GeForce RTX 2080 Ti (rev/a)", "NVIDIA-GeForce-RTX-2080-Ti-reva"),
            ("x" * 200, "x" * 63),
        ):
            self.assertEqual(device_of(torch_with(name)), label)

    def test_a_step_names_no_device_that_is_not_known(self) -> None:
        for torch in (None, ModuleType("torch"), torch_with("Tesla T4", available=False), torch_with("Tesla T4", initialized=False)):
            self.assertIsNone(device_of(torch))

    def test_the_environment_and_the_program_name_other_devices(self) -> None:
        self.assertEqual(device_of(torch_with("Tesla T4"), given="Tesla-T4-SHARED"), "Tesla-T4-SHARED")
        self.assertEqual(device_of(None, given="v5e"), "v5e")
        with mock.patch.dict(os.environ, {"DI_DEVICE": "v5e"}):
            self.assertEqual(di.Step(1, 1, 64, 0.5, device="v6").device, "v6")
        with self.assertRaisesRegex(ValueError, r"profilings.steps\[0\].device has 64 characters: must have at most 63"):
            device_of(None, given="x" * 64)

    def test_a_step_of_a_checkpoint_keeps_its_device(self) -> None:
        with mock.patch.dict(sys.modules, {"torch": torch_with("Tesla T4")}):
            measured = di.make_report(steps=[di.Step(1, 1, 64, 0.5)])["steps"][0]
        with mock.patch.dict(sys.modules, {"torch": torch_with("NVIDIA L4")}):
            self.assertEqual(di.Step(**measured).device, "Tesla-T4")


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
