# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains CartPole by IMPALA in a coordinator-led job: `impala.py learner` in the coordinator, `impala.py actor` in collectors.

The learner asks di-server for actors. Each actor plays with the policy that the learner sends, and answers with what it saw.
The learner trains meanwhile, so an answer is of an older policy: V-trace corrects for that.
"""

from __future__ import annotations

import argparse
import http.client
import json
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, List, Tuple

import torch

from cartpole import LIMIT, Rollout, play, vtrace
from di_orchestrator import Coordinator, Progress, report, who_am_i
from policy import Policy, entropy, log_chances

ENVIRONMENTS = 8
DISCOUNT = 0.99
#: An actor that does not answer for so long has failed. A new one starts within it.
ACTOR_SECONDS = 60.0
REPORT_SECONDS = 60.0


class Actor(BaseHTTPRequestHandler):
    """Answers POST /rollout, a policy and a seed, with a rollout."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer the readiness probe."""
        self._answer(b"ok\n")

    def do_POST(self) -> None:
        """Play with the policy of the learner."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        policy = Policy()
        policy.load_state_dict({name: torch.tensor(values) for name, values in request["policy"].items()})
        seeds = [f"{request['seed']}/{environment}" for environment in range(ENVIRONMENTS)]
        self._answer(json.dumps({**vars(play(seeds, policy.right)), "version": request["version"]}).encode())

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no calls."""


class Feed:
    """Keeps one actor busy, and puts its rollouts into a queue. An actor that fails is replaced by di-server."""

    def __init__(self, learner: "Learner", coordinator: Coordinator, address: str, number: int) -> None:
        self.learner, self.coordinator, self.address, self.number = learner, coordinator, address, number
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        count, failing = 0, time.monotonic()
        while True:
            request = self.learner.request(f"{self.learner.seed}/{self.number}/{count}")
            try:
                answer = self._call(request)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() - failing > ACTOR_SECONDS:
                    self._replace(error)
                    failing = time.monotonic()
                time.sleep(0.2)
                continue
            count, failing = count + 1, time.monotonic()
            self.learner.rollouts.put(answer)

    def _call(self, request: bytes) -> Any:
        connection = http.client.HTTPConnection(self.address, timeout=ACTOR_SECONDS)
        try:
            connection.request("POST", "/rollout", request)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def _replace(self, error: Exception) -> None:
        new = self.coordinator.post_replicas_failed(collectors=[self.address]).collectors
        print(f"actor {self.address} failed: {error}; new: {', '.join(new)}", flush=True)
        self.address = new[0] if new else self.address


class Learner:
    """The policy that learns."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.seed, self.version = seed, 0
        self.policy = Policy()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=2e-3)
        #: A full queue holds the actors, so that no rollout gets old.
        self.rollouts: "queue.Queue[Any]" = queue.Queue(maxsize=2)
        self._lock = threading.Lock()

    def request(self, seed: str) -> bytes:
        """Return the newest policy, for an actor."""
        with self._lock:
            version, weights = self.version, {name: values.tolist() for name, values in self.policy.state_dict().items()}
        return json.dumps({"policy": weights, "version": version, "seed": seed}).encode()

    def step(self) -> Tuple[float, int]:
        """Learn from one rollout. Returns its mean reward, and how many versions old it was."""
        answer = self.rollouts.get(timeout=2 * ACTOR_SECONDS)
        version = answer.pop("version")
        rollout = Rollout(**answer)
        with self._lock:
            self._learn(rollout)
            self.version += 1
        return sum(rollout.rewards) / len(rollout.rewards), self.version - 1 - version

    def _learn(self, rollout: Rollout) -> None:
        actions, falls = torch.tensor(rollout.actions), torch.tensor(rollout.falls)
        odds, values = self.policy(torch.tensor(rollout.states))
        chosen = log_chances(odds, actions)
        with torch.no_grad():
            ratios = (chosen - torch.tensor(rollout.chances).log()).exp().clamp(max=1)
            last = self.policy(torch.tensor(rollout.last))[1]
            targets, advantages = map(
                torch.stack, vtrace(values.detach(), last, torch.ones_like(falls), DISCOUNT * (1 - falls), ratios, ratios)
            )
            advantages = advantages / (advantages.std() + 1e-8)
        loss = -(chosen * advantages).mean() + 0.5 * ((values - targets) / 10).pow(2).mean() - 0.01 * entropy(odds)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()


def learn(actors: int, updates: int, seed: int) -> None:
    """Ask for actors, and train."""
    coordinator, learner = Coordinator(), Learner(seed)
    granted = coordinator.post_replicas(collectors=actors).collectors
    print(f"granted={len(granted)} actors: {', '.join(granted)}", flush=True)
    for number, address in enumerate(granted):
        Feed(learner, coordinator, address, number)
    rewards: List[float] = []
    ages: List[int] = []
    reported = started = time.monotonic()
    while learner.version < updates:
        reward, age = learner.step()
        rewards.append(reward)
        ages.append(age)
        if learner.version % 20 == 0:
            mean = sum(rewards[-20:]) / 20
            seconds = time.monotonic() - started
            print(f"update={learner.version} reward={mean:.3f} age={sum(ages[-20:]) / 20:.2f} seconds={seconds:.1f}", flush=True)
            if time.monotonic() - reported > REPORT_SECONDS or learner.version == updates:
                reported = time.monotonic()
                report(progress=Progress(learner.version, updates, "update"), to=coordinator, reward=mean)
    steps = updates * ENVIRONMENTS * LIMIT
    print(f"learned from {steps} steps in {time.monotonic() - started:.1f} s", flush=True)


def main() -> None:
    """Run the role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["learner", "actor"])
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    if flags.role == "actor":
        ThreadingHTTPServer(("", who_am_i().port), Actor).serve_forever()
    learn(flags.actors, flags.updates, flags.seed)


if __name__ == "__main__":
    main()
