"""What ten thousand other environments cost a page: each page of a large hub beside the same page of a small one.

usage: python benchmarks/hub_scale.py [--projects 10000] [--requests 200] [--only "page20,api list"]

Two real servers, asked in turn by one client: small, large, small, large. For every single request the CPU time of the
server is read, so that there is a p95 and not just a mean; milliseconds on the wall say how long the client waited,
which depends on the machine's other work. "anew": something was committed before each request, so that nothing held in
memory may be used. The bar is 2 for the ratio of the medians; for searches, which find thousands in the large hub and
next to none in the small one, it is 20 ms of CPU.
"""

import argparse
import http.client
import json
import sqlite3
import statistics
import time

from hub_served import Served, served

JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}
REST_S = 0.002  # after an answer the server still writes its log and counts
# Name → path, headers, whether the page is made anew each time.
PAGES = {
    "page20": ("/bench/page20/simple/page20/", JSON, False),
    "page20 anew": ("/bench/page20/simple/page20/", JSON, True),
    "page500 anew": ("/bench/page500/simple/page500/", JSON, True),
    "private20+token anew": ("/bench/private20/simple/private20/", JSON, True),
    "hub-wide page20 anew": ("/simple/page20/", JSON, True),
    "404 anew": ("/bench/page20/simple/numpy/", JSON, True),
    "api environment": ("/api/v1/projects/bench/page20", {}, False),
    "api list": ("/api/v1/projects", {}, False),
    "api list by stars": ("/api/v1/projects?sort=stars", {}, False),
    "api facets": ("/api/v1/facets", {}, False),
    "home": ("/", {}, False),
    "environment": ("/bench/page20", {}, False),
    "owner": ("/bench", {}, False),
    "search rare": ("/api/v1/projects?search=word77", {}, False),
    "search two words": ("/api/v1/projects?search=math+puzzle", {}, False),
    "search in every one": ("/api/v1/projects?search=env", {}, False),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=200, help="of each page to each of the two")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    with served() as small, served(arguments.projects) as large:
        hubs = {"small": small, "large": large}
        clients = {name: Client(hub) for name, hub in hubs.items()}
        for page, (path, headers, is_anew) in PAGES.items():
            if arguments.only and page not in arguments.only.split(","):
                continue
            cpu_us, wall_ms = {"small": [], "large": []}, {"small": [], "large": []}
            for number in range(arguments.requests + 5):
                for name, client in clients.items():
                    used, waited = client.ask(path, headers, is_anew=is_anew)
                    if number >= 5:  # the first ones compile statements and templates
                        cpu_us[name].append(used)
                        wall_ms[name].append(waited)
            print(json.dumps(_row(page, cpu_us, wall_ms)), flush=True)
        print(json.dumps({"case": "memory", **{f"{name}_rss_mib": hub.memory_mib() for name, hub in hubs.items()}}))


def _row(page: str, cpu_us: dict[str, list[float]], wall_ms: dict[str, list[float]]) -> dict[str, object]:
    row: dict[str, object] = {"case": page}
    for name in cpu_us:
        row[f"{name}_cpu_us_p50"], row[f"{name}_cpu_us_p95"] = _p50(cpu_us[name]), _p95(cpu_us[name])
        row[f"{name}_wall_ms_p50"], row[f"{name}_wall_ms_p95"] = _p50(wall_ms[name], 2), _p95(wall_ms[name], 2)
    row["ratio_p50"] = round(_p50(cpu_us["large"]) / _p50(cpu_us["small"]), 2)
    row["ratio_p95"] = round(_p95(cpu_us["large"]) / _p95(cpu_us["small"]), 2)
    return row


def _p50(values: list[float], digits: int = 0) -> float:
    return round(statistics.median(values), digits)


def _p95(values: list[float], digits: int = 0) -> float:
    return round(statistics.quantiles(values, n=20)[-1], digits)


class Client:
    """One connection that stays open."""

    def __init__(self, hub: Served) -> None:
        self._hub = hub
        self._connection = http.client.HTTPConnection(hub.base.removeprefix("http://"))
        self._database = sqlite3.connect(hub.data / "hub.db", isolation_level=None, timeout=10)

    def ask(self, path: str, headers: dict[str, str], *, is_anew: bool) -> tuple[float, float]:
        """CPU microseconds of the server, and milliseconds until the whole answer was here."""
        if is_anew:
            self._database.execute("UPDATE generation SET value = value + 1")
        before, began = self._hub.cpu_ns(), time.perf_counter()
        told = {**headers, "Authorization": f"Bearer {self._hub.token}"} if "/private" in path else headers
        self._connection.request("GET", path, headers=told)
        answer = self._connection.getresponse()
        answer.read()
        waited_s = time.perf_counter() - began
        if answer.status >= 400 and "numpy" not in path:
            raise SystemExit(f"{path}: {answer.status}")
        time.sleep(REST_S)
        return (self._hub.cpu_ns() - before) / 1e3, waited_s * 1e3


if __name__ == "__main__":
    main()
