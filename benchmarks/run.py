#!/usr/bin/env python3
"""Run one scenario once against the fake endpoint and print one JSON line.

    benchmarks/run.py --python VENV/bin/python --lib classic --scenario S1 [--n N] [--concurrency C]

The endpoint gets one core and the client the other (S5, which is about CPU-bound
verification, gets both). Figures come from the client process itself; file descriptors
and the memory of its children are sampled from outside.
"""

import argparse
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
SERVER_CPU, CLIENT_CPU = "1", "0"

# n, concurrency, server options, driver options
SCENARIOS = {
    "S1": dict(n=2000, concurrency=128),
    "S2": dict(n=4000, concurrency=4000, server=["--latency_ms=1000"], ideal_s=1.0),
    "S2t": dict(
        n=4000,
        concurrency=4000,
        ideal_s=None,
        server=["--latency_ms=500", "--dist=lognormal", "--sigma=0.7", "--tail_p=0.01", "--tail_ms=5000"],
    ),
    "S3": dict(n=500, concurrency=128, server=["--pad=400"]),
    "S4": dict(n=500, concurrency=128, server=["--tools=3"]),
    "S5": dict(n=2000, concurrency=128, corpus=True, cpus="0,1", limit=560),
    "S6": dict(n=2000, concurrency=128, server=["--p429=0.08", "--p500=0.06", "--preset=0.06"]),
    "S6m": dict(n=1000, concurrency=128, server=["--pmalformed=0.1"]),
    "S6h": dict(n=1000, concurrency=128, server=["--phang=0.01"], timeout=3.0, limit=240),
    "S6s": dict(n=1000, concurrency=128, server=["--pslow=0.2", "--slow_ms=500"]),
    "S7": dict(n=500, concurrency=64),
    "S9": dict(n=500, concurrency=32),
    "S10": dict(n=1000, concurrency=128, server=["--tools=9"], options=["save=1"]),
}
STARTUP = {
    "classic": (
        "import verifiers",
        "import verifiers as vf; vf.SingleTurnEnv, vf.ToolEnv, vf.Rubric",
        ["vf-eval", "--help"],
    ),
    "v1": ("import verifiers", "import verifiers.v1", ["vf-eval", "--help"]),
    "inspect": (
        "import inspect_ai",
        "import inspect_ai, inspect_ai.model, inspect_ai.scorer, inspect_ai.solver",
        ["inspect", "eval", "--help"],
    ),
    "floor-openai": ("import openai", "import openai; openai.AsyncOpenAI", None),
    "floor-httpx": ("import httpx", "import httpx, orjson", None),
    "floor-aiohttp": ("import aiohttp", "import aiohttp, orjson", None),
}


def environment():
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV")}
    env.update(
        HF_HUB_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        NO_PROXY="127.0.0.1",
        no_proxy="127.0.0.1",
        VF_LOG_LEVEL="CRITICAL",
    )
    return env


def build_server():
    src = HERE / "server" / "fakeoai.c"
    tag = hashlib.sha256(src.read_bytes()).hexdigest()[:12]
    out = Path(tempfile.gettempdir()) / f"fakeoai-{os.getuid()}-{tag}"
    if not out.exists():
        tmp = out.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-o", str(tmp), str(src), "-lm"], check=True)
        os.replace(tmp, out)
    return out


class Server:
    def __init__(self, options):
        self.p = subprocess.Popen(
            ["taskset", "-c", SERVER_CPU, str(build_server()), *options], stdout=subprocess.PIPE, text=True
        )
        self.port = json.loads(self.p.stdout.readline())["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def stats(self):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + "/__stats", timeout=5) as r:
            return json.load(r)

    def close(self):
        self.p.terminate()
        self.p.wait(5)


class Watch(threading.Thread):
    """Samples descriptors, threads and resident memory of a process tree from the other core."""

    def __init__(self, pid, every=0.2):
        super().__init__(daemon=True)
        self.pid, self.every, self.halt = pid, every, threading.Event()
        self.fds = self.procs = self.threads = self.rss_kb = 0

    def run(self):
        os.sched_setaffinity(threading.get_native_id(), {int(SERVER_CPU)})
        sys.path.insert(0, str(HERE / "drivers"))
        import measure

        while not self.halt.wait(self.every):
            fds = rss = threads = 0
            tree = [self.pid, *measure.descendants(self.pid)]
            for pid in tree:
                try:
                    fds += len(os.listdir(f"/proc/{pid}/fd"))
                    threads += len(os.listdir(f"/proc/{pid}/task"))
                    with open(f"/proc/{pid}/statm") as f:
                        rss += int(f.read().split()[1]) * 4
                except OSError:
                    pass
            self.fds, self.rss_kb = max(self.fds, fds), max(self.rss_kb, rss)
            self.procs, self.threads = max(self.procs, len(tree)), max(self.threads, threads)


def driver_for(lib):
    return (
        HERE
        / "drivers"
        / {"classic": "classic.py", "v1": "drv_v1.py", "inspect": "drv_inspect.py"}.get(lib.split("+")[0], "floor.py")
    )


def run_rollouts(a):
    s = SCENARIOS[a.scenario]
    n, conc = a.n or s["n"], a.concurrency or s["concurrency"]
    options = list(s.get("server", [])) + [f"--{o}" for o in a.server]
    tmp = None
    if s.get("corpus"):
        sys.path.insert(0, str(HERE))
        import mathcorpus

        share = float(os.environ.get("BENCH_PATHOLOGICAL", "0.01"))
        tmp = tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False)
        tmp.write("".join(json.dumps(t)[1:-1] + "\n" for t, _, _ in mathcorpus.make(n, pathological=share)))
        tmp.close()
        options.append(f"--corpus={tmp.name}")
    server = Server(options)
    cmd = [
        "taskset",
        "-c",
        s.get("cpus", CLIENT_CPU),
        a.python,
        str(driver_for(a.lib)),
        "--lib",
        a.lib,
        "--scenario",
        a.scenario,
        "--base-url",
        server.url + "/v1",
        "--n",
        str(n),
        "--concurrency",
        str(conc),
        "--retries",
        str(a.retries),
        "--timeout",
        str(a.timeout or s.get("timeout", 0)),
    ]
    for o in [*s.get("options", []), *a.option]:
        cmd += ["--option", o]
    env = environment()
    if a.profile:
        env["BENCH_SAMPLE"] = os.path.abspath(a.profile)
    out = {"lib": a.lib, "scenario": a.scenario, "n": n, "concurrency": conc}
    with (
        tempfile.TemporaryFile("w+") as stdout,
        tempfile.TemporaryFile("w+") as stderr,
        tempfile.TemporaryDirectory(prefix="bench-cwd-") as cwd,
    ):
        p = subprocess.Popen(cmd, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True)
        watch = Watch(p.pid)
        watch.start()
        try:
            p.wait(a.limit or s.get("limit", 300))
        except subprocess.TimeoutExpired:
            out["failed"] = f"no end after {a.limit or s.get('limit', 300)} s"
        watch.halt.set()
        watch.join()
        try:
            os.killpg(p.pid, signal.SIGKILL)  # the run's own group: pool workers may outlive it
        except ProcessLookupError:
            pass
        p.wait()
        stdout.seek(0)
        stderr.seek(0)
        text, err = stdout.read(), stderr.read()
        lines = [x for x in text.splitlines() if x.startswith("RESULT ")]
        if lines:
            out.update(json.loads(lines[-1][7:]))
        else:
            out.setdefault("failed", f"exit {p.returncode}")
            out["stderr"] = (err or text)[-1500:]
        if a.verbose:
            sys.stderr.write(err)
    out.update(
        fds_max=watch.fds, procs_max=watch.procs, threads_max=watch.threads, tree_rss_mb=round(watch.rss_kb / 1024, 1)
    )
    try:
        out["server"] = server.stats()
    except OSError as e:
        out["server"] = {"unreachable": str(e)}
    server.close()
    if tmp:
        os.unlink(tmp.name)
    if s.get("ideal_s") and "wall_s" in out:
        out["over_ideal_s"] = round(out["wall_s"] - s["ideal_s"], 3)
        out["quiet_over_ideal_s"] = round(out["quiet_wall_s"] - s["ideal_s"], 3)
    return out


def run_startup(a):
    """S8: start-up on one core with bytecode cached: median of 7 starts, less a bare interpreter.

    `_ms` is CPU time (steady on a busy machine), `_wall_ms` is what a person waits."""
    first, ready, cli = STARTUP[a.lib.split("+")[0]]
    env, repeat = environment(), 7

    def start(cmd):
        with tempfile.TemporaryFile("w+") as text:
            t = time.perf_counter()
            p = subprocess.Popen(["taskset", "-c", CLIENT_CPU, *cmd], env=env, stdout=text, stderr=subprocess.STDOUT)
            _, status, used = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            wall = time.perf_counter() - t
            text.seek(0)
            return (
                1000 * (used.ru_utime + used.ru_stime),
                1000 * wall,
                used.ru_maxrss // 1024,
                p.returncode,
                text.read(),
            )

    def median(cmd, skip=(0, 0)):
        start(cmd)  # bytecode and page cache
        got = [start(cmd) for _ in range(repeat)]
        return [round(statistics.median(g[i] for g in got) - skip[i], 1) for i in (0, 1)], got[-1]

    out = {"lib": a.lib, "scenario": "S8"}
    bare, _ = median([a.python, "-c", "pass"])
    out["bare_ms"], out["bare_wall_ms"] = bare
    for name, code in (("import", first), ("ready", ready)):
        (out[f"{name}_ms"], out[f"{name}_wall_ms"]), last = median([a.python, "-c", code], bare)
        out[f"{name}_rss_mb"] = last[2]
        if last[3]:
            out[f"{name}_failed"] = last[4][-300:]
        else:
            out[f"{name}_modules"] = int(
                start([a.python, "-c", code + "\nimport sys; print(len(sys.modules))"])[4].split()[-1]
            )
    if cli:
        exe = str(Path(a.python).parent / cli[0])
        if os.path.exists(exe):
            (out["cli_ms"], out["cli_wall_ms"]), last = median([exe, *cli[1:]])
            if last[3]:
                out["cli_failed"] = last[4][-300:]
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--python", required=True)
    p.add_argument("--lib", required=True, help="classic | v1 | inspect | floor-{openai,httpx,aiohttp,proto}[+uv]")
    p.add_argument("--scenario", required=True, choices=[*SCENARIOS, "S8"])
    p.add_argument("--n", type=int)
    p.add_argument("--concurrency", type=int)
    p.add_argument("--timeout", type=float, default=0)
    p.add_argument("--retries", type=int, default=-1)
    p.add_argument("--option", action="append", default=[], help="driver option NAME=VALUE")
    p.add_argument("--server", action="append", default=[], help="server option NAME=VALUE")
    p.add_argument("--limit", type=float, help="seconds before the run is ended")
    p.add_argument("--profile", help="write a CPU-time profile (folded stacks) to this file; see profile_view.py")
    p.add_argument("--label", help="name for this build in the output")
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    a.python = os.path.abspath(a.python) if "/" in a.python else a.python  # keep the venv's own link
    out = run_startup(a) if a.scenario == "S8" else run_rollouts(a)
    if a.label:
        out["label"] = a.label
    print(json.dumps(out))
    return 1 if "failed" in out else 0


if __name__ == "__main__":
    sys.exit(main())
