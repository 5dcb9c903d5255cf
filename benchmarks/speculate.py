"""What suffix decoding would give on saved rollouts:  python benchmarks/speculate.py RUN [RUN …]

Each RUN is the folder of an evaluation or training run with tokens (`vf-eval … --save-tokens`), and counts as one
epoch; several of the same environment, in order, show what its own history gives. Without one, rollouts are made up:
256 problems in four epochs whose lengths have the tail that long reasoning has (log-normal, the longest 20 times the
median), each epoch changing one token in twenty.
Prints accepted tokens per step and the time of all epochs, without speculation, with the same draft for all, and with
drafts by predicted length; times are simulated (see `--step-ms`, `--token-us`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random

from verifiers.records import read_records
from verifiers.rl.speculate.budgets import ByLength, Fixed
from verifiers.rl.speculate.lengths import LengthPredictor
from verifiers.rl.speculate.replay import Engine, Replay, Trace, replay, traces_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--draft", type=int, default=16, help="tokens to draft at most (16)")
    parser.add_argument("--slots", type=int, default=64, help="rollouts in a batch (64)")
    parser.add_argument("--step-ms", type=float, default=10.0, help="time of a step whatever it does (10)")
    parser.add_argument("--token-us", type=float, default=20.0, help="and for each token in it (20)")
    given = parser.parse_args()
    epochs = [saved(folder) for folder in given.runs] or made_up()
    engine = Engine(given.slots, given.step_ms / 1e3, given.token_us / 1e6)
    longest = max((len(trace.tokens) for epoch in epochs for trace in epoch), default=0)
    print(f"{sum(map(len, epochs))} generations in {len(epochs)} epochs, the longest of {longest} tokens; {engine}")
    print(f"{'':34}{'tokens/step':>12}{'accepted':>10}{'drafted':>10}{'time':>10}{'tail':>9}")
    base = show("no speculation", replay(epochs, Fixed(0), engine=engine), None)
    show("the same draft for all", replay(epochs, Fixed(given.draft), engine=engine), base)
    for long_first in (False, True):
        lengths = LengthPredictor()
        budget = ByLength(lengths, limits=(0, given.draft // 4, given.draft))
        found = replay(epochs, budget, engine=engine, lengths=lengths, long_first=long_first)
        show("drafts by length" + (", long ones first" if long_first else ""), found, base)


def show(name: str, found: Replay, base: Replay | None) -> Replay:
    ratio = f" ({found.makespan_s / base.makespan_s:.2f}×)" if base else ""
    print(
        f"{name:34}{found.tokens_per_step:12.2f}{found.acceptance:10.0%}{found.drafted:10}"
        f"{found.makespan_s:9.1f}s{found.longest_tail_s:8.1f}s{ratio}"
    )
    return found


def saved(folder: Path) -> list[Trace]:
    tokens = folder / "results.tokens.jsonl"
    if not tokens.exists():
        raise SystemExit(f"{folder} has no tokens: run vf-eval with --save-tokens")
    return traces_of(read_records(folder / "results.jsonl", tokens))


def made_up(problems: int = 256, epochs: int = 4, median: int = 150, seed: int = 0) -> list[list[Trace]]:
    random = Random(seed)
    first = [
        [random.randrange(2000) for _ in range(min(20 * median, round(median * random.lognormvariate(0, 0.9))))]
        for _ in range(problems)
    ]
    return [
        [
            Trace(str(number), [token if random.random() < 0.95 else random.randrange(2000) for token in tokens])
            for number, tokens in enumerate(first)
        ]
        for _ in range(epochs)
    ]


if __name__ == "__main__":
    main()
