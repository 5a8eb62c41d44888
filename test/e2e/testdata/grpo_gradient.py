# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Compares the gradient of the example's language model with differences of what it is the gradient of."""

import sys

import numpy as np

sys.path.insert(0, "/examples")
from policy import Policy  # noqa: E402

random = np.random.default_rng(1)
policy = Policy(vocabulary=5, context=4, hidden=6, seed=1)
policy.weights = {name: random.normal(size=weights.shape) for name, weights in policy.weights.items()}
prompts, completions, coefficients = random.integers(0, 5, (3, 2)), random.integers(0, 5, (3, 3)), random.normal(size=(3, 3))
gradient = policy.gradient(prompts, completions, lambda now: coefficients)
worst = 0.0
for name, weights in policy.weights.items():
    for place in np.ndindex(weights.shape):
        values = []
        for step in (1e-5, -2e-5):
            weights[place] += step
            values.append((coefficients * policy.log_chances(prompts, completions)).sum())
        weights[place] += 1e-5
        worst = max(worst, abs((values[0] - values[1]) / 2e-5 - gradient[name][place]))
print(f"worst difference {worst:.1e}")
sys.exit(int(worst > 1e-6))
