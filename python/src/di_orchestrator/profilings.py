# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Reports of a job about its speed, noise and progress, and of workers about themselves. Schema version 1."""

from __future__ import annotations

import http.client
import logging
import math
import numbers
import os
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields
from decimal import Decimal
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

from .client import Client
from .coordinator import Coordinator
from .errors import OrchestratorError, RefusedError
from .identity import COORDINATOR_LED, Identity, who_am_i
from .worker import Worker

#: The version of the schema.
VERSION = 1

_log = logging.getLogger(__name__)

_MAX_REPLICAS = 100_000
_MAX_BATCH = 1 << 40
_MIN_SECONDS, _MAX_SECONDS = 1e-7, 1e5
_MAX_NUMBER = 1e30
_MAX_UNIT = 64
_MAX_DEVICE = 63
_MAX_COUNT = 1 << 53
_MAX_TIME = 1e12
_ROLE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: How long a report may take. A later report repeats what it says.
_REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class Batch:
    """The bounds of what a job can train with, in samples. 0 is the default of a field."""

    #: The batch that the job was tuned for.
    initial: int
    #: The largest batch of a step; by default `initial`.
    max: int = 0
    #: The least and the most samples of one replica and pass.
    min_per_replica: int = 0
    max_per_replica: int = 0
    #: Whether the job makes one pass in each step.
    no_accumulation: bool = False

    def _check(self, name: str) -> None:
        _integer(name + ".initial", self.initial, 1, _MAX_BATCH)
        _optional(name + ".max", self.max, self.initial, _MAX_BATCH)
        _optional(name + ".min_per_replica", self.min_per_replica, 1, self.max or self.initial)
        _optional(name + ".max_per_replica", self.max_per_replica, self.min_per_replica or 1, _MAX_BATCH)


def device_name() -> str:
    """Return the type of the GPUs that this process trains on, as the label `nvidia.com/gpu.product` of its node has it.

    The variable DI_DEVICE of the environment takes precedence. Otherwise it is the device of PyTorch, if this process has
    begun to use CUDA: a question would claim memory of a GPU that nothing else uses. Empty if it is not known.
    """
    given = os.environ.get("DI_DEVICE", "")
    # A build without CUDA may lack the module.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if given or cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return given
    # NVIDIA's GPU feature discovery names nodes so.
    known = re.sub(r"[^-A-Za-z0-9_. ]", "", cuda.get_device_name())
    return "-".join(known.split())[:_MAX_DEVICE]


@dataclass(frozen=True)
class Step:
    """A measured training step."""

    #: The nodes, and the replicas of the elastic task, that trained.
    nodes: int
    replicas: int
    #: The batch of one replica and pass.
    samples: int
    #: The mean duration of a pass that synchronizes gradients.
    seconds: float
    #: The mean duration without synchronization; 0 if it is not measured.
    compute_seconds: float = 0.0
    #: The type of the GPUs; by default what device_name() returns when the step is made.
    device: str = field(default_factory=device_name)

    def _check(self, name: str) -> None:
        _place(name, self.nodes, self.replicas)
        _integer(name + ".samples", self.samples, 1, _MAX_BATCH)
        _number(name + ".seconds", self.seconds, _MIN_SECONDS, _MAX_SECONDS)
        if self.compute_seconds:
            _number(name + ".compute_seconds", self.compute_seconds, _MIN_SECONDS, self.seconds)
        if len(self.device) > _MAX_DEVICE:
            raise ValueError(f"{name}.device has {len(self.device)} characters: must have at most {_MAX_DEVICE}")


@dataclass(frozen=True)
class Rate:
    """A measured rate, for jobs that know only this. With a batch it counts samples, else any one unit of work."""

    nodes: int
    replicas: int
    per_second: float
    #: The total batch of a step; 0 if the rate does not count samples.
    batch: int = 0
    #: The passes of a step before the one that synchronizes.
    accumulation: int = 0

    def _check(self, name: str) -> None:
        _place(name, self.nodes, self.replicas)
        _optional(name + ".batch", self.batch, 1, _MAX_BATCH)
        _integer(name + ".accumulation", self.accumulation, 0, _MAX_REPLICAS)
        _number(name + ".per_second", self.per_second, self.replicas / _MAX_SECONDS, 1e12)
        if self.batch:
            one_pass = self.batch / (self.accumulation + 1)
            _number(name + ".per_second", self.per_second, one_pass / _MAX_SECONDS, one_pass / _MIN_SECONDS)


@dataclass(frozen=True)
class Gradient:
    """The noise of the gradients at the initial batch: squared norm of the mean, and variance."""

    sqr: float
    var: float

    def _check(self, name: str) -> None:
        _number(name + ".sqr", self.sqr, 0, _MAX_NUMBER)
        _number(name + ".var", self.var, 0, _MAX_NUMBER)


@dataclass(frozen=True)
class Progress:
    """The part of its work that a job has done."""

    done: float
    #: The whole work; 0 if it is not known.
    total: float = 0.0
    #: What is counted. It is only shown.
    unit: str = ""

    def _check(self, name: str) -> None:
        if len(self.unit) > _MAX_UNIT:
            raise ValueError(f"{name}.unit has {len(self.unit)} characters: must have at most {_MAX_UNIT}")
        _number(name + ".done", self.done, 0, _MAX_NUMBER)
        _number(name + ".total", self.total, 0, _MAX_NUMBER)


@dataclass(frozen=True)
class RoleReport:
    """The report of a worker about itself. Samples and the three durations are counters since its start."""

    #: The name or the type of the worker's task.
    role: str
    #: Tells workers apart that one program reports for.
    rank: int = 0
    #: Seconds by the worker's clock; 0 for the time of arrival.
    time: float = 0.0
    #: The samples that it produced, or took from the queue.
    samples: float = 0.0
    #: How long it worked, without the time that it waited.
    busy_seconds: float = 0.0
    #: How long a producer waited because the queue was full, or for a policy.
    blocked_seconds: float = 0.0
    #: How long a consumer waited for samples.
    starved_seconds: float = 0.0
    #: The version of the policy that it has.
    policy_version: float = 0.0
    #: The samples that a producer has begun and not delivered.
    in_flight: float = 0.0
    #: The samples that wait for the consumer, and how many may.
    queue: float = 0.0
    queue_capacity: float = 0.0
    #: The samples of a step.
    batch_samples: float = 0.0
    #: How many versions old a sample may be when it is consumed, and how old the last ones were.
    max_staleness: float = 0.0
    staleness_mean: float = 0.0
    staleness_max: float = 0.0
    #: How many times a sample is consumed; 0 for once.
    replay_ratio: float = 0.0

    def data(self) -> Dict[str, Any]:
        """Return the report as JSON. Raises ValueError if a value is beyond its bounds."""
        if not _ROLE.fullmatch(self.role):
            raise ValueError(f"profilings.role is {self.role[:80]!r}: must be the name or the type of a task")
        _integer("profilings.rank", self.rank, 0, _MAX_REPLICAS - 1)
        bounds = {"time": _MAX_TIME, "busy_seconds": _MAX_TIME, "blocked_seconds": _MAX_TIME, "starved_seconds": _MAX_TIME}
        bounds.update(batch_samples=_MAX_BATCH, max_staleness=1e6, staleness_mean=1e6, staleness_max=1e6, replay_ratio=1e6)
        given = {"version": VERSION, **_given(self)}
        for name, value in given.items():
            if name not in ("version", "role", "rank"):
                _number("profilings." + name, value, 0, bounds.get(name, _MAX_COUNT))
        return given


def make_report(
    *,
    batch: Optional[Batch] = None,
    steps: Sequence[Step] = (),
    throughput: Sequence[Rate] = (),
    gradient: Optional[Gradient] = None,
    progress: Optional[Progress] = None,
    **others: Any,
) -> Dict[str, Any]:
    """Return a report of the job as JSON. Raises ValueError if a value is beyond its bounds.

    `others` are fields that the schema does not have. They are stored and ignored.
    """
    for i, step in enumerate(steps):
        step._check(f"profilings.steps[{i}]")
    for i, rate in enumerate(throughput):
        rate._check(f"profilings.throughput[{i}]")
        if bool(rate.batch) != bool(throughput[0].batch):
            raise ValueError(
                f"profilings.throughput[{i}].batch is {rate.batch} and profilings.throughput[0].batch is "
                f"{throughput[0].batch}: all rates must have a batch, or none"
            )
    made: Dict[str, Any] = {**others, "version": VERSION}
    if steps:
        made["steps"] = [_given(step) for step in steps]
    if throughput:
        made["throughput"] = [_given(rate) for rate in throughput]
    parts: Dict[str, Union[Batch, Gradient, Progress, None]] = {"batch": batch, "gradient": gradient, "progress": progress}
    for name, part in parts.items():
        if part is not None:
            part._check("profilings." + name)
            made[name] = _given(part)
    return made


def connect(me: Optional[Identity] = None, client: Optional[Client] = None) -> Union[Worker, Coordinator]:
    """Return the calls of this process's job: a Worker or a Coordinator."""
    me = me if me is not None else who_am_i()
    return Coordinator(me, client) if me.protocol == COORDINATOR_LED else Worker(me, client)


def report(
    *,
    batch: Optional[Batch] = None,
    steps: Sequence[Step] = (),
    throughput: Sequence[Rate] = (),
    gradient: Optional[Gradient] = None,
    progress: Optional[Progress] = None,
    to: Union[Worker, Coordinator, None] = None,
    **others: Any,
) -> bool:
    """Report how fast the job trains, how noisy its gradients are and how far it is.

    Each report replaces the one before, so it has all that the job knows. The first replica reports for the job, once a
    minute. Raises ValueError if a value is beyond its bounds, and RefusedError if di-server refuses the report. A di-server
    that does not answer is no reason to stop training: the result is then False, and the reason is logged.
    """
    data = make_report(batch=batch, steps=steps, throughput=throughput, gradient=gradient, progress=progress, **others)
    return _send(data, to)


def report_role(to: Union[Worker, Coordinator, None] = None, **values: Any) -> bool:
    """Report what this worker produces or consumes, by the fields of RoleReport. `role` and `time` have defaults.

    Errors are those of report().
    """
    to = to if to is not None else connect()
    values = {"role": to.me.role, "time": time.time(), **values}
    return _send(RoleReport(**values).data(), to)


@dataclass
class Meter:
    """Counts what a worker produces or consumes, and reports it every `interval` seconds.

    Numbers that are no counters, such as `queue`, are arguments of report(). `to` is as of report().
    """

    interval: float = 10.0
    to: Union[Worker, Coordinator, None] = None
    samples: float = 0.0
    seconds: Dict[str, float] = field(default_factory=dict)
    _reported: float = field(default=-math.inf, repr=False)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count the time of the body as work."""
        with self._count("busy_seconds"):
            yield

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Count the time of the body as that of a producer that waits for room in the queue, or for a policy."""
        with self._count("blocked_seconds"):
            yield

    @contextmanager
    def starved(self) -> Iterator[None]:
        """Count the time of the body as that of a consumer that waits for samples."""
        with self._count("starved_seconds"):
            yield

    def report(self, **values: Any) -> bool:
        """Report the counters with the given numbers, unless the last report is newer than the interval.

        The result is False if nothing was reported.
        """
        now = time.monotonic()
        if now - self._reported < self.interval:
            return False
        self._reported = now
        return report_role(self.to, samples=self.samples, **self.seconds, **values)

    @contextmanager
    def _count(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


def _send(data: Mapping[str, Any], to: Union[Worker, Coordinator, None]) -> bool:
    try:
        (to if to is not None else connect()).post_profilings(data, deadline=_REPORT_SECONDS)
    except RefusedError as error:
        # Status 200: a policy of the cluster denies the write, which is no mistake of the program.
        if error.status != http.client.OK:
            raise
        _log.warning("A report was refused: %s", error)
        return False
    except OrchestratorError as error:
        _log.warning("A report was not sent: %s", error)
        return False
    return True


def _given(part: Any) -> Dict[str, Any]:
    """Return the fields of a part that are required or differ from their defaults."""
    required = {each.name for each in fields(part) if each.default is MISSING and each.default_factory is MISSING}
    return {name: _plain(value) for name, value in asdict(part).items() if value or name in required}


def _plain(value: Any) -> Any:
    """Return a number of another library, such as numpy, as one that JSON has."""
    if isinstance(value, (bool, str)):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _place(name: str, nodes: int, replicas: int) -> None:
    _integer(name + ".replicas", replicas, 1, _MAX_REPLICAS)
    _integer(name + ".nodes", nodes, 1, replicas)


def _optional(name: str, value: int, least: int, most: int) -> None:
    if value:
        _integer(name, value, least, most)


def _integer(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}: must be from {least} to {most}")


def _number(name: str, value: float, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} is {value!r}: must be from {_text(least)} to {_text(most)}")
    if not least <= value <= most:
        raise ValueError(f"{name} is {_text(value)}: must be from {_text(least)} to {_text(most)}")


def _text(value: float) -> str:
    """Return a number as the operator writes it: its shortest digits, with an exponent from 1e+06 and below 1e-04."""
    number = Decimal(repr(float(value))).normalize()
    if not number or not number.is_finite() or -4 <= number.adjusted() < 6:
        return format(number, "f")
    sign, digits, _ = number.as_tuple()
    mantissa = "".join(map(str, digits))
    return f"{'-' * sign}{mantissa[0]}{'.' if len(digits) > 1 else ''}{mantissa[1:]}e{number.adjusted():+03d}"
