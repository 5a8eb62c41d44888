# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Dict
from unittest import mock

import di_orchestrator as di
from world import WORLD, Pod, TestCase, manifest, task, trainer, workers

ROOT = Path(__file__).resolve().parents[3]
PAGE, NOTEBOOK = ROOT / "docs" / "python.md", ROOT / "examples" / "notebook" / "first-job.ipynb"


def examples() -> Dict[str, str]:
    """Return the examples of the page by their line."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {f"line {text[: each.start()].count(chr(10)) + 1}": each[1] for each in found}


class Documentation(TestCase):
    def test_every_example_of_the_page_runs(self) -> None:
        tasks = [*workers(1)["tasks"], task("none", 2, name="ps", drain={})]
        self.submit("docs", {"tasks": tasks, "elastic": {"task": "collector", "minReplicas": 1, "maxReplicas": 4}})
        self.submit("docs-led", trainer())
        # The first version of the membership lists the servers.
        Pod("docs-ps-0"), Pod("docs-ps-1")
        worker, coordinator = Pod("docs-learner-0"), Pod("docs-led-coordinator")
        found = examples()
        self.assertGreater(len(found), 8)
        for place, example in found.items():
            with self.subTest(place):
                self.run_example(example, coordinator if "Coordinator" in example else worker)

    def test_the_notebook_runs(self) -> None:
        cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        ending = threading.Thread(target=lambda: Pod("notebook-worker-0").exit(0))
        ending.start()
        self.addCleanup(ending.join)
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(di.Jobs, "logs", lambda *_, **__: {"pod": "log"}):
            path = Path(folder) / "notebook.py"
            path.write_text(code, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, str(path), "exec"), {"__name__": "notebook"})

    def run_example(self, example: str, pod: Pod) -> None:
        torch, distributed = ModuleType("torch"), ModuleType("torch.distributed")
        torch.distributed, distributed.init_process_group = distributed, lambda backend: None  # type: ignore[attr-defined]
        defaults = {"token_file": str(pod.folder / "token")}
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            for name, path in (("/data/cartpole", "data"), ("/etc/di-server/ca.crt", "ca.crt"), ("cartpole.yaml", "cartpole.yaml")):
                example = example.replace(f'"{name}"', repr(str(Path(folder) / path)))
            history = {"https://di-history.di-system.svc": "history_url", "rl": "namespace", "token": "token_file", "ca.crt": "ca_file"}
            for name, value in history.items():
                example = example.replace(f'"{name}"', repr(WORLD[value]))
            one = manifest("cartpole", {"tasks": [task("learner", 1)]})
            (Path(folder) / "cartpole.yaml").write_text(json.dumps(one), encoding="utf-8")
            if "Jobs" in example:
                name = "pong-worker-0" if "jobs.run(" in example else "cartpole-learner-0"
                ending = threading.Thread(target=lambda: Pod(name).exit(0))
                ending.start()
                stack.callback(ending.join)
            stack.enter_context(mock.patch.dict(di.Client.__init__.__kwdefaults__, defaults))
            stack.enter_context(mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": distributed}))
            stack.enter_context(mock.patch.dict(os.environ, {**pod.environ, "KUBECONFIG": WORLD["kubeconfig"]}))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            # The source of a function is found in a file.
            path = Path(folder) / "example.py"
            path.write_text(example, encoding="utf-8")
            exec(compile(example, str(path), "exec"), {"__name__": "example"})
