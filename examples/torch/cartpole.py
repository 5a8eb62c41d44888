# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""CartPole of Barto, Sutton and Anderson, and what trainers need of it. Needs no other package."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any, Callable, List, Sequence, Tuple

State = List[float]

#: An episode ends when the pole has stayed up for so many steps, so this is the best reward.
LIMIT = 200

_FORCE, _SECONDS, _GRAVITY = 10.0, 0.02, 9.8
_MASS_OF_POLE, _MASS, _HALF_LENGTH = 0.1, 1.1, 0.5
_MAX_POSITION, _MAX_ANGLE = 2.4, math.radians(12)


class CartPole:
    """A pole on a cart that is pushed to the left (0) or to the right (1) in each step."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.state = self.reset()

    def reset(self) -> State:
        """Start an episode near the balance."""
        self.state = [self._random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> bool:
        """Push the cart, and report whether the pole has fallen or the cart has left the track."""
        position, speed, angle, spin = self.state
        force = _FORCE if action == 1 else -_FORCE
        cos, sin = math.cos(angle), math.sin(angle)
        push = (force + _MASS_OF_POLE * _HALF_LENGTH * spin * spin * sin) / _MASS
        turn = (_GRAVITY * sin - cos * push) / (_HALF_LENGTH * (4.0 / 3.0 - _MASS_OF_POLE * cos * cos / _MASS))
        move = push - _MASS_OF_POLE * _HALF_LENGTH * turn * cos / _MASS
        self.state = [position + _SECONDS * speed, speed + _SECONDS * move, angle + _SECONDS * spin, spin + _SECONDS * turn]
        return abs(self.state[0]) > _MAX_POSITION or abs(self.state[2]) > _MAX_ANGLE


@dataclass
class Rollout:
    """What several environments did, by step and environment."""

    states: List[List[State]] = field(default_factory=list)
    actions: List[List[int]] = field(default_factory=list)
    #: The probability of each action under the policy that chose it.
    chances: List[List[float]] = field(default_factory=list)
    #: 1.0 where the pole fell.
    falls: List[List[float]] = field(default_factory=list)
    #: The states after the last step.
    last: List[State] = field(default_factory=list)
    #: The reward of the first episode of each environment.
    rewards: List[float] = field(default_factory=list)


def play(seeds: Sequence[str], right: Callable[[List[State]], List[float]], steps: int = LIMIT) -> Rollout:
    """Play one environment for each seed, for a number of steps each; one that falls starts again.

    `right` returns the probability of a push to the right for each state. Equal seeds and policies give equal rollouts, so a
    trainer that derives its seeds from the number of the iteration has no state of environments to save.
    """
    randoms = [Random(seed) for seed in seeds]
    environments = [CartPole(random) for random in randoms]
    rollout = Rollout(rewards=[float(steps)] * len(seeds))
    for step in range(steps):
        states = [environment.state for environment in environments]
        chances = right(states)
        actions = [int(random.random() < chance) for random, chance in zip(randoms, chances)]
        falls = [environment.step(action) for environment, action in zip(environments, actions)]
        rollout.states.append(states)
        rollout.actions.append(actions)
        rollout.chances.append([chance if action else 1 - chance for chance, action in zip(chances, actions)])
        rollout.falls.append([float(fall) for fall in falls])
        for index, fall in enumerate(falls):
            if fall:
                environments[index].reset()
                rollout.rewards[index] = min(rollout.rewards[index], step + 1.0)
    rollout.last = [environment.state for environment in environments]
    return rollout


def vtrace(
    values: Sequence[Any], last: Any, rewards: Sequence[Any], discounts: Sequence[Any], rhos: Sequence[Any], cs: Sequence[Any]
) -> Tuple[List[Any], List[Any]]:
    """Return the targets of the values, and the advantages of the actions: V-trace of IMPALA (arXiv:1802.01561).

    All sequences are by step, of numbers or of tensors; `last` is the value of the state after the last step. A discount is 0
    where an episode ended. `rhos` and `cs` are the truncated ratios of the probabilities of the actions, under the policy that
    learns and under the one that acted. With rhos of 1 and cs of a lambda, target minus value is the generalized advantage
    estimate (arXiv:1506.02438).
    """
    targets: List[Any] = []
    advantages: List[Any] = []
    target, following = last, last
    for t in reversed(range(len(values))):
        advantages.append(rhos[t] * (rewards[t] + discounts[t] * target - values[t]))
        delta = rhos[t] * (rewards[t] + discounts[t] * following - values[t])
        target = values[t] + delta + discounts[t] * cs[t] * (target - following)
        following = values[t]
        targets.append(target)
    return targets[::-1], advantages[::-1]
