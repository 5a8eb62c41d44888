# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Who a process is in its job, by the environment that the operator sets."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from .errors import NotInJobError

#: The two protocols of jobs.
WORKER_LED = "worker-led"
COORDINATOR_LED = "coordinator-led"

_DEFAULT_PORTS = {"collector": 22270, "learner": 22271, "ddp-learner": 22271, "aggregator": 22272, "coordinator": 22273}
_WORKER_PORT = 22270
_REPLICA = re.compile(r"(?P<job>.+)-(?P<role>collector|ddp-learner|learner|aggregator)-[a-z0-9]{5}")
_COORDINATOR_SUFFIX = "-coordinator"


@dataclass(frozen=True)
class Identity:
    """Who this process is in its job."""

    #: WORKER_LED or COORDINATOR_LED.
    protocol: str
    namespace: str
    job: str
    #: The name of the pod.
    pod: str
    #: `coordinator`, `collector`, `learner`, `ddp-learner` or `aggregator`; in a worker-led job the name of the task.
    role: str
    #: The URL of di-server.
    server_url: str
    #: The port that peers expect this replica on. Worker-led: 22270, unless the template has another `di-port`.
    port: int
    #: Worker-led: the rank in the job, from 0; else None.
    rank: Optional[int] = None
    #: Worker-led: the index in the task, from 0; else None.
    index: Optional[int] = None
    #: Worker-led: how often the job was restarted or rescheduled; None if an earlier release created the pod.
    generation: Optional[int] = None
    #: Worker-led: the addresses of all replicas by rank. One is empty if its rank has no replica.
    nodes: Tuple[str, ...] = ()
    #: Worker-led: the addresses of the replicas of its own task.
    task_nodes: Tuple[str, ...] = ()
    #: Coordinator-led: the path of the protocol.
    api_version: str = "/v1alpha1"

    @property
    def job_id(self) -> str:
        """The name of the job in calls of the worker-led protocol."""
        parts = [self.namespace, self.job]
        if self.generation is not None:
            parts.append(str(self.generation))
        return ".".join(parts)

    @property
    def is_first(self) -> bool:
        """Whether this replica acts for the job: it has the lowest rank, or is the coordinator."""
        if self.protocol == COORDINATOR_LED:
            return self.role == "coordinator"
        return self.rank == next((rank for rank, node in enumerate(self.nodes) if node), 0)


def in_job(environ: Optional[Mapping[str, str]] = None) -> bool:
    """Report whether this process runs in a pod of a job."""
    environ = os.environ if environ is None else environ
    return "DI_JOB_ID" in environ or "KUBERNETES_SERVER_URL" in environ


def who_am_i(environ: Optional[Mapping[str, str]] = None) -> Identity:
    """Return who this process is. Raises NotInJobError outside of a job."""
    environ = os.environ if environ is None else environ
    if "DI_JOB_ID" in environ:
        return _worker(environ)
    if "KUBERNETES_SERVER_URL" in environ:
        return _replica(environ)
    raise NotInJobError("neither DI_JOB_ID nor KUBERNETES_SERVER_URL is set: this process runs in no pod of a DIJob")


def _worker(environ: Mapping[str, str]) -> Identity:
    # v1.1 wrote namespace/name.
    parts = re.split(r"[./]", environ["DI_JOB_ID"])
    if len(parts) not in (2, 3) or not all(parts):
        raise NotInJobError(f"DI_JOB_ID is {environ['DI_JOB_ID']!r}: must be namespace.name.generation")
    namespace, job = parts[:2]
    rank, nodes = _number(environ, "DI_RANK"), _addresses(environ, "DI_NODES")
    own = nodes[rank] if rank < len(nodes) else ""
    pod = (own or environ.get("HOSTNAME", "")).split(".")[0]
    # A pod's name is job-task-index.
    task, _, index = pod[len(job) + 1 :].rpartition("-")
    variable = "DI_" + task.upper().replace("-", "_") + "_NODES"
    return Identity(
        protocol=WORKER_LED,
        namespace=namespace,
        job=job,
        pod=pod,
        role=task,
        server_url=_required(environ, "DI_SERVER_URL"),
        port=_WORKER_PORT,
        rank=rank,
        index=int(index) if index.isdigit() else None,
        generation=int(parts[2]) if len(parts) == 3 else None,
        nodes=nodes,
        task_nodes=_addresses(environ, variable),
    )


def _replica(environ: Mapping[str, str]) -> Identity:
    pod = _required(environ, "KUBERNETES_POD_NAME")
    named = _REPLICA.fullmatch(pod)
    if pod.endswith(_COORDINATOR_SUFFIX):
        job, role = pod[: -len(_COORDINATOR_SUFFIX)], "coordinator"
    elif named:
        job, role = named["job"], named["role"]
        # The job of a learner may be named ...-ddp. Only DDP learners have a start rank.
        if role == "learner" and job.endswith("-ddp") and "START_RANK" in environ:
            job, role = job[: -len("-ddp")], "ddp-learner"
    else:
        raise NotInJobError(f"KUBERNETES_POD_NAME is {pod!r}: must be the name of a replica, such as job-collector-x2c4v")
    variable = role.replace("ddp-", "").upper() + "_PORT"
    return Identity(
        protocol=COORDINATOR_LED,
        namespace=_required(environ, "KUBERNETES_POD_NAMESPACE"),
        job=job,
        pod=pod,
        role=role,
        server_url=environ["KUBERNETES_SERVER_URL"],
        port=_number(environ, variable) if variable in environ else _DEFAULT_PORTS[role],
        api_version="/" + environ.get("KUBERNETES_SERVER_API_VERSION", "/v1alpha1").strip("/"),
    )


def _addresses(environ: Mapping[str, str], variable: str) -> Tuple[str, ...]:
    """Return the addresses of a variable, or of the file that it names because they are too many."""
    value = environ.get(variable, "")
    if value.startswith("@"):
        with open(value[1:], encoding="utf-8") as file:
            value = file.read().rstrip("\n")
    return tuple(value.split(",")) if value else ()


def _required(environ: Mapping[str, str], variable: str) -> str:
    value = environ.get(variable, "")
    if not value:
        raise NotInJobError(f"{variable} is not set: the operator sets it in every pod of a job")
    return value


def _number(environ: Mapping[str, str], variable: str) -> int:
    value = _required(environ, variable)
    if not value.isdigit():
        raise NotInJobError(f"{variable} is {value!r}: must be a number")
    return int(value)
