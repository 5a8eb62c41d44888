# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Where the processes of torch.distributed meet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, Mapping, MutableMapping, Optional

from .errors import NotInJobError
from .identity import Identity, who_am_i

#: The port of the first process, unless the template or the caller names another.
MASTER_PORT = 10314


@dataclass(frozen=True)
class Rendezvous:
    """The environment of one process of torch.distributed."""

    master_addr: str
    master_port: int
    world_size: int
    rank: int
    local_rank: int
    local_world_size: int

    def environ(self) -> Dict[str, str]:
        """Return the variables that `init_process_group("env://")` reads."""
        return {
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "WORLD_SIZE": str(self.world_size),
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }

    def apply(self, environ: Optional[MutableMapping[str, str]] = None) -> None:
        """Set the variables, by default in the environment of this process."""
        (os.environ if environ is None else environ).update(self.environ())


def rendezvous(
    *,
    processes: int = 1,
    local_rank: int = 0,
    own_task: bool = False,
    port: int = MASTER_PORT,
    environ: Optional[Mapping[str, str]] = None,
) -> Rendezvous:
    """Return where the processes meet.

    The first of these applies:

    1. Below torchrun: what torchrun says.
    2. In a DDP learner of a coordinator-led job: all GPUs of the learner, one process each. `local_rank` is that of this one.
    3. With `spec.clusterSpec: [Torch]`: the replicas of all tasks, with `processes` in each pod.
    4. In any worker-led job: the same, at `port` of the first replica. With `own_task`, only those of the own task.

    The values are those of the start of the pod. A job that is resized without a restart must use its own rendezvous.
    """
    environ = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in environ:
        return _told(environ, int(environ["RANK"]), int(environ["LOCAL_RANK"]), int(environ["LOCAL_WORLD_SIZE"]))
    if "START_RANK" in environ:
        local_world_size = int(environ["LOCAL_WORLD_SIZE"])
        _check_local_rank(local_rank, local_world_size)
        return _told(environ, int(environ["START_RANK"]) + local_rank, local_rank, local_world_size)
    _check_local_rank(local_rank, processes)
    if not own_task and all(name in environ for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")):
        rank = int(environ["RANK"]) * processes + local_rank
        return _told(environ, rank, local_rank, processes, pods=int(environ["WORLD_SIZE"]))
    me = who_am_i(environ)
    own, peers = _peers(me, own_task)
    return Rendezvous(peers[0], port, len(peers) * processes, peers.index(own) * processes + local_rank, local_rank, processes)


def _told(environ: Mapping[str, str], rank: int, local_rank: int, local: int, pods: Optional[int] = None) -> Rendezvous:
    world_size = int(environ["WORLD_SIZE"]) if pods is None else pods * local
    return Rendezvous(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), world_size, rank, local_rank, local)


def _peers(me: Identity, own_task: bool) -> "tuple[str, list[str]]":
    """Return the own address and those of all that meet, in the same order everywhere."""
    own = me.nodes[me.rank] if me.rank is not None and me.rank < len(me.nodes) else ""
    peers = [node for node in (me.task_nodes if own_task else me.nodes) if node]
    if own not in peers:
        raise NotInJobError(f"pod {me.pod} of a {me.protocol} job is not among the addresses that it was started with: {peers}")
    return own, peers


def _check_local_rank(local_rank: int, processes: int) -> None:
    if not 0 <= local_rank < processes:
        raise ValueError(f"local_rank is {local_rank}: must be from 0 to {processes - 1}")
