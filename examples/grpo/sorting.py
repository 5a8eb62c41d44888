# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The task with its verifiable reward, and the formulas of GRPO, in plain Python.

GRPO is that of DeepSeekMath (Shao et al. 2024, https://arxiv.org/abs/2402.03300). For a prompt q and its group of G completions o_i,
equation 3 maximizes

    1/G sum_i 1/|o_i| sum_t { min[r A_i, clip(r, 1 - eps, 1 + eps) A_i] - beta KL }

    r   = pi(o_it | q, o_i<t) / pi_old(o_it | q, o_i<t)
    A_i = (reward_i - mean(rewards of the group)) / std(rewards of the group)
    KL  = pi_ref / pi - log(pi_ref / pi) - 1                                     (equation 4)
"""

from __future__ import annotations

from math import exp
from random import Random
from typing import List, Sequence

#: A prompt is so many digits and an EQUALS. The right completion is the digits in order, and an END.
DIGITS = 4
EQUALS, END = 10, 11
VOCABULARY = 12
PROMPT, COMPLETION = DIGITS + 1, DIGITS + 1

#: beta is the paper's. With 0.01, one training of five stops at a reward of 0.8 to 0.9.
CLIP, KL_WEIGHT = 0.2, 0.04


def prompt(random: Random) -> List[int]:
    """Return a prompt."""
    return [random.randrange(10) for _ in range(DIGITS)] + [EQUALS]


def reward(asked: Sequence[int], completion: Sequence[int]) -> float:
    """Return the share of the places where a completion is right."""
    right = sorted(asked[:DIGITS]) + [END]
    return sum(token == want for token, want in zip(completion, right)) / COMPLETION


def length(completion: Sequence[int]) -> int:
    """Return the number of tokens up to the first END, with it."""
    return next((place for place, token in enumerate(completion, 1) if token == END), len(completion))


def advantages(rewards: Sequence[float]) -> List[float]:
    """Return A of each completion of a group. A group of equal rewards teaches nothing."""
    mean = sum(rewards) / len(rewards)
    deviation = (sum((each - mean) ** 2 for each in rewards) / len(rewards)) ** 0.5
    return [(each - mean) / (deviation + 1e-6) for each in rewards]


def coefficient(advantage: float, now: float, old: float, reference: float) -> float:
    """Return the derivative of { } by log pi, for one token: what the gradient of log pi is multiplied with.

    The others are logarithms of chances. While pi is pi_old, it is the gradient coefficient of the paper's equation 21.
    """
    ratio = exp(min(now - old, 20.0))
    is_clipped = ratio > 1 + CLIP if advantage > 0 else ratio < 1 - CLIP
    return (0.0 if is_clipped else ratio * advantage) + KL_WEIGHT * (exp(min(reference - now, 20.0)) - 1)
