# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Replicas of a coordinator-led job. The names of the calls are those of DI-engine's `OperatorServer`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Tuple, Union

from .client import Client, new_key
from .identity import COORDINATOR_LED, Identity, who_am_i


@dataclass(frozen=True)
class Replicas:
    """The replicas of a job, or the DDP learners of an aggregator, as `pod.namespace:port`."""

    collectors: Tuple[str, ...] = ()
    #: A learner of several GPUs is listed as its aggregator.
    learners: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Replica:
    """One replica of a coordinator-led job."""

    namespace: str
    coordinator: str
    role: str
    name: str


@dataclass(frozen=True)
class Resources:
    """How many replicas, and the resources of each. What is None keeps that of the job's template."""

    replicas: int = 0
    cpus: Union[int, float, str, None] = None
    gpus: Union[int, str, None] = None
    memory: Union[int, str, None] = None

    def _body(self) -> Dict[str, Any]:
        body = {"replicas": self.replicas, "cpus": self.cpus, "gpus": self.gpus, "memory": self.memory}
        return {name: value for name, value in body.items() if value is not None}


class Coordinator:
    """The calls of a coordinator-led job.

    A coordinator asks for replicas, an aggregator lists its DDP learners, and collectors and learners only report. By
    default `me` is who_am_i(), and `client` calls the server that it names.

    Each call that changes something has an idempotency key of its own, so two equal calls are two requests. To repeat one
    after an UnansweredError, give both the same `key` of new_key().
    """

    def __init__(self, me: Optional[Identity] = None, client: Optional[Client] = None) -> None:
        self.me = me if me is not None else who_am_i()
        if self.me.protocol != COORDINATOR_LED:
            raise ValueError(f"job {self.me.job} is {self.me.protocol}: use Worker")
        self.client = client if client is not None else Client(self.me.server_url)
        self._caller: Optional[str] = None

    def get_replicas(self) -> Replicas:
        """List the replicas of this coordinator, or the DDP learners of this aggregator."""
        role = "aggregator" if self.me.role == "aggregator" else "coordinator"
        return _replicas(self._get({role: self.me.pod if role == "aggregator" else self._coordinator()}))

    def get_replica(self, name: str) -> Replica:
        """Describe one replica of the job by the name of its pod."""
        data = self._get({"name": name})
        return Replica(data["namespace"], data["coordinator"], data["replicaType"], data["name"])

    def watch_replicas(self, interval: float = 1.0) -> Iterator[Replicas]:
        """Yield the replicas now and after each change. The list is read every `interval` seconds."""
        known = None
        while True:
            current = self.get_replicas()
            if current != known:
                known = current
                yield current
            time.sleep(interval)

    def post_replicas(
        self, collectors: Union[int, Resources] = 0, learners: Union[int, Resources] = 0, *, key: Optional[str] = None
    ) -> Replicas:
        """Ask for this many more replicas, and return the new ones.

        A learner with more than one GPU becomes an aggregator with DDP learners. After a restart of the coordinator its
        first request returns what exists, and only the rest is created.
        """
        return self._write("POST", "/replicas", _demand(collectors), _demand(learners), key)

    def delete_replicas(self, n_collectors: int = 0, n_learners: int = 0, *, key: Optional[str] = None) -> Replicas:
        """Release this many replicas, and return them. They leave the list at once and run on for a drain time."""
        return self._write("DELETE", "/replicas", _demand(n_collectors), _demand(n_learners), key)

    def post_replicas_failed(
        self, collectors: Iterable[str] = (), learners: Iterable[str] = (), *, key: Optional[str] = None
    ) -> Replicas:
        """Report failed replicas by pod name or URL, and return those that replace them."""
        return self._write("POST", "/replicas/failed", list(collectors), list(learners), key)

    def post_profilings(self, data: Mapping[str, Any], *, deadline: Optional[float] = None) -> None:
        """Send a report as it is. report() and report_role() also check it."""
        body = {"namespace": self.me.namespace, "coordinator": self._coordinator(), "data": data}
        self.client.call("POST", self.me.api_version + "/profilings", body=body, deadline=deadline)

    def _coordinator(self) -> str:
        """Return the pod of the coordinator, which only it knows without a call."""
        if self.me.role == "coordinator":
            return self.me.pod
        if self._caller is None:
            self._caller = self.get_replica(self.me.pod).coordinator
        return self._caller

    def _get(self, query: Mapping[str, str]) -> Any:
        path = self.me.api_version + "/replicas"
        return self.client.call("GET", path, query={"namespace": self.me.namespace, **query}).data

    def _write(self, method: str, path: str, collectors: Any, learners: Any, key: Optional[str]) -> Replicas:
        # An aggregator reports its DDP learners in its own name.
        caller = self.me.pod if self.me.role == "aggregator" else self._coordinator()
        body = {"namespace": self.me.namespace, "coordinator": caller, "collectors": collectors, "learners": learners}
        return _replicas(self.client.call(method, self.me.api_version + path, body=body, key=key or new_key()).data)


def _demand(wanted: Union[int, Resources]) -> Dict[str, Any]:
    return (wanted if isinstance(wanted, Resources) else Resources(replicas=wanted))._body()


def _replicas(data: Mapping[str, Any]) -> Replicas:
    return Replicas(tuple(data["collectors"] or ()), tuple(data["learners"] or ()))
