# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import di_orchestrator as di
from di_orchestrator import launch


def train(steps: int, note: str = "") -> None:
    import os

    print(f"{os.path.basename('/a/b')} trains {steps} steps {note!r}")


class Programs(unittest.TestCase):
    def test_a_function_is_a_program_of_its_own(self) -> None:
        code = launch.pack(train, {"steps": 3, "note": "it's \"ü\""})
        self.assertEqual(code.command, ("python3", "program.py"))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "program.py").write_bytes(code.files["program.py"])
            ran = subprocess.run([sys.executable, "program.py"], cwd=folder, stdout=subprocess.PIPE, check=True, env={"PYTHONUTF8": "1"})
        self.assertEqual(ran.stdout.decode(), "b trains 3 steps 'it\\'s \"ü\"'\n")

    def test_a_function_that_cannot_be_sent_is_refused(self) -> None:
        outer = 1

        def closure() -> int:
            return outer

        for program, arguments, want in (
            (lambda: None, {}, "must be a function of a module"),
            (closure, {}, "must be a function of a module"),
            (len, {}, "must be a function of a module"),
            (train, {"steps": object()}, "must be what JSON has"),
            (train, {"steps": float("nan")}, "must be what JSON has"),
            ("train.py", {"steps": 1}, "arguments are for a function"),
        ):
            with self.assertRaisesRegex(ValueError, want):
                launch.pack(program, arguments)
        with self.assertRaisesRegex(TypeError, "step"):
            launch.pack(train, {"step": 1})

    def test_a_folder_is_sent_without_what_python_and_git_wrote(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("train.py", "model/net.py", ".git/config", "__pycache__/train.pyc", ".env"):
                path = Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(name, encoding="utf-8")
            (Path(folder) / "weights").write_bytes(b"\xff")
            code = launch.pack(folder)
            self.assertEqual(sorted(code.files), ["model/net.py", "train.py", "weights"])
            packed = code.config_map("pong")
            self.assertEqual((packed["data"], packed["binaryData"]), ({"f000": "model/net.py", "f001": "train.py"}, {"f002": "/w=="}))
            self.assertEqual(launch.pack(Path(folder) / "train.py").command, ("python3", "train.py"))
            with self.assertRaisesRegex(ValueError, "command is missing"):
                launch.manifests("pong", di.Launch(image="a"), code)

    def test_what_is_too_large_is_refused_before_it_is_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(ValueError, "has no files"):
                launch.pack(folder)
            with open(Path(folder) / "data.npz", "wb") as file:
                file.truncate(1 << 40)
            with self.assertRaisesRegex(ValueError, "has 1099511627776 bytes, and 921600 at most are sent"):
                launch.pack(folder)
            for i in range(launch.MOST_FILES):
                (Path(folder) / str(i)).touch()
            with self.assertRaisesRegex(ValueError, "has more than 500 files"):
                launch.pack(folder)


class Manifests(unittest.TestCase):
    def test_a_job_has_only_what_its_options_say(self) -> None:
        job, packed = launch.manifests("pong", di.Launch(image="train:1"), None)
        self.assertIsNone(packed)
        container = {"name": "di-container", "image": "train:1"}
        worker = {"name": "worker", "type": "none", "replicas": 1, "template": {"spec": {"containers": [container]}}}
        self.assertEqual(job["spec"], {"tasks": [worker]})

    def test_a_job_has_all_that_its_options_say(self) -> None:
        code = launch.Code({"train.py": b"x"}, ("python3", "train.py"))
        options = di.Launch(
            image="train:1", replicas={"learner": 1, "buffer": 2}, gpus=2, cpu="500m", memory="4Gi", env={"A": "b"},
            claims={"/data": "data"}, torch=True, queue="team", preemptible=True,
        )  # fmt: skip
        job, packed = launch.manifests("pong", options, code)
        assert packed is not None
        spec = job["spec"]
        tasks = [(each["name"], each["type"], each["replicas"]) for each in spec["tasks"]]
        self.assertEqual(tasks, [("learner", "learner", 1), ("buffer", "none", 2)])
        self.assertEqual((spec["clusterSpec"], spec["scheduling"], spec["preemptible"]), (["Torch"], {"queue": "team"}, True))
        pod = spec["tasks"][0]["template"]["spec"]
        self.assertEqual(pod["containers"][0], {
            "name": "di-container", "image": "train:1", "workingDir": "/code", "command": ["python3", "train.py"],
            "env": [{"name": "A", "value": "b"}, {"name": "PET_NPROC_PER_NODE", "value": "2"}],
            "resources": {"requests": {"cpu": "500m", "memory": "4Gi"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": 2}},
            "volumeMounts": [{"name": "claim-0", "mountPath": "/data"}, {"name": "code", "mountPath": "/code"}],
        })  # fmt: skip
        name = packed["metadata"]["name"]
        self.assertEqual(pod["volumes"][1], {"name": "code", "configMap": {"name": name, "items": [{"key": "f000", "path": "train.py"}]}})

    def test_a_wrong_option_is_named(self) -> None:
        wrong: Any
        for wrong, want in (
            ({"image": "My Trainer"}, "image is 'My Trainer'"),
            ({"replicas": 0}, "replicas of task 'worker' is 0"),
            ({"replicas": {"learner": True}}, "replicas of task 'learner' is True"),
            ({"gpus": -1}, "gpus is -1"),
            ({"claims": {"data": "data"}}, "claims has 'data': 'data'"),
            ({"claims": {"/code": "data"}}, "claims has '/code'"),
        ):
            with self.assertRaisesRegex(ValueError, want):
                launch.manifests("pong", di.Launch(**{"image": "a", **wrong}), None)


if __name__ == "__main__":
    unittest.main()
