# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
from typing import List

import di_orchestrator as di

ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def stop_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Preemptions(unittest.TestCase):
    def setUp(self) -> None:
        self.saved: List[int] = []
        self.step = 0

    def save(self) -> None:
        self.saved.append(self.step)

    def test_a_step_is_finished_saved_and_the_exit_is_graceful(self) -> None:
        with self.assertRaises(SystemExit) as ended, di.preemption(self.save) as stop:
            while True:
                if self.step == 3:
                    stop_self()
                self.step += 1
                stop.check()
        self.assertEqual((ended.exception.code, self.saved), (143, [4]))

    def test_a_training_that_ends_does_not_save(self) -> None:
        earlier = signal.getsignal(signal.SIGTERM)
        with di.preemption(self.save) as stop:
            stop.check()
            self.assertNotEqual(signal.getsignal(signal.SIGTERM), earlier)
        self.assertEqual(self.saved, [])
        self.assertEqual(signal.getsignal(signal.SIGTERM), earlier)

    def test_a_loop_may_end_itself(self) -> None:
        with self.assertRaises(di.Preempted), di.preemption(self.save) as stop:
            while not stop.requested:
                self.step += 1
                stop_self()
        self.assertEqual(self.saved, [1])

    def test_a_failure_is_no_graceful_exit(self) -> None:
        with self.assertRaises(ZeroDivisionError), di.preemption(self.save):
            stop_self()
            1 / 0
        self.assertEqual(self.saved, [])

    def test_a_save_that_fails_is_no_graceful_exit(self) -> None:
        def fail() -> None:
            raise OSError("the volume is gone")

        with self.assertRaisesRegex(OSError, "the volume is gone"), di.preemption(fail) as stop:
            stop_self()
            stop.check()

    def test_replicas_stop_where_they_agree(self) -> None:
        answers = iter([False, True])
        with self.assertRaises(di.Preempted), di.preemption(self.save, agree=lambda requested: next(answers)) as stop:
            stop_self()
            stop.check()
            self.step = 1
            stop.check()
        self.assertEqual(self.saved, [1])

    def test_only_the_main_thread_gets_signals(self) -> None:
        problems: List[BaseException] = []

        def enter() -> None:
            try:
                with di.preemption(self.save):
                    pass
            except ValueError as error:
                problems.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        self.assertEqual(len(problems), 1)


class Commands(unittest.TestCase):
    def run_command(self, program: str, is_stopped: bool) -> int:
        command = [sys.executable, "-m", "di_orchestrator", sys.executable, "-c", textwrap.dedent(program)]
        with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if is_stopped:
                process.send_signal(signal.SIGTERM)
            process.stdout.read()
            return process.wait()

    def test_a_command_that_is_stopped_exits_gracefully(self) -> None:
        program = """
            import signal, sys
            def stop(*_): sys.exit(1)
            signal.signal(signal.SIGTERM, stop)
            print("ready", flush=True)
            signal.pause()
        """
        self.assertEqual(self.run_command(program, is_stopped=True), 143)

    def test_a_command_that_a_signal_ends_exits_gracefully(self) -> None:
        self.assertEqual(self.run_command("import signal; print('ready', flush=True); signal.pause()", is_stopped=True), 143)

    def test_a_command_whose_process_was_preempted_exits_gracefully(self) -> None:
        worker = """
            import di_orchestrator as di
            with di.preemption(lambda: None, agree=lambda requested: True) as stop:
                stop.check()
        """
        launcher = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {textwrap.dedent(worker)!r}]) == 143)"
        self.assertEqual(self.run_command(launcher, is_stopped=False), 143)

    def test_a_command_whose_process_could_not_save_has_failed(self) -> None:
        worker = """
            import di_orchestrator as di
            with di.preemption(lambda: 1 / 0, agree=lambda requested: True) as stop:
                stop.check()
        """
        launcher = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {textwrap.dedent(worker)!r}]))"
        self.assertEqual(self.run_command(launcher, is_stopped=False), 1)

    def test_the_code_of_a_command_is_kept(self) -> None:
        self.assertEqual(self.run_command("print('ready'); raise SystemExit(7)", is_stopped=False), 7)
        self.assertEqual(self.run_command("print('ready')", is_stopped=False), 0)
        self.assertEqual(self.run_command("import os; print('ready', flush=True); os.kill(os.getpid(), 9)", is_stopped=False), 137)


class Programs(unittest.TestCase):
    def run_program(self, main: str) -> "subprocess.CompletedProcess[str]":
        # What is left at the end of Python must not run: gloo may hang there.
        program = f"import atexit, sys, di_orchestrator as di\natexit.register(print, 'late')\n{textwrap.dedent(main)}\ndi.run(main)"
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def test_a_program_ends_at_once_with_its_code(self) -> None:
        for main, code in (
            ("def main(): print('ready')", 0),
            ("def main(): print('ready'); sys.exit(7)", 7),
            ("def main(): print('ready'); sys.exit()", 0),
            ("def main(): print('ready'); raise di.Preempted", 143),
            ("def main(): print('ready'); sys.exit('no checkpoint')", 1),
            ("def main(): print('ready'); 1 / 0", 1),
        ):
            ended = self.run_program(main)
            self.assertEqual((ended.returncode, ended.stdout), (code, "ready\n"), main)
            self.assertEqual("ZeroDivisionError" in ended.stderr, "1 / 0" in main)
            self.assertEqual("no checkpoint" in ended.stderr, "no checkpoint" in main)

    def test_a_command_is_not_run_as_a_program(self) -> None:
        with self.assertRaisesRegex(TypeError, "run_command.. runs a command"):
            di.run(["torchrun", "train.py"])  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
