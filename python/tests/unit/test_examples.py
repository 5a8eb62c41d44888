# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""The parts of the examples that need neither PyTorch nor numpy."""

from __future__ import annotations

import importlib.util
import math
import sys
import unittest
from pathlib import Path
from random import Random
from types import ModuleType
from typing import List

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def _load(example: str, name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, _EXAMPLES / example / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


cartpole = _load("torch", "cartpole")
sorting = _load("grpo", "sorting")


def _constantly(chance: float):  # type: ignore[no-untyped-def]
    return lambda states: [chance] * len(states)


class CartPoleTest(unittest.TestCase):
    def test_a_push_moves_the_cart_as_in_the_paper(self) -> None:
        environment = cartpole.CartPole(Random(1))
        environment.state = [0.0, 0.0, 0.0, 0.0]
        self.assertFalse(environment.step(1))
        # After one step only the speeds differ: 0.02 s of 9.76 m/s2 and -14.63 1/s2.
        for got, want in zip(environment.state, [0.0, 0.195122, 0.0, -0.292683]):
            self.assertAlmostEqual(got, want, places=6)

    def test_a_pole_that_is_always_pushed_to_one_side_falls_within_twelve_steps(self) -> None:
        rollout = cartpole.play(["a", "b"], _constantly(1.0))
        self.assertTrue(all(8 <= reward <= 12 for reward in rollout.rewards), rollout.rewards)

    def test_equal_seeds_give_equal_rollouts_however_they_are_shared(self) -> None:
        together = cartpole.play(["a", "b"], _constantly(0.5), steps=50)
        alone = cartpole.play(["b"], _constantly(0.5), steps=50)
        self.assertEqual([states[1:] for states in together.states], alone.states)
        self.assertEqual(together.rewards[1:], alone.rewards)

    def test_a_rollout_continues_after_a_fall(self) -> None:
        rollout = cartpole.play(["a"], _constantly(1.0), steps=50)
        self.assertGreater(sum(fall for (fall,) in rollout.falls), 3)
        self.assertEqual(len(rollout.states), 50)


def _returns(rewards: List[float], discounts: List[float], last: float) -> List[float]:
    result = []
    for reward, discount in zip(reversed(rewards), reversed(discounts)):
        last = reward + discount * last
        result.append(last)
    return result[::-1]


class VtraceTest(unittest.TestCase):
    rewards = [1.0, 1.0, 1.0, 1.0]
    discounts = [0.9, 0.9, 0.0, 0.9]
    values = [3.0, 2.0, 1.0, 4.0]

    def test_the_targets_of_the_own_policy_are_the_discounted_rewards(self) -> None:
        ones = [1.0] * 4
        targets, advantages = cartpole.vtrace(self.values, 5.0, self.rewards, self.discounts, ones, ones)
        want = _returns(self.rewards, self.discounts, 5.0)
        for t in range(4):
            self.assertAlmostEqual(targets[t], want[t])
            self.assertAlmostEqual(advantages[t], want[t] - self.values[t])

    def test_actions_that_the_policy_would_not_take_change_nothing(self) -> None:
        none = [0.0] * 4
        targets, advantages = cartpole.vtrace(self.values, 5.0, self.rewards, self.discounts, none, none)
        self.assertEqual(targets, self.values)
        self.assertEqual(advantages, none)

    def test_a_target_is_the_sum_of_the_corrected_errors(self) -> None:
        rhos, cs = [0.5, 1.0, 0.8, 0.3], [0.4, 0.9, 0.8, 0.2]
        targets, _ = cartpole.vtrace(self.values, 5.0, self.rewards, self.discounts, rhos, cs)
        following = [*self.values[1:], 5.0]
        for first in range(4):
            want, factor = self.values[first], 1.0
            for t in range(first, 4):
                want += factor * rhos[t] * (self.rewards[t] + self.discounts[t] * following[t] - self.values[t])
                factor *= self.discounts[t] * cs[t]
            self.assertAlmostEqual(targets[first], want)


class SortingTest(unittest.TestCase):
    def test_the_reward_is_the_share_of_the_right_places(self) -> None:
        asked = [7, 0, 7, 3, sorting.EQUALS]
        for completion, want in [([0, 3, 7, 7, sorting.END], 1.0), ([0, 3, 7, 7, 7], 0.8), ([7, 7, 3, 0, sorting.END], 0.2)]:
            self.assertAlmostEqual(sorting.reward(asked, completion), want)
        self.assertEqual(sorting.reward(asked, [sorting.END] * 5), 0.2)

    def test_prompts_are_digits_and_an_equals_sign(self) -> None:
        asked = sorting.prompt(Random(1))
        self.assertEqual((len(asked), asked[-1]), (sorting.PROMPT, sorting.EQUALS))
        self.assertTrue(all(0 <= digit < 10 for digit in asked[:-1]))

    def test_a_completion_ends_with_its_first_end(self) -> None:
        self.assertEqual(sorting.length([1, sorting.END, sorting.END]), 2)
        self.assertEqual(sorting.length([1, 2, 3]), 3)

    def test_advantages_of_a_group_have_mean_0_and_deviation_1(self) -> None:
        for got, want in zip(sorting.advantages([1.0, 0.0, 0.0, 1.0]), [1, -1, -1, 1]):
            self.assertAlmostEqual(got, want, places=4)
        self.assertEqual(sorting.advantages([0.6, 0.6]), [0, 0])

    def test_the_coefficient_is_the_slope_of_the_objective_of_the_paper(self) -> None:
        def objective(advantage: float, now: float, old: float, reference: float) -> float:
            ratio, to_reference = math.exp(now - old), math.exp(reference - now)
            clipped = min(max(ratio, 1 - sorting.CLIP), 1 + sorting.CLIP)
            return min(ratio * advantage, clipped * advantage) - sorting.KL_WEIGHT * (to_reference - math.log(to_reference) - 1)

        for advantage in (-1.5, 0.7):
            for now in (-2.0, -1.05, -1.0, -0.95, -0.3):
                for reference in (-1.7, -0.4):
                    above, below = (objective(advantage, now + step, -1.0, reference) for step in (1e-6, -1e-6))
                    got = sorting.coefficient(advantage, now, -1.0, reference)
                    self.assertAlmostEqual(got, (above - below) / 2e-6, places=6, msg=f"{advantage} {now} {reference}")


if __name__ == "__main__":
    unittest.main()
