# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs a command as the main program of a replica: see run_command()."""

from __future__ import annotations

import sys

from .graceful import run_command

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python3 -m di_orchestrator COMMAND [ARGUMENT...]")
    sys.exit(run_command(sys.argv[1:]))
