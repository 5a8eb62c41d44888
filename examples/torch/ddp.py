# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains CartPole by PPO on all replicas of a worker-led job, with PyTorch's DistributedDataParallel.

Each replica plays its share of the environments. The job may be stopped at any time: it continues from its checkpoint, with
as many replicas as it then has, by the same curve.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from cartpole import LIMIT, Rollout, play, vtrace
from di_orchestrator import Batch, Checkpoint, Progress, Step, preemption, rendezvous, report, run, who_am_i
from policy import Policy, entropy, log_chances

ENVIRONMENTS = 16
EPOCHS, MINIBATCHES = 4, 4
DISCOUNT, LAMBDA, CLIP = 0.99, 0.95, 0.2
REPORT_SECONDS = 60.0


class Trainer:
    """The state of the training, the same in all replicas."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.seed = seed
        self.rank, self.replicas = dist.get_rank(), dist.get_world_size()
        if ENVIRONMENTS % self.replicas:
            raise ValueError(f"the job has {self.replicas} replicas: must be a divisor of {ENVIRONMENTS}, the environments")
        self.policy = Policy()
        self.learner = DistributedDataParallel(self.policy)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        #: The mean reward of each iteration.
        self.curve: List[float] = []

    def state(self) -> Dict[str, Any]:
        """Return all that a training continues from."""
        return {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict(), "curve": self.curve}

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from a state."""
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.curve = state["curve"]

    def step(self) -> float:
        """Play and learn. Returns the mean reward of all environments."""
        iteration = len(self.curve)
        seeds = [f"{self.seed}/{iteration}/{environment}" for environment in range(self.rank, ENVIRONMENTS, self.replicas)]
        rollout = play(seeds, self.policy.right)
        self._learn(rollout, random.Random(f"{self.seed}/{iteration}"))
        self.curve.append(mean_of_all(sum(rollout.rewards) / len(rollout.rewards)))
        return self.curve[-1]

    def _learn(self, rollout: Rollout, order: random.Random) -> None:
        states, actions = torch.tensor(rollout.states), torch.tensor(rollout.actions)
        falls, earlier = torch.tensor(rollout.falls), torch.tensor(rollout.chances).log()
        with torch.no_grad():
            values, last = self.policy(states)[1], self.policy(torch.tensor(rollout.last))[1]
            ones = torch.ones_like(values)
            targets = torch.stack(vtrace(values, last, ones, DISCOUNT * (1 - falls), ones, LAMBDA * ones)[0])
            advantages = targets - values
            mean = mean_of_all(advantages.mean().item())
            deviation = mean_of_all(((advantages - mean) ** 2).mean().item()) ** 0.5
            advantages = (advantages - mean) / (deviation + 1e-8)
        for _ in range(EPOCHS):
            # All replicas take the same steps of their environments, so that the sum over them does not depend on their number.
            steps = order.sample(range(LIMIT), LIMIT)
            for part in torch.tensor(steps).chunk(MINIBATCHES):
                odds, guesses = self.learner(states[part])
                ratio = (log_chances(odds, actions[part]) - earlier[part]).exp()
                gain = torch.min(ratio * advantages[part], ratio.clamp(1 - CLIP, 1 + CLIP) * advantages[part]).mean()
                loss = -gain + 0.5 * ((guesses - targets[part]) / 10).pow(2).mean() - 0.01 * entropy(odds)
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
                self.optimizer.step()


def mean_of_all(value: float) -> float:
    """Return the mean of the values of all replicas."""
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def any_of_all(is_requested: bool) -> bool:
    """Return whether any replica must stop, so that all stop after the same step."""
    answer = torch.tensor(int(is_requested))
    dist.all_reduce(answer, op=dist.ReduceOp.MAX)
    return bool(answer)


def from_first(value: Any) -> Any:
    """Return what the first replica has."""
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def main() -> None:
    """Train until the last iteration, or until the job is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="folder of checkpoints, on a volume; only the first replica uses it")
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()

    torch.set_num_threads(1)
    rendezvous().apply()
    dist.init_process_group("gloo")
    trainer = Trainer(flags.seed)
    checkpoint = Checkpoint(flags.checkpoint) if trainer.rank == 0 else None
    found = from_first(checkpoint.load(torch.load) if checkpoint else None)
    if found:
        trainer.restore(found[1])
        print(f"resumed after iteration={len(trainer.curve)}", flush=True)

    def save() -> None:
        if checkpoint:
            checkpoint.save(len(trainer.curve), lambda file: torch.save(trainer.state(), file))
            print(f"saved iteration={len(trainer.curve)}", flush=True)

    with preemption(save, agree=any_of_all) as stop:
        reported: Optional[float] = None
        while len(trainer.curve) < flags.iterations:
            stop.check()
            started = time.monotonic()
            reward = trainer.step()
            seconds = time.monotonic() - started
            if trainer.rank == 0:
                print(f"iteration={len(trainer.curve)} reward={reward:.3f} replicas={trainer.replicas} seconds={seconds:.2f}", flush=True)
            if len(trainer.curve) % 20 == 0:
                save()
            if who_am_i().is_first and (reported is None or started - reported > REPORT_SECONDS or len(trainer.curve) == flags.iterations):
                reported = started
                tell(trainer, seconds, flags.iterations)
    if trainer.rank == 0:
        print("curve=" + ",".join(f"{reward:.4f}" for reward in trainer.curve), flush=True)


def tell(trainer: Trainer, seconds: float, iterations: int) -> None:
    """Report to di-server: the operator shows it in the status of the job."""
    passes = EPOCHS * MINIBATCHES
    report(
        batch=Batch(initial=ENVIRONMENTS * LIMIT // MINIBATCHES),
        steps=[Step(1, trainer.replicas, ENVIRONMENTS * LIMIT // MINIBATCHES // trainer.replicas, seconds / passes)],
        progress=Progress(len(trainer.curve), iterations, "iteration"),
        reward=trainer.curve[-1],
    )


if __name__ == "__main__":
    run(main)
