# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Trains a small language model to sort digits by GRPO, in a worker-led job: `grpo.py trainer` and `grpo.py generator`.

A generator samples groups of completions and sends them to the first trainer, which answers with a newer policy, if there is one.
The first trainer learns from samples that are at most STALENESS versions old. The other trainers take micro-batches from it.
Both pools may be resized at any time. A generator has no state, and the first trainer continues from its checkpoint.
"""

from __future__ import annotations

import argparse
import http.client
import io
import queue
import random
import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np

import sorting
from di_orchestrator import Checkpoint, Meter, Preemption, Progress, in_job, preemption, report, who_am_i
from policy import Arrays, Policy

#: A group is the completions of one prompt. A generator sends a chunk of groups, and a step learns from several chunks.
GROUP, GROUPS, CHUNKS = 8, 8, 4
CHUNK = GROUP * GROUPS
#: Samples may be so many versions old. The queue holds fewer steps, or all samples would get too old in it.
STALENESS, QUEUE = 4, 3 * CHUNKS
RATE, NORM, HIDDEN = 0.01, 1.0, 64
#: The policy becomes the reference after so many steps, as in iterative GRPO, algorithm 1 of the paper.
REFERENCE_STEPS = 50
SAVE_STEPS, PRINT_STEPS = 10, 10
#: A call waits for so long at the trainer.
HOLD_SECONDS = 2.0
#: A micro-batch that another trainer has for longer is computed again.
LATE_SECONDS = 1.0
PORT, MOST_BYTES = 22270, 8 << 20


def pack(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as bytes, without pickle."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def unpack(content: bytes) -> Arrays:
    """Return the arrays of pack()."""
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def new_policy(seed: int) -> Policy:
    """Return a policy that has learned nothing."""
    return Policy(sorting.VOCABULARY, sorting.PROMPT + sorting.COMPLETION - 1, HIDDEN, seed)


def gradient_of(policy: Policy, part: Arrays) -> Arrays:
    """Return the gradient of a micro-batch. Any trainer can compute it."""

    def weigh(now: np.ndarray) -> np.ndarray:
        coefficients = np.zeros_like(now)
        logs = np.stack([now, part["chances"], part["reference"]], -1).tolist()
        for i, advantage in enumerate(part["advantages"].tolist()):
            length = sorting.length(part["completions"][i].tolist())
            coefficients[i, :length] = [sorting.coefficient(advantage, *token) / length for token in logs[i][:length]]
        return coefficients / len(now)

    return policy.gradient(part["prompts"], part["completions"], weigh)


class MicroBatches:
    """The micro-batches of a step, which all trainers share. A trainer that is lost only delays the step."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._step = 0
        self._parts: List[Arrays] = []
        self._todo: Deque[int] = deque()
        self._done: Dict[int, Arrays] = {}
        #: How many the other trainers computed.
        self.helped = 0

    def gradient(self, policy: Policy, parts: List[Arrays]) -> Arrays:
        """Return the mean of the gradients of all parts."""
        with self._changed:
            self._step, self._parts, self._todo, self._done = self._step + 1, parts, deque(range(len(parts))), {}
            self._changed.notify_all()
        while len(self._done) < len(parts):
            taken = self.take(0)
            if taken:
                step, number, part = taken
                self.put(step, number, gradient_of(policy, part))
                continue
            with self._changed:
                if not self._changed.wait_for(lambda: len(self._done) == len(parts), LATE_SECONDS):
                    self._todo.extend(number for number in range(len(parts)) if number not in self._done)
        return {name: np.mean([each[name] for each in self._done.values()], 0) for name in self._done[0]}

    def take(self, seconds: float) -> Optional[Tuple[int, int, Arrays]]:
        """Return the step, the number and the content of a part, or None if there is none for so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._todo, seconds):
                return None
            number = self._todo.popleft()
            return self._step, number, self._parts[number]

    def put(self, step: int, number: int, gradient: Arrays, is_help: bool = False) -> None:
        """Store the gradient of a part, unless it is too late."""
        with self._changed:
            if step == self._step and number not in self._done:
                self._done[number] = gradient
                self.helped += is_help
                self._changed.notify_all()


def check(sent: Arrays) -> None:
    """Raise an error unless these are the arrays of a chunk. A generator may run on other machines than the trainer."""
    for name, tokens in {"prompts": sorting.PROMPT, "completions": sorting.COMPLETION, "chances": sorting.COMPLETION}.items():
        if sent[name].shape != (CHUNK, tokens):
            raise ValueError(f"{name} has shape {sent[name].shape}: must be {(CHUNK, tokens)}")
        if name != "chances" and not np.isin(sent[name], range(sorting.VOCABULARY)).all():
            raise ValueError(f"{name} has other tokens than 0 to {sorting.VOCABULARY - 1}")


class Trainer:
    """The first trainer: its policy, the queue of samples, and what it says to the others."""

    def __init__(self, seed: int) -> None:
        self.policy, self.reference = new_policy(seed), new_policy(seed)
        #: The mean reward of each step.
        self.curve: List[float] = []
        #: The versions of another run are not those of this one: a restarted trainer repeats steps.
        self.run = uuid.uuid4().hex[:8]
        self.chunks: "queue.Queue[Tuple[str, Arrays]]" = queue.Queue(QUEUE)
        self.micro = MicroBatches()
        self.meter = Meter()
        self.ages: List[int] = []
        self.dropped = 0
        self.publish()

    def publish(self) -> None:
        """Make the policy what others get."""
        version = f"{self.run}.{len(self.curve)}"
        self.published = version, pack({**self.policy.weights, "version": version})

    def state(self) -> Arrays:
        """Return all that a training continues from."""
        parts = {"weight": self.policy.weights, "moment": self.policy.moments, "reference": self.reference.weights}
        arrays = {f"{kind}/{name}": array for kind, part in parts.items() for name, array in part.items()}
        return {**arrays, "curve": np.array(self.curve)}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        parts = {"weight": self.policy.weights, "moment": self.policy.moments, "reference": self.reference.weights}
        for kind, part in parts.items():
            part.update({name: state[f"{kind}/{name}"] for name in part})
        self.curve = state["curve"].tolist()
        self.publish()

    def step(self, stop: Preemption) -> None:
        """Wait for samples that are new enough, and learn from them."""
        with self.meter.starved():
            chunks = [self._chunk(stop) for _ in range(CHUNKS)]
        with self.meter.busy():
            rewards, parts = zip(*(self._judge(chunk) for chunk in chunks))
            self.policy.step(self.micro.gradient(self.policy, list(parts)), len(self.curve) + 1, RATE, NORM)
            self.curve.append(float(np.mean(rewards)))
            if len(self.curve) % REFERENCE_STEPS == 0:
                self.reference.weights = {name: weights.copy() for name, weights in self.policy.weights.items()}
            self.publish()
        self.meter.samples += CHUNKS * CHUNK

    def _chunk(self, stop: Preemption) -> Arrays:
        while True:
            stop.check()
            try:
                version, chunk = self.chunks.get(timeout=HOLD_SECONDS)
            except queue.Empty:
                continue
            run, _, number = version.partition(".")
            age = len(self.curve) - int(number) if run == self.run else STALENESS + 1
            if age <= STALENESS:
                self.ages.append(age)
                return chunk
            self.dropped += 1

    def _judge(self, chunk: Arrays) -> Tuple[List[float], Arrays]:
        """Return the rewards of a chunk, and the chunk as a micro-batch. Only the trainer judges, and no generator can lie."""
        prompts, completions = chunk["prompts"], chunk["completions"]
        rewards = [sorting.reward(*pair) for pair in zip(prompts.tolist(), completions.tolist())]
        groups = [sorting.advantages(rewards[i : i + GROUP]) for i in range(0, CHUNK, GROUP)]
        return rewards, {**chunk, "advantages": np.concatenate(groups), "reference": self.reference.log_chances(prompts, completions)}


class Server(BaseHTTPRequestHandler):
    """What the first trainer answers: POST /samples to generators, POST /micro-batch to the other trainers."""

    protocol_version = "HTTP/1.1"
    trainer: Trainer

    def do_GET(self) -> None:
        """Answer the readiness probe."""
        self._answer(200)

    def do_POST(self) -> None:
        """Take what is sent, and answer with what there is for the sender: 204 for nothing, 503 to send again."""
        size = int(self.headers.get("Content-Length", 0))
        if size > MOST_BYTES:
            return self._answer(413)
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        content = self.rfile.read(size)
        try:
            sent = unpack(content) if size else {}
            self._answer(*{"/samples": self._samples, "/micro-batch": self._micro_batch}[url.path](asked, sent))
        except (KeyError, ValueError) as error:
            self._answer(400, repr(error).encode())

    def _samples(self, asked: Mapping[str, str], sent: Arrays) -> Tuple[int, bytes]:
        if sent:
            check(sent)
            try:
                self.trainer.chunks.put((asked["version"], sent), timeout=HOLD_SECONDS)
            except queue.Full:
                return 503, b""
        version, content = self.trainer.published
        return (204, b"") if asked["version"] == version else (200, content)

    def _micro_batch(self, asked: Mapping[str, str], sent: Arrays) -> Tuple[int, bytes]:
        if sent:
            self.trainer.micro.put(int(asked["step"]), int(asked["number"]), sent, is_help=True)
        taken = self.trainer.micro.take(HOLD_SECONDS)
        if not taken:
            return 204, b""
        step, number, part = taken
        weights = {f"weight/{name}": array for name, array in self.trainer.policy.weights.items()}
        return 200, pack({**part, **weights, "step": step, "number": number})

    def _answer(self, status: int, content: bytes = b"") -> None:
        # A caller that is lost meanwhile gets no answer.
        with suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no calls."""


def call(address: str, path: str, content: bytes = b"", **asked: object) -> Optional[Arrays]:
    """Call the first trainer. Returns None if it has nothing to say. Raises OSError if it must be called again."""
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("POST", f"{path}?{urlencode(asked)}", content)
        answer = connection.getresponse()
        found = answer.read()
    except http.client.HTTPException as error:
        raise OSError(error) from error
    finally:
        connection.close()
    if answer.status == 503:
        raise OSError("the queue is full")
    if answer.status not in (200, 204):
        raise RuntimeError(f"{path}: {answer.status} {found[:200]!r}")
    return unpack(found) if found else None


def generate(address: str, decode_seconds: float) -> None:
    """Sample groups by the newest policy until the job ends."""
    policy, version, meter, content = new_policy(0), "none", Meter(), b""
    prompts, sampling = random.Random(), np.random.default_rng()
    while True:
        with meter.blocked():
            try:
                newer = call(address, "/samples", content, version=version)
            except OSError:
                # The queue is full, or the trainer is gone and comes back.
                time.sleep(0.1)
                continue
        if newer:
            version = str(newer.pop("version"))
            policy.weights = newer
        with meter.busy():
            asked = np.repeat([sorting.prompt(prompts) for _ in range(GROUPS)], GROUP, 0)
            completions, chances = policy.sample(asked, sorting.COMPLETION, sorting.END, sampling)
            time.sleep(decode_seconds * sorting.COMPLETION)
        meter.samples += CHUNK
        content = pack({"prompts": asked, "completions": completions, "chances": chances})
        if in_job():
            meter.report(policy_version=int(version.split(".")[1]), in_flight=CHUNK)


def train(seed: int, steps: int, checkpoint: Checkpoint) -> None:
    """Be the first trainer."""
    trainer = Trainer(seed)
    found = checkpoint.load(lambda file: unpack(file.read()))
    if found:
        trainer.restore(found[1])
        print(f"resumed after step={len(trainer.curve)}", flush=True)
    Server.trainer = trainer
    server = ThreadingHTTPServer(("", PORT), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def save() -> None:
        checkpoint.save(len(trainer.curve), pack(trainer.state()))

    first, started = len(trainer.curve), time.monotonic()
    with preemption(save) as stop:
        while len(trainer.curve) < steps:
            trainer.step(stop)
            done = len(trainer.curve)
            if done % SAVE_STEPS == 0 or done == steps:
                save()
            if done % PRINT_STEPS == 0 or done == steps:
                tell(trainer, steps, (done - first) * CHUNKS * CHUNK / (time.monotonic() - started))
    curve = [trainer.curve[i : i + PRINT_STEPS] for i in range(0, len(trainer.curve), PRINT_STEPS)]
    print("curve=" + ",".join(f"{np.mean(part):.3f}" for part in curve), flush=True)



def tell(trainer: Trainer, steps: int, speed: float) -> None:
    """Print how far the training is, and report it, every ten seconds and at the end."""
    done, reward = len(trainer.curve), float(np.mean(trainer.curve[-PRINT_STEPS:]))
    ages = trainer.ages[-PRINT_STEPS * CHUNKS :]
    staleness = sum(ages) / len(ages)
    others = f"dropped={trainer.dropped} helped={trainer.micro.helped}"
    print(f"step={done} reward={reward:.3f} staleness={staleness:.2f} samples_per_second={speed:.0f} {others}", flush=True)
    if not in_job():
        return
    waiting = {"queue": trainer.chunks.qsize() * CHUNK, "queue_capacity": QUEUE * CHUNK, "batch_samples": CHUNKS * CHUNK}
    old = {"max_staleness": STALENESS, "staleness_mean": staleness, "staleness_max": max(ages)}
    if trainer.meter.report(policy_version=done, **waiting, **old) or done == steps:
        report(progress=Progress(done, steps, "step"), reward=reward, staleness=staleness, samples_per_second=speed)


def help_train(address: str, steps: int, checkpoint: Checkpoint) -> None:
    """Be another trainer: compute micro-batches until the last checkpoint is there."""
    policy, gradient, asked = new_policy(0), b"", {}
    # It has nothing to save, and ends as soon as it is asked to.
    with preemption(lambda: None) as stop:
        while True:
            stop.check()
            try:
                part = call(address, "/micro-batch", gradient, **asked)
            except OSError:
                latest = checkpoint.latest()
                if latest and latest.step >= steps:
                    return
                time.sleep(0.2)
                continue
            gradient = b""
            if part:
                asked = {name: int(part.pop(name)) for name in ("step", "number")}
                policy.weights = {name: part.pop(f"weight/{name}") for name in policy.weights}
                gradient = pack(gradient_of(policy, part))


def first_trainer() -> str:
    """Return the address of the first trainer, which has the same name after each restart."""
    me = who_am_i()
    return next(node for node in me.nodes if node.startswith(f"{me.job}-trainer-0."))


def main() -> None:
    """Run the role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["trainer", "generator"])
    parser.add_argument("--checkpoint", help="folder of checkpoints, on a volume that all trainers have")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decode-milliseconds", type=float, default=0, help="what a token of a large model takes longer")
    parser.add_argument("--address", help="HOST:PORT of the first trainer; by default that of the job")
    flags = parser.parse_args()
    address = flags.address or f"{first_trainer()}:{PORT}"
    if flags.role == "generator":
        generate(address, flags.decode_milliseconds / 1000)
    checkpoint = Checkpoint(flags.checkpoint)
    if in_job() and who_am_i().index:
        help_train(address, flags.steps, checkpoint)
    else:
        train(flags.seed, flags.steps, checkpoint)


if __name__ == "__main__":
    main()
