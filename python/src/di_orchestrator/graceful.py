# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Save the state of a replica that is preempted, and exit so that this counts as no failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import contextmanager
from types import FrameType
from typing import Callable, Iterator, NoReturn, Optional, Sequence

#: The exit code of a replica of a preemptible job that saved its state.
GRACEFUL_EXIT = 143

# The variable with the process id of run_command(), for the processes of its command.
_RUNNER = "DI_RUNNER_PID"


class Preempted(SystemExit):
    """Ends the process with GRACEFUL_EXIT. preemption() raises it."""

    def __init__(self) -> None:
        super().__init__(GRACEFUL_EXIT)


class Preemption:
    """Whether this replica must stop."""

    def __init__(self, agree: Optional[Callable[[bool], bool]] = None) -> None:
        self._requested = threading.Event()
        self._agree = agree

    @property
    def requested(self) -> bool:
        """Whether SIGTERM has arrived at this replica."""
        return self._requested.is_set()

    def check(self) -> None:
        """Raise Preempted if the replica must stop. Call it between two steps, where the state is consistent."""
        requested = self.requested
        if self._agree(requested) if self._agree is not None else requested:
            self._requested.set()
            raise Preempted

    def _request(self, _signal: int, _frame: Optional[FrameType]) -> None:
        self._requested.set()


@contextmanager
def preemption(save: Callable[[], object], *, agree: Optional[Callable[[bool], bool]] = None) -> Iterator[Preemption]:
    """Run the body until it ends or the replica is preempted. Then call `save` and exit with 143.

    A pod gets SIGTERM before its deletion. The signal changes nothing but `requested`, so it never interrupts a step: the
    body calls check() between steps. If the body ends after SIGTERM arrived, the state is saved all the same, and the
    exit code is 143; with `agree`, only check() decides. Other exceptions of the body, and those of `save`, end the process
    as usual, without saving again.

    Replicas that synchronize with each other must stop at the same step. `agree` makes one answer of the answers of all:
    it gets whether this replica must stop, and returns whether any must, for example by an all-reduce.

    The operator's grace period is the template's `terminationGracePeriodSeconds`, 30 by default: `save` must be faster. Only
    the main thread may use this.
    """
    stop = Preemption(agree)
    earlier = signal.signal(signal.SIGTERM, stop._request)
    try:
        try:
            yield stop
        except Preempted:
            _save(save)
            raise
        if stop.requested and agree is None:
            _save(save)
            raise Preempted
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _save(save: Callable[[], object]) -> None:
    """Save, and stop a launcher such as torchrun, which would wait five minutes for the launchers of other pods."""
    save()
    if _RUNNER in os.environ:
        os.kill(int(os.environ[_RUNNER]), signal.SIGTERM)


def run(program: Callable[[], object]) -> NoReturn:
    """Run a function, and end the process with its exit code at once.

    PyTorch's gloo closes its connections when Python ends, and may then wait forever for a peer that has ended already. Let this
    be the last call of a program: nothing after it runs, and no handler of atexit. run_command() is for commands.
    """
    if not callable(program):
        raise TypeError(f"run() takes a function, such as main, and not {program!r}: run_command() runs a command")
    code = 0
    try:
        program()
    except SystemExit as ended:
        code = _exit_code(ended)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exit_code(ended: SystemExit) -> int:
    """Return the exit code that Python itself would have, and print a message that sys.exit() was given."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print(ended.code, file=sys.stderr)
    return 1


def run_command(command: Sequence[str]) -> int:
    """Run a command, such as torchrun, that does not exit with 143 itself. Returns the exit code for the container.

    SIGTERM is passed on. If the command then ends with an error, the code is 143; its processes must have saved by then.
    preemption() in one of its processes sends the signal too, because with `agree` another pod may be the one that is deleted.
    `python3 -m di_orchestrator COMMAND` does this.
    """
    process: Optional["subprocess.Popen[bytes]"] = None
    is_requested = False

    def forward(_signal: int, _frame: Optional[FrameType]) -> None:
        """Pass the first signal on. A second one would interrupt what torchrun does after the first."""
        nonlocal is_requested
        if process is not None and not is_requested:
            process.send_signal(signal.SIGTERM)
        is_requested = True

    earlier = signal.signal(signal.SIGTERM, forward)
    try:
        process = subprocess.Popen(list(command), env={**os.environ, _RUNNER: str(os.getpid())})
        if is_requested:
            process.send_signal(signal.SIGTERM)
        code = process.wait()
    finally:
        signal.signal(signal.SIGTERM, earlier)
    if code and is_requested:
        return GRACEFUL_EXIT
    return code if code >= 0 else 128 - code
