# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The network of both trainers."""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch import nn

from cartpole import State


class Policy(nn.Module):
    """Two small networks: how much better a push to the right is, and the value of a state."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, states: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Return the log-odds of a push to the right, and the values."""
        return self.actor(states).squeeze(-1), self.critic(states).squeeze(-1)

    @torch.no_grad()
    def right(self, states: List[State]) -> List[float]:
        """Return the probability of a push to the right in each state."""
        odds: List[float] = torch.sigmoid(self.actor(torch.tensor(states))).squeeze(-1).tolist()
        return odds


def log_chances(odds: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the probability of each action."""
    return nn.functional.logsigmoid(torch.where(actions == 1, odds, -odds))


def entropy(odds: torch.Tensor) -> torch.Tensor:
    """Return the mean entropy of the choices."""
    right = torch.sigmoid(odds)
    return -(right * nn.functional.logsigmoid(odds) + (1 - right) * nn.functional.logsigmoid(-odds)).mean()
