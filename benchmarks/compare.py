#!/usr/bin/env python3
"""Run two builds alternately (A B A B ...) and print the median ratio of the pairs.

    benchmarks/compare.py --a ours=VENV/bin/python:classic --b peer=VENV/bin/python:classic \
        --scenarios S1,S3,S7 --pairs 5

A side is NAME=PYTHON:LIB[:OPTION=VALUE...]. Ratios are B over A: 4.0 means that A needs a
quarter. More than one --b compares A with each in turn, still in one interleaved run. The
order inside a pair flips from pair to pair. Exit code 1 when a side lost rollouts that the
other one finished, or when --require METRIC>=X isn't met.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parent / "run.py"
METRICS = {
    "default": ["cpu_s", "quiet_wall_s", "wall_s", "peak_rss_mb", "lag_max_ms"],
    "S2": ["quiet_over_ideal_s", "cpu_s", "rss_kb_per_rollout", "peak_rss_mb", "fds_max", "lag_max_ms"],
    "S5": ["wall_s", "cpu_s", "lag_max_ms", "tree_rss_mb"],
    "S8": ["import_ms", "ready_ms", "cli_ms", "ready_modules", "ready_rss_mb"],
}


def side(text):
    name, _, rest = text.partition("=")
    python, lib, *options = rest.split(":")
    return name, python, lib, options


def once(s, scenario, passed):
    name, python, lib, options = s
    cmd = [sys.executable, str(RUN), "--python", python, "--lib", lib, "--scenario", scenario, "--label", name, *passed]
    for o in options:
        cmd += ["--option", o]
    r = subprocess.run(cmd, capture_output=True, text=True)
    try:
        return json.loads(r.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {"failed": (r.stderr or r.stdout)[-400:]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--a", required=True)
    p.add_argument("--b", required=True, action="append")
    p.add_argument("--scenarios", default="S1")
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--log", help="append every run's JSON line to this file")
    p.add_argument("--require", action="append", default=[], help="SCENARIO:METRIC>=RATIO, against the first --b")
    a, passed = p.parse_known_args()
    sides = [side(a.a), *map(side, a.b)]
    got, bad = {}, []
    for scenario in a.scenarios.split(","):
        runs = {s[0]: [] for s in sides}
        for i in range(a.pairs):
            for s in sides if i % 2 == 0 else sides[::-1]:
                d = once(s, scenario, passed)
                runs[s[0]].append(d)
                if a.log:
                    with open(a.log, "a") as f:
                        f.write(json.dumps(d) + "\n")
        base = sides[0][0]
        for s in sides:
            fails = [d["failed"] for d in runs[s[0]] if "failed" in d]
            if fails:
                print(f"{scenario}  {s[0]}: {len(fails)} of {a.pairs} runs failed: {fails[0][:200]}")
                bad.append((scenario, s[0]))
            lost = [d.get("lost", 0) for d in runs[s[0]] if "failed" not in d]
            if any(lost):
                print(f"{scenario}  {s[0]}: lost rollouts per run {lost}")
                if s[0] == base:
                    bad.append((scenario, "lost"))
        for s in sides[1:]:
            for m in METRICS.get(scenario, METRICS["default"]):
                pairs = [
                    (x[m], y[m])
                    for x, y in zip(runs[base], runs[s[0]])
                    if isinstance(x.get(m), (int, float)) and isinstance(y.get(m), (int, float))
                ]
                ratios = sorted(y / x for x, y in pairs if x > 0)
                if not ratios:
                    continue
                med = statistics.median(ratios)
                got[scenario, m, s[0]] = med
                print(
                    f"{scenario}  {s[0]}/{base}  {m:20s} {med:8.2f}x  [{ratios[0]:.2f}..{ratios[-1]:.2f}]   "
                    f"median {base} {statistics.median(x for x, _ in pairs):g}, {s[0]} {statistics.median(y for _, y in pairs):g}",
                    flush=True,
                )
    for r in a.require:
        where, _, want = r.partition(">=")
        scenario, _, m = where.partition(":")
        v = got.get((scenario, m, sides[1][0]))
        ok = v is not None and v >= float(want)
        print(f"require {r}: {'met' if ok else 'NOT MET'} ({v if v is None else round(v, 2)})")
        if not ok:
            bad.append((scenario, m))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
