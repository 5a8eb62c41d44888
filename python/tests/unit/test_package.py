# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Iterator, Tuple

import di_orchestrator as di

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "di_orchestrator"
LICENCE = "# Copyright The DI Orchestrator Authors.\n# SPDX-License-Identifier: Apache-2.0\n"
MAX_LINE = 140
#: The modules that the package imports: standard library, except for those that only Jobs imports.
ALLOWED = {
    "__future__", "base64", "contextlib", "dataclasses", "datetime", "decimal", "errno", "hashlib", "http", "inspect", "json", "logging",
    "math", "numbers", "os", "pathlib", "random", "re", "signal", "socket", "ssl", "subprocess", "sys", "textwrap", "threading",
    "time", "traceback", "types", "typing", "urllib", "uuid",
}  # fmt: skip
LAZY = {"jobs.py": {"kubernetes", "yaml"}}


def modules() -> Iterator[Tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.glob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


class Sources(unittest.TestCase):
    def test_every_file_has_the_licence_and_short_lines(self) -> None:
        for path in ROOT.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            self.assertTrue(text.startswith(LICENCE), path)
            for number, line in enumerate(text.splitlines(), start=1):
                self.assertLessEqual(len(line), MAX_LINE, f"{path}:{number}")
                self.assertEqual(line, line.rstrip(), f"{path}:{number}")

    def test_a_trainer_needs_the_standard_library_only(self) -> None:
        for path, tree in modules():
            for node in ast.walk(tree):
                imported = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    imported = [node.module or ""]
                for name in imported:
                    self.assertIn(name.split(".")[0], ALLOWED | LAZY.get(path.name, set()), f"{path}:{node.lineno}")

    def test_every_public_name_is_documented_and_typed(self) -> None:
        for path, tree in modules():
            self.assertTrue(ast.get_docstring(tree), path)
            for node in ast.walk(tree):
                if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    continue
                where = f"{path.name}:{node.lineno} {node.name}"
                if not node.name.startswith("_"):
                    self.assertTrue(ast.get_docstring(node), where)
                if isinstance(node, ast.FunctionDef):
                    self.assertIsNotNone(node.returns, where)
                    arguments = [*node.args.args, *node.args.kwonlyargs]
                    for argument in arguments:
                        self.assertTrue(argument.annotation is not None or argument.arg == "self", f"{where}({argument.arg})")

    def test_the_package_exports_what_it_lists(self) -> None:
        self.assertEqual(di.__all__, sorted(di.__all__))
        for name in di.__all__:
            self.assertTrue(hasattr(di, name), name)

    def test_the_reference_is_current(self) -> None:
        page = ROOT.parent / "docs" / "reference" / "python.md"
        generated = subprocess.run([sys.executable, str(ROOT / "tools" / "reference.py")], stdout=subprocess.PIPE, check=True)
        self.assertEqual(generated.stdout.decode(), page.read_text(encoding="utf-8"), "run: make generate")


class Build(unittest.TestCase):
    def build(self, backend: Path, folder: Path, **environ: str) -> "list[Path]":
        command = [sys.executable, str(backend / "build_backend" / "di_build.py"), str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "DI_VERSION": "", **environ})
        return sorted(folder.iterdir())

    def test_the_same_sources_give_the_same_bytes(self) -> None:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            built, again = self.build(ROOT, Path(one)), self.build(ROOT, Path(two))
            self.assertEqual([path.read_bytes() for path in built], [path.read_bytes() for path in again])
            self.assertEqual([path.suffix for path in built], [".whl", ".gz"])

    def test_the_source_archive_builds_the_same_wheel(self) -> None:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two, tempfile.TemporaryDirectory() as sources:
            wheel, archive = self.build(ROOT, Path(one), DI_VERSION="v2.1.0-rc.1")
            self.assertEqual(wheel.name, "di_orchestrator-2.1.0rc1-py3-none-any.whl")
            subprocess.run(["tar", "xzf", str(archive), "-C", sources], check=True)
            rebuilt, _ = self.build(next(Path(sources).iterdir()), Path(two))
            self.assertEqual(wheel.read_bytes(), rebuilt.read_bytes())

    def test_a_wheel_is_imported_and_typed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            wheel, _ = self.build(ROOT, Path(folder), DI_VERSION="v2.1.0")
            program = "import di_orchestrator as di; print(di.__version__, di.__file__)"
            environ = {**os.environ, "PYTHONPATH": str(wheel)}
            printed = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, env=environ).stdout.decode()
            self.assertEqual(printed.split(), ["2.1.0", f"{wheel}/di_orchestrator/__init__.py"])
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
                self.assertIn("di_orchestrator/py.typed", names)
                record = archive.read("di_orchestrator-2.1.0.dist-info/RECORD").decode()
                self.assertEqual({line.split(",")[0] for line in record.splitlines()}, set(names))

    def test_a_version_that_is_none_of_a_release_is_that_of_the_sources(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            wheel, _ = self.build(ROOT, Path(folder), DI_VERSION="dev")
            self.assertEqual(wheel.name, f"di_orchestrator-{di.__version__}-py3-none-any.whl")


if __name__ == "__main__":
    unittest.main()
