# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The library of DI Orchestrator for training programs, and for those who submit them.

A training program needs only the standard library. See docs/python.md of DI Orchestrator.
"""

from __future__ import annotations

from .checkpoint import Checkpoint, Saved
from .client import Answer, Client, new_key
from .coordinator import Coordinator, Replica, Replicas, Resources
from .errors import FieldError, JobFailedError, NotFoundError, NotInJobError, OrchestratorError, RefusedError, UnansweredError
from .history import History, PastJob
from .identity import COORDINATOR_LED, WORKER_LED, Identity, in_job, who_am_i
from .jobs import Event, Job, Jobs
from .launch import Launch
from .graceful import GRACEFUL_EXIT, Preempted, Preemption, preemption, run, run_command
from .profilings import (
    Batch,
    Gradient,
    Meter,
    Progress,
    Rate,
    RoleReport,
    Step,
    connect,
    device_name,
    make_report,
    report,
    report_role,
)
from .distributed import Rendezvous, rendezvous
from .worker import ACTIVE, JOINING, LEAVING, Member, Membership, Worker

__version__ = "2.0.0.dev0"

__all__ = [
    "ACTIVE",
    "Answer",
    "Batch",
    "COORDINATOR_LED",
    "Checkpoint",
    "Client",
    "Coordinator",
    "Event",
    "FieldError",
    "GRACEFUL_EXIT",
    "Gradient",
    "History",
    "Identity",
    "JOINING",
    "Job",
    "JobFailedError",
    "Jobs",
    "LEAVING",
    "Launch",
    "Member",
    "Membership",
    "Meter",
    "NotFoundError",
    "NotInJobError",
    "OrchestratorError",
    "PastJob",
    "Preempted",
    "Preemption",
    "Progress",
    "Rate",
    "RefusedError",
    "Rendezvous",
    "Replica",
    "Replicas",
    "Resources",
    "RoleReport",
    "Saved",
    "Step",
    "UnansweredError",
    "WORKER_LED",
    "Worker",
    "connect",
    "device_name",
    "in_job",
    "make_report",
    "new_key",
    "preemption",
    "rendezvous",
    "report",
    "report_role",
    "run",
    "run_command",
    "who_am_i",
]
