# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Replicas and membership of a worker-led job."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from .client import Client, new_key
from .errors import UnansweredError
from .identity import WORKER_LED, Identity, who_am_i

#: The states of a member.
JOINING, ACTIVE, LEAVING = "joining", "active", "leaving"


@dataclass(frozen=True)
class Member:
    """One replica of a job that holds state."""

    name: str
    task: str
    rank: int
    index: int
    #: `ip:port`; empty while the pod has none.
    address: str
    #: JOINING, ACTIVE or LEAVING.
    state: str


@dataclass(frozen=True)
class Membership:
    """The members of a job by rank. The version grows with every change."""

    version: int
    members: Tuple[Member, ...]

    def of(self, task: str, state: str = ACTIVE) -> Tuple[Member, ...]:
        """Return the members of a task in one state."""
        return tuple(member for member in self.members if member.task == task and member.state == state)


class Worker:
    """The calls of a worker-led job. By default `me` is who_am_i(), and `client` calls the server that it names."""

    def __init__(self, me: Optional[Identity] = None, client: Optional[Client] = None) -> None:
        self.me = me if me is not None else who_am_i()
        if self.me.protocol != WORKER_LED:
            raise ValueError(f"job {self.me.job} is {self.me.protocol}: use Coordinator")
        self.client = client if client is not None else Client(self.me.server_url)
        self._base = f"/v2alpha1/{self.me.job_id}/"

    def get_replicas(self) -> Tuple[str, ...]:
        """List the address (`ip:port`) of each replica by rank. An address is empty while its pod has none."""
        return tuple(self.client.call("GET", self._base + "replicas").data or ())

    def watch_replicas(self, interval: float = 2.0) -> Iterator[Tuple[str, ...]]:
        """Yield the addresses now and after each change. The list is read every `interval` seconds."""
        known = None
        while True:
            current = self.get_replicas()
            if current != known:
                known = current
                yield current
            time.sleep(interval)

    def post_replicas(self, replicas: int, *, key: Optional[str] = None) -> str:
        """Ask for this many more replicas of the elastic task.

        Returns the message of di-server, which says so if the bounds of the job grant fewer.
        """
        return self._resize("POST", replicas, key)

    def delete_replicas(self, replicas: int, *, key: Optional[str] = None) -> str:
        """Release this many replicas of the elastic task. Returns the message of di-server."""
        return self._resize("DELETE", replicas, key)

    def post_profilings(self, data: Mapping[str, Any], *, deadline: Optional[float] = None) -> None:
        """Send a report as it is. report() and report_role() also check it."""
        self.client.call("POST", self._base + "profilings", body={"data": data}, deadline=deadline)

    def membership(self) -> Membership:
        """Return the members of a job that holds state."""
        return _membership(self.client.call("GET", self._base + "membership").data)

    def watch_membership(self, version: int = 0) -> Iterator[Membership]:
        """Yield each new membership, from the first one whose version is not `version`.

        di-server holds each call until there is one. While di-server does not answer, the iterator waits.
        """
        while True:
            query = {"watch": "true", "version": version}
            try:
                data = self.client.call("GET", self._base + "membership", query=query).data
            except UnansweredError:
                continue
            # Null members: nothing has changed.
            if data["members"] is not None and data["version"] != version:
                version = data["version"]
                yield _membership(data)

    def acknowledge(self, version: int) -> int:
        """Acknowledge a version of the membership for this pod. Returns the current version."""
        return self._ack({"version": version})

    def refuse(self, version: int, reason: str) -> int:
        """Refuse a version of the membership for this pod. Returns the current version."""
        return self._ack({"version": version, "refuse": True, "reason": reason})

    def _ack(self, body: Dict[str, Any]) -> int:
        # The pod names itself, so that a pod in the network of its node may acknowledge without a token.
        body["member"] = self.me.pod
        return int(self.client.call("POST", self._base + "membership/ack", body=body).data["version"])

    def _resize(self, method: str, replicas: int, key: Optional[str]) -> str:
        return self.client.call(method, self._base + "replicas", body={"replicas": replicas}, key=key or new_key()).message


def _membership(data: Mapping[str, Any]) -> Membership:
    fields = ("name", "task", "rank", "index", "address", "state")
    return Membership(data["version"], tuple(Member(*(member[f] for f in fields)) for member in data["members"] or ()))
