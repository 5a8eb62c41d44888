# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Does what allreduce.py does, by MPICH. Debian's mpi4py is for Open MPI, so this calls the library itself.

The constants are those of MPICH's mpi.h, which its ABI fixes.
"""

import ctypes
import sys

WORLD, INT, SUM = 0x44000000, 0x4C000405, 0x58000003

mpi = ctypes.CDLL("libmpich.so.12")
mpi.MPI_Init(None, None)
size, rank, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_size(WORLD, ctypes.byref(size))
mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
want = size.value * (size.value + 1) // 2
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10):
    own = ctypes.c_int(rank.value + 1)
    mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, INT, SUM, WORLD)
    if total.value != want:
        sys.exit(f"step {step}: the sum of {size.value} ranks is {total.value}, want {want}")
if rank.value == 0:
    print(f"ranks={size.value} sum={total.value} ", flush=True)
mpi.MPI_Finalize()
