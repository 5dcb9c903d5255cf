"""What a request to the hub costs: CPU microseconds of the server's process, measured by wrk on loopback.

usage: python benchmarks/hub_index.py [--projects 10000] [--secs 4] [--rounds 3] [--only page20,wheel1MB]

Fills a hub in a temporary folder, starts `vf-hub serve` on it and asks for index pages, files and lists. Requests per
second depend on who else uses the machine; CPU per request repeats within about 15 % while nobody does. `--projects`
adds that many other environments. Rounds go over all cases in turn, so that a busy minute touches each of them; the
figures are medians. "floor" is uvicorn with next to nothing in it: what the machine makes of that tells how busy it was.
Needs wrk on the path.
"""

import argparse
import base64
import json
import re
import statistics
import subprocess
import urllib.parse
import urllib.request

from hub_served import Served, Server, floor, served

JSON = "application/vnd.pypi.simple.v1+json"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=0)
    parser.add_argument("--secs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    with served(arguments.projects) as hub, floor() as bare:
        cases = {"floor": (bare, bare.base, []), **{name: (hub, *case) for name, case in cases_of(hub).items()}}
        wanted = [name for name in cases if not arguments.only or name in arguments.only.split(",")]
        runs = {name: [] for name in wanted}
        for _ in range(arguments.rounds):
            for name in wanted:
                runs[name].append(one_round(*cases[name], arguments.secs))
        for name in wanted:
            row = {
                "case": name,
                "cpu_us": round(statistics.median(cpu for cpu, _, _ in runs[name]), 1),
                "per_s": round(max(rate for _, rate, _ in runs[name])),
                "failed": sum(bad for _, _, bad in runs[name]),
            }
            print(json.dumps(row), flush=True)
        print(
            json.dumps({"case": "memory after all", "rss_mib": hub.memory_mib(), "most_mib": hub.memory_mib("VmHWM")})
        )


def cases_of(hub: Served) -> dict[str, tuple[str, list[str]]]:
    """Address and headers of each."""
    base = hub.base
    basic = "Authorization: Basic " + base64.b64encode(f"__token__:{hub.token}".encode()).decode()
    accept = f"Accept: {JSON}"
    page = f"{base}/bench/page20/simple/page20/"
    asked = urllib.request.Request(page, headers={"Accept": JSON})
    etag = urllib.request.urlopen(asked).headers["ETag"]
    wheel = f"{base}/bench/wheel1mb/simple/wheel1mb/"
    file = json.load(urllib.request.urlopen(urllib.request.Request(wheel, headers={"Accept": JSON})))["files"][0]
    return {
        "page20": (page, [accept]),
        "page20+token": (page, [accept, basic]),
        "private20+token": (f"{base}/bench/private20/simple/private20/", [accept, basic]),
        "hub-wide page20+token": (f"{base}/simple/page20/", [accept, basic]),
        "page500": (f"{base}/bench/page500/simple/page500/", [accept]),
        "304": (page, [accept, f"If-None-Match: {etag}"]),
        "404": (f"{base}/bench/page20/simple/numpy/", [accept]),
        "list": (f"{base}/simple/", [accept]),
        "wheel1MB": (urllib.parse.urljoin(wheel, file["url"]), []),
        "metadata": (urllib.parse.urljoin(wheel, file["url"] + ".metadata"), []),
        "api environment": (f"{base}/api/v1/projects/bench/page20", []),
        "api list": (f"{base}/api/v1/projects", []),
        "api list by stars": (f"{base}/api/v1/projects?sort=stars", []),
        "api list by tag": (f"{base}/api/v1/projects?tag=math&sort=stars", []),
        "api facets": (f"{base}/api/v1/facets", []),
        "api search rare": (f"{base}/api/v1/projects?search=word77", []),
        "api search two words": (f"{base}/api/v1/projects?search=math+puzzle", []),
        "api search in every one": (f"{base}/api/v1/projects?search=env", []),
        "api search two letters": (f"{base}/api/v1/projects?search=wo", []),
    }


def one_round(server: Server, url: str, headers: list[str], secs: int) -> tuple[float, float, int]:
    """CPU microseconds per request, requests per second, answers that were no 2xx or 3xx."""
    command = ["wrk", "-t1", "-c8", f"-d{secs}s", "--timeout", "30s"]
    for header in headers:
        command += ["-H", header]
    before = server.cpu_ns()
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    used_ns = server.cpu_ns() - before
    n = int(re.search(r"(\d+) requests in", out)[1])
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return used_ns / max(1, n) / 1e3, n / secs, int(bad[1]) if bad else 0


if __name__ == "__main__":
    main()
