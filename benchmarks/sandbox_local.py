"""What a program in the local sandbox costs beside one that plain `python3 -I` runs: A B A B on one machine.

usage: python benchmarks/sandbox_local.py [--rounds 60]

Prints one JSON line: medians of warm and cold runs over plain ones (bars: 0.7 and 3.5) and how many more warm runs get
through two callers in a second (bar: 2). Ratios, because the machine may be shared.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from verifiers.sandbox import LocalBackend

PROGRAM = "print(1)"


def plain(file: Path) -> None:
    command = [sys.executable, "-I", str(file)]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)


async def seconds_of(backend: LocalBackend) -> float:
    began = time.perf_counter()
    assert (await backend.run_once(PROGRAM)).ok
    return time.perf_counter() - began


async def per_second(one, count: int) -> float:
    async def caller() -> None:
        for _ in range(count):
            await one()

    began = time.perf_counter()
    await asyncio.gather(caller(), caller())
    return 2 * count / (time.perf_counter() - began)


async def measured(file: Path, rounds: int) -> dict[str, object]:
    times: dict[str, list[float]] = {"plain": [], "warm": [], "cold": []}
    ratios = []
    async with LocalBackend() as warm, LocalBackend(warm=False) as cold:
        level = (await warm.capabilities()).level
        for backend in (warm, cold):
            await seconds_of(backend)
        for _ in range(rounds):
            began = time.perf_counter()
            plain(file)
            times["plain"].append(time.perf_counter() - began)
            times["warm"].append(await seconds_of(warm))
            times["cold"].append(await seconds_of(cold))
        for _ in range(5):
            through = await per_second(lambda: seconds_of(warm), 40)
            ratios.append(through / await per_second(lambda: asyncio.to_thread(plain, file), 20))
    middle = {name: statistics.median(found) for name, found in times.items()}
    return {
        "level": level,
        "plain_ms": round(middle["plain"] * 1000, 2),
        "warm": round(middle["warm"] / middle["plain"], 3),
        "cold": round(middle["cold"] / middle["plain"], 3),
        "throughput": round(statistics.median(ratios), 2),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(PROGRAM)
        print(json.dumps(asyncio.run(measured(file, rounds))))


if __name__ == "__main__":
    main()
