# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Prints reports as JSON, one a line, each with the error of this library or null. test/python parses them as the operator does."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List
from unittest import mock

import di_orchestrator as di
from di_orchestrator import profilings

BIG = 1 << 40
CASES: List[Dict[str, Any]] = [
    {},
    {"steps": [di.Step(1, 2, 64, 0.25), di.Step(2, 4, 32, 0.25, 0.125)]},
    *({"steps": [di.Step(1, 1, 1, seconds)]} for seconds in (1e-7, 1e-8, 0.00012345, 1e5, 123456.7, -0.2, 0)),
    *({"steps": [di.Step(nodes, replicas, 1, 1)]} for nodes, replicas in ((0, 1), (3, 2), (1, 100_000), (1, 100_001), (-1, 1))),
    *({"steps": [di.Step(1, 1, samples, 1)]} for samples in (0, BIG, BIG + 1)),
    *({"steps": [di.Step(1, 1, 1, 2.5, seconds)]} for seconds in (2.5, 2.6, -1, 1e-8)),
    {"steps": [di.Step(1, 1, 1, 1), di.Step(1, 1, 0, 1)]},
    *({"steps": [di.Step(1, 1, 1, 1, device=device)]} for device in ("Tesla-T4", "x" * 63, "x" * 64, "ü" * 63)),
    *({"throughput": [di.Rate(1, 4, rate)]} for rate in (0, 4e-5, 1e12, 1.5e12, 1234567.5)),
    *({"throughput": [di.Rate(1, 1, rate, batch=1_000_000, accumulation=3)]} for rate in (0.5, 2.5, 1e12)),
    *({"throughput": [di.Rate(1, 1, 10, batch=batch)]} for batch in (-4, BIG, BIG + 1)),
    *({"throughput": [di.Rate(1, 1, 10, accumulation=passes)]} for passes in (-1, 100_000, 100_001)),
    {"throughput": [di.Rate(1, 1, 1, batch=8), di.Rate(1, 2, 1)]},
    *({"batch": di.Batch(initial)} for initial in (0, 1, BIG, BIG + 1)),
    *({"batch": di.Batch(128, *bounds)} for bounds in ((64,), (4096, 16, 256), (4096, 8192), (0, 256), (256, 32, 16), (0, 0, -1))),
    {"batch": di.Batch(128, no_accumulation=True)},
    *({"gradient": di.Gradient(sqr, 1)} for sqr in (0, 1e30, 1e31, -1e-5)),
    *({"gradient": di.Gradient(1, var)} for var in (0.52, 2e30)),
    *({"progress": di.Progress(*numbers)} for numbers in ((-1,), (1, 1e31), (1, 2, "x" * 64), (1, 2, "ü" * 65))),
]


def main() -> None:
    """Print the reports."""
    for case in CASES:
        error = None
        try:
            di.make_report(**case)
        except ValueError as problem:
            error = str(problem)
        allow: Callable[..., None] = lambda *_: None
        limits = {"_MAX_UNIT": 1000, "_MAX_DEVICE": 1000}
        with mock.patch.multiple(profilings, _integer=allow, _optional=allow, _number=allow, _place=allow, **limits):
            try:
                made = di.make_report(**case)
            except ValueError:
                # All rates have a batch, or none.
                made = {"version": 1, "throughput": [profilings._given(rate) for rate in case["throughput"]]}
        print(json.dumps({"report": made, "error": error}))


if __name__ == "__main__":
    main()
