# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""A small language model in numpy: the last tokens, a hidden layer, and the odds of the next token.

It is the neural language model of Bengio et al. (2003), and stands for yours: grpo.py uses `sample`, `log_chances`,
`gradient` and `step` only. All arrays are those of a batch of sequences, of the shape (sequences, tokens).
"""

from __future__ import annotations

from typing import Callable, Dict, Tuple

import numpy as np

Arrays = Dict[str, np.ndarray]


class Policy:
    """The weights, and Adam's moments of them."""

    def __init__(self, vocabulary: int, context: int, hidden: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.vocabulary, self.context = vocabulary, context
        weights = {
            "first": random.normal(0, context**-0.5, (context * vocabulary, hidden)),
            "bias": np.zeros(hidden),
            "last": random.normal(0, 0.1 * hidden**-0.5, (hidden, vocabulary)),
        }
        self.weights: Arrays = {name: array.astype(np.float32) for name, array in weights.items()}
        self.moments: Arrays = {f"{order}/{name}": np.zeros_like(w) for name, w in self.weights.items() for order in "mv"}

    def sample(self, prompts: np.ndarray, length: int, end: int, random: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
        """Return completions of the prompts, and the logarithm of the chance of each token. After an end all tokens are ends."""
        tokens = prompts
        chances = np.zeros((len(prompts), length), np.float32)
        is_over = np.zeros(len(prompts), bool)
        for t in range(length):
            logs = self._forward(self._windows(tokens, 1))[1][:, 0]
            # The largest of the log-odds with Gumbel noise is a sample.
            token = np.where(is_over, end, (logs + random.gumbel(size=logs.shape)).argmax(-1))
            chances[:, t] = np.take_along_axis(logs, token[:, None], -1)[:, 0]
            tokens = np.concatenate([tokens, token[:, None]], 1)
            is_over |= token == end
        return tokens[:, prompts.shape[1] :], chances

    def log_chances(self, prompts: np.ndarray, completions: np.ndarray) -> np.ndarray:
        """Return the logarithm of the chance of each token of the completions."""
        logs = self._forward(self._windows_of(prompts, completions))[1]
        return np.take_along_axis(logs, completions[..., None], -1)[..., 0]

    def gradient(self, prompts: np.ndarray, completions: np.ndarray, weigh: Callable[[np.ndarray], np.ndarray]) -> Arrays:
        """Return the gradient of the sum over all tokens of coefficient times logarithm of the chance.

        `weigh` gets these logarithms and returns the coefficients, which count as constants.
        """
        windows = self._windows_of(prompts, completions)
        hidden, logs = self._forward(windows)
        chosen = completions[..., None]
        coefficients = weigh(np.take_along_axis(logs, chosen, -1)[..., 0])[..., None]
        # The derivative of a log-softmax by its log-odds: 1 at the chosen token, less the chances of all.
        odds = -np.exp(logs) * coefficients
        np.put_along_axis(odds, chosen, np.take_along_axis(odds, chosen, -1) + coefficients, -1)
        inner = (odds @ self.weights["last"].T) * (1 - hidden**2)
        # The rows of `first` that were read, as ones.
        read = np.zeros((*inner.shape[:2], len(self.weights["first"])), np.float32)
        np.put_along_axis(read, windows, 1, -1)
        both = (0, 1), (0, 1)
        return {"first": np.tensordot(read, inner, both), "bias": inner.sum(both[0]), "last": np.tensordot(hidden, odds, both)}

    def step(self, gradient: Arrays, number: int, rate: float, most: float) -> None:
        """Take a step of Adam uphill, the `number`th from 1. The norm of the gradient counts as at most `most`."""
        norm = float(np.sqrt(sum((part**2).sum() for part in gradient.values())))
        for name, part in gradient.items():
            part = part * min(1.0, most / (norm + 1e-12))
            mean, square = self.moments["m/" + name], self.moments["v/" + name]
            mean += 0.1 * (part - mean)
            square += 0.001 * (part**2 - square)
            self.weights[name] += rate * (mean / (1 - 0.9**number)) / (np.sqrt(square / (1 - 0.999**number)) + 1e-8)

    def _forward(self, windows: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Return the hidden layer, and the logarithm of the chance of each token of the vocabulary."""
        hidden = np.tanh(self.weights["first"][windows].sum(-2) + self.weights["bias"])
        odds = hidden @ self.weights["last"]
        odds -= odds.max(-1, keepdims=True)
        return hidden, odds - np.log(np.exp(odds).sum(-1, keepdims=True))

    def _windows(self, tokens: np.ndarray, count: int) -> np.ndarray:
        """Return the rows of `first` for the last `count` places of the tokens: each sees `context` tokens up to its own."""
        ends = np.arange(tokens.shape[1] - count, tokens.shape[1])
        places = ends[:, None] - np.arange(self.context)[None, :]
        found = np.where(places >= 0, tokens[:, places], 0)
        return found + self.vocabulary * np.arange(self.context)

    def _windows_of(self, prompts: np.ndarray, completions: np.ndarray) -> np.ndarray:
        return self._windows(np.concatenate([prompts, completions[:, :-1]], 1), completions.shape[1])
