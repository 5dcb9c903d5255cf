#!/usr/bin/env python3
"""What a gateway of sandboxes costs: the status of many sessions, and a program through it beside one without it.

    PYTHONPATH=. python benchmarks/sandbox_gateway.py --sessions 1000 --json

The sessions are of the scripted backend, in a gateway in a process of its own, on the same machine: what is measured is
the gateway. One session in a hundred runs something all the while; leases are renewed as always. The programs are of
the local backend, run in turn through a gateway and without one.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time

TOKEN = "a-token-for-measuring"
SCRIPTED = """
import asyncio
from verifiers.sandbox import ScriptedSandboxes
from verifiers.sandbox.gateway import Gateway, serve
from verifiers.sandbox.gateway_sessions import GatewaySettings
from verifiers.sandbox.gateway_tokens import Tokens

async def slow(call):
    await asyncio.sleep(0.2)
    return ""

gateway = Gateway(ScriptedSandboxes(slow), Tokens([%r]), GatewaySettings(max_sandboxes=100_000))
asyncio.run(serve(gateway, "127.0.0.1", 0, lambda url: print(url, flush=True)))
"""
SERVE = "from verifiers.cli.main import sandbox_main; sandbox_main()"


def start(code, *arguments):
    env = os.environ | {"VF_SANDBOX_TOKEN": TOKEN}
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, env=env, text=True)
    return process, process.stdout.readline().split()[-1]


def resident_mb(pid):
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def spread(seconds):
    ms = sorted(1000 * second for second in seconds)
    return {"p50_ms": round(statistics.median(ms), 2), "p99_ms": round(ms[int(0.99 * (len(ms) - 1))], 2),
            "max_ms": round(ms[-1], 2), "n": len(ms)}  # fmt: skip


async def timed(seconds, work):
    began = time.perf_counter()
    found = await work
    seconds.append(time.perf_counter() - began)
    return found


async def measure_status(sessions, asked):
    from verifiers.sandbox import RemoteBackend

    process, url = start(SCRIPTED % TOKEN)
    try:
        async with RemoteBackend(url, TOKEN) as backend:
            await backend.capabilities()
            empty_mb = resident_mb(process.pid)
            places = asyncio.Semaphore(32)

            async def create():
                async with places:
                    return await backend.create()

            began = time.perf_counter()
            made = await asyncio.gather(*(create() for _ in range(sessions)))
            created_s = time.perf_counter() - began

            async def work(sandbox):
                while True:
                    await sandbox.exec(["work"])

            workers = [asyncio.create_task(work(sandbox)) for sandbox in made[::100]]
            ids, all_s, ids_s, call_s = [one.id for one in made], [], [], []
            for _ in range(asked):
                assert len((await timed(all_s, backend.status())).sandboxes) == sessions
                assert len((await timed(ids_s, backend.status(ids))).sandboxes) == sessions
                await timed(call_s, made[-1].write_file("a", b"x"))
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            loaded_mb = resident_mb(process.pid)
        return {"sessions": sessions, "busy": len(workers), "status_of_all": spread(all_s), "status_of_ids": spread(ids_s),
                "another_call": spread(call_s), "creations_per_s": round(sessions / created_s),
                "kb_per_session": round((loaded_mb - empty_mb) * 1024 / sessions, 1)}  # fmt: skip
    finally:
        process.terminate()
        process.wait()


async def measure_programs(runs):
    from verifiers.sandbox import LocalBackend, RemoteBackend

    process, url = start(SERVE, "serve", "--port", "0")
    direct_s, through_s, exec_direct_s, exec_through_s = [], [], [], []
    try:
        async with LocalBackend() as local, RemoteBackend(url, TOKEN) as remote:
            async with await local.create() as here, await remote.create() as there:
                for number in range(runs + 5):
                    if number == 5:  # all of it is warm
                        for seconds in (direct_s, through_s, exec_direct_s, exec_through_s):
                            seconds.clear()
                    await timed(direct_s, local.run_once("print(1)"))
                    await timed(through_s, remote.run_once("print(1)"))
                    await timed(exec_direct_s, here.exec(["true"]))
                    await timed(exec_through_s, there.exec(["true"]))
    finally:
        process.terminate()
        process.wait()
    return {"run_once": spread(direct_s), "run_once_through": spread(through_s), "exec": spread(exec_direct_s),
            "exec_through": spread(exec_through_s)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--asked", type=int, default=200, help="status requests of each kind")
    parser.add_argument("--runs", type=int, default=100, help="programs of each kind; 0: none")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {"load": os.getloadavg()[0], **asyncio.run(measure_status(options.sessions, options.asked))}
    if options.runs:
        found |= asyncio.run(measure_programs(options.runs))
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<18}", value)


if __name__ == "__main__":
    main()
