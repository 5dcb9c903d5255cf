#!/usr/bin/env python
"""What pushing and reading results costs a hub: CPU seconds and memory of its process, beside the wall time.

    python benchmarks/hub_results.py                 10,000 samples of about 5 KB
    python benchmarks/hub_results.py --samples 100000 --bytes 200

A real server (uvicorn, SQLite, a folder) on loopback; figures are read from /proc, so this needs Linux.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from hub_evaluations import ENV, lines, record, wheel_sha256  # noqa: E402
from hub_packages import Package  # noqa: E402
from hub_world import Person, World  # noqa: E402

from hub_server.hub import Hub  # noqa: E402
from hub_server.settings import Settings  # noqa: E402

SERVER = """
import sys, uvicorn
from pathlib import Path
from hub_server.app import create_app
from hub_server.settings import Settings
uvicorn.run(create_app(Settings(data=Path(sys.argv[1]))), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
"""
PROJECT = f"/api/v1/projects/ada/{ENV}"


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--samples", type=int, default=10_000)
    asked.add_argument("--bytes", type=int, default=4_200, help="of what the model said in each")
    args = asked.parse_args()
    with tempfile.TemporaryDirectory() as made:
        data = Path(made) / "hub"
        person, wheel = prepare(data)
        port = 20_000 + secrets.randbelow(10_000)
        with open(Path(made) / "log", "wb") as log:
            server = subprocess.Popen([sys.executable, "-c", SERVER, str(data), str(port)], stderr=log, stdout=log)
        try:
            measure(server.pid, f"http://127.0.0.1:{port}", person, wheel, args.samples, args.bytes)
        finally:
            server.terminate()
            server.wait()


def prepare(data: Path) -> tuple[Person, str]:
    hub = Hub.open(Settings(data=data))
    world = World(hub)
    person = world.user("ada")
    world.release(f"ada/{ENV}", package=Package(ENV), visibility="public")
    wheel = wheel_sha256(world, f"ada/{ENV}")
    hub.close()
    return person, wheel


def measure(pid: int, address: str, person: Person, wheel: str, n: int, size: int) -> None:
    client = httpx.Client(base_url=address, headers=person.headers, timeout=600)
    wait_for(client)
    body = lines(record(i // 4, i % 4, (i % 5) / 4, wheel=wheel, text=words(i, size)) for i in range(n))
    packed = gzip.compress(body, 5)
    print(f"{n} samples, {len(body) / 1e6:.1f} MB, gzipped {len(packed) / 1e6:.1f} MB")
    zipped = {"Content-Encoding": "gzip"}

    def show(name: str, ask: Callable[[], httpx.Response]) -> None:
        cpu, began = cpu_s(pid), time.monotonic()
        ask().raise_for_status()
        wall, cpu = time.monotonic() - began, cpu_s(pid) - cpu
        print(f"{name:<34} {wall:7.2f} s wall {cpu:7.2f} s CPU {memory(pid, 'VmRSS'):5.0f} MiB")

    print(f"{'':<34} {'':7}        {'':7}       {memory(pid, 'VmRSS'):5.0f} MiB at the start")
    id = begin(client, wheel)
    at = f"/api/v1/evaluations/{id}"
    show("push, gzipped", lambda: client.post(f"{at}/samples", content=packed, headers=zipped))
    show("the same again", lambda: client.post(f"{at}/samples", content=packed, headers=zipped))
    show("complete", lambda: client.post(f"{at}/complete", json={}))
    other = begin(client, wheel)
    show("push, plain", lambda: client.post(f"/api/v1/evaluations/{other}/samples", content=body))
    show("a page of samples", lambda: client.get(f"{at}/samples"))
    show("a filter that nothing fits", lambda: client.get(f"{at}/samples", params={"filter": "reward>9"}))
    show("a phrase that nobody said", lambda: client.get(f"{at}/samples", params={"filter": '"zyzzyva"'}))
    show("examples", lambda: client.get(f"{at}/examples"))
    show("examples, the worst first", lambda: client.get(f"{at}/examples", params={"order": "worst"}))
    show("one rollout", lambda: client.get(f"{at}/rollouts/{n // 8}/0"))
    show("compare", lambda: client.get(f"{at}/compare/{other}"))
    show("leaderboard", lambda: client.get(f"{PROJECT}/leaderboard"))
    show("pass rates", lambda: client.get(f"{PROJECT}/pass-rates"))
    show("delete", lambda: client.delete(f"/api/v1/evaluations/{other}"))
    print(f"most memory at any time: {memory(pid, 'VmHWM'):.0f} MiB")


def begin(client: httpx.Client, wheel: str) -> str:
    told: dict[str, Any] = {"idempotency_key": secrets.token_hex(8), "model": "small", "version": "1.0.0"}
    answer = client.post(f"{PROJECT}/evaluations", json={**told, "wheel_sha256": wheel, "visibility": "public"})
    return answer.raise_for_status().json()["id"]


def wait_for(client: httpx.Client) -> None:
    for _ in range(600):
        try:
            client.get("/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("the server did not start within a minute")


def words(seed: int, size: int) -> str:
    """Text that gzip makes about a quarter of, as it does of prose."""
    draw = random.Random(seed)
    said = ["because", "therefore", "number", "sum", "of", "the", "step", "first", "then", "answer"]
    return " ".join(f"{draw.choice(said)}{draw.randrange(1000)}" for _ in range(size // 8))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(f"{name}:")).split()[1]) / 1024


if __name__ == "__main__":
    main()
