# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sums numbers of all ranks, and prints the sum and the hosts of the ranks.

The sum of rank + 1 over n ranks is n * (n + 1) / 2, so a lost or doubled rank changes it.
"""

import socket
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
want = world.size * (world.size + 1) // 2
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10):
    total = world.allreduce(world.rank + 1, op=MPI.SUM)
    if total != want:
        sys.exit(f"step {step}: the sum of {world.size} ranks is {total}, want {want}")
hosts = world.gather(socket.gethostname(), root=0)
if world.rank == 0:
    print(f"ranks={world.size} sum={total} hosts={','.join(sorted(set(hosts)))}", flush=True)
