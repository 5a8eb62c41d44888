# Copyright The DI Orchestrator Authors.
# SPDX-License-Identifier: Apache-2.0

"""Draws the rewards of logs of `grpo.py trainer` as SVG: `plot.py NAME=LOG... >curve.svg`. A dot is where a trainer resumed."""

from __future__ import annotations

import re
import sys

WIDTH, HEIGHT, LEFT, TOP = 560, 300, 50, 20
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"]
TEXT = 'font-family="sans-serif" font-size="12"'


def main() -> None:
    """Draw all logs."""
    logs = [each.split("=", 1) for each in sys.argv[1:]]
    texts = {name: open(path, encoding="utf-8").read() for name, path in logs}
    curves = {name: [float(part) for part in re.findall(r"^curve=(.+)$", text, re.M)[-1].split(",")] for name, text in texts.items()}
    steps = {name: int(re.findall(r"^step=(\d+) ", text, re.M)[-1]) for name, text in texts.items()}
    most = max(steps.values())

    def at(step: float, reward: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - 20) * step / most:.1f},{TOP + (HEIGHT - TOP - 45) * (1 - reward):.1f}"

    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">')
    print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>')
    for tick in range(6):
        x, y = at(0, tick / 5).split(",")
        print(f'<path d="M{at(0, tick / 5)} L{at(most, tick / 5)}" stroke="#ddd"/>')
        print(f'<text x="{float(x) - 8}" y="{float(y) + 4}" text-anchor="end" {TEXT}>{tick / 5:.1f}</text>')
        x, y = at(most * tick / 5, 0).split(",")
        print(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle" {TEXT}>{most * tick // 5}</text>')
    print(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle" {TEXT}>step</text>')
    for number, (name, curve) in enumerate(curves.items()):
        size = steps[name] / len(curve)
        line = " ".join(at((i + 1) * size, reward) for i, reward in enumerate(curve))
        print(f'<polyline points="{line}" fill="none" stroke="{COLOURS[number]}" stroke-width="2"/>')
        for resumed in re.findall(r"^resumed after step=(\d+)$", texts[name], re.M):
            x, y = at(int(resumed), curve[max(int(int(resumed) / size) - 1, 0)]).split(",")
            print(f'<circle cx="{x}" cy="{y}" r="4" fill="{COLOURS[number]}"/>')
        print(f'<text x="{WIDTH - 30}" y="{HEIGHT - 60 - 18 * number}" text-anchor="end" fill="{COLOURS[number]}" {TEXT}>{name}</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
