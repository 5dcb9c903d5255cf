"""What a request to the hub costs: CPU microseconds of the server's process, measured by wrk on loopback.

usage: python benchmarks/hub_index.py [--projects 10000] [--secs 4] [--rounds 3] [--only page20,wheel1MB]

Fills a hub in a temporary folder, starts uvicorn on it and asks for index pages, files and lists. Requests per second
depend on who else uses the machine; CPU per request repeats within about 15 %. `--projects` adds that many other
environments: pages must not cost more because of them. Needs wrk on the path.
"""

import argparse
import base64
import hashlib
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from datetime import timedelta
from pathlib import Path

from sqlalchemy import insert, text

from hub_server import tokens
from hub_server.hub import Hub
from hub_server.models import Account, Dependency, Facet, File, Project, Release, Token, now
from hub_server.services.search import index_project
from hub_server.settings import Settings

TICK = os.sysconf("SC_CLK_TCK")
JSON = "application/vnd.pypi.simple.v1+json"
WORDS = "math code tool search logic puzzle agent web game grade school proof step model reward chess word".split()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, default=0)
    parser.add_argument("--secs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data=Path(folder) / "hub", log_level="WARNING")
        token = fill(settings, arguments.projects)
        port = free_port()
        environment = {**os.environ, "VF_HUB_DATA": str(settings.data), "VF_HUB_SEARCHES_PER_MINUTE": "100000000"}
        command = [sys.executable, "-m", "uvicorn", "hub_server.app:create_app", "--factory", "--port", str(port)]
        with open(Path(folder) / "log", "wb") as log:
            server = subprocess.Popen([*command, "--no-access-log"], env=environment, stdout=log, stderr=log)
        try:
            wait_for(port)
            measure(arguments, server.pid, f"http://127.0.0.1:{port}", token)
        finally:
            server.terminate()
            server.wait(20)


# Filling


def fill(settings, n_projects):
    """Two public environments of 20 and 500 files, a private one, a wheel of 1 MB, `n_projects` others."""
    hub = Hub.open(settings)
    secret = tokens.make()
    with hub.database.write() as session:
        bench = Account(kind="user", name="bench")
        session.add(bench)
        session.flush()
        session.add(Token(user_id=bench.id, name="bench", prefix=secret.prefix, sha256=secret.sha256, scope="read"))
        for name, n_files, visibility in (
            ("page20", 20, "public"), ("page500", 500, "public"), ("private20", 20, "private"), ("wheel1mb", 1, "public")
        ):  # fmt: skip
            project = Project(
                owner_id=bench.id, name=name, normalized=name, ultra_normalized=name, visibility=visibility
            )
            session.add(project)
            session.flush()
            for number in range(n_files):
                release = Release(project_id=project.id, version=f"0.{number}.0", requires_python=">=3.10")
                release.readme_text = "An environment of a benchmark."
                session.add(release)
                session.flush()
                data = random.Random(number).randbytes(1 << 20 if name == "wheel1mb" else 2_000)
                sha256 = hashlib.sha256(data).hexdigest()
                hub.storage.put(f"files/{sha256}", data)
                about = hashlib.sha256(data[:1_000]).hexdigest()
                hub.storage.put(f"metadata/{about}", data[:1_000])
                session.add(
                    File(
                        release_id=release.id, project_id=project.id, kind="wheel", size_bytes=len(data), sha256=sha256,
                        filename=f"{name}-{release.version}-py3-none-any.whl", metadata_sha256=about,
                        requires_python=">=3.10",
                    )
                )  # fmt: skip
            project.latest_release_id = release.id
            index_project(session, project)
    with hub.database.write() as session:
        fill_others(session, n_projects)
    hub.close()
    return secret.text


def fill_others(session, n_projects):
    """Each with ten files, tags, a README and dependencies."""
    chance = random.Random(1)
    if not n_projects:
        return
    owners = [Account(kind="user", name=f"owner-{number}") for number in range(max(1, n_projects // 20))]
    session.add_all(owners)
    session.flush()
    first_project = session.execute(text("SELECT max(id) FROM project")).scalar() + 1
    first_release = session.execute(text("SELECT max(id) FROM release")).scalar() + 1
    began = now()
    projects, releases, files, facets, needs, texts = [], [], [], [], [], []
    for number in range(n_projects):
        project_id, name = first_project + number, f"{chance.choice(WORDS)}-env-{number}"
        tags = chance.sample(WORDS, 3)
        summary = " ".join(chance.choices(WORDS, k=10))
        readme = " ".join(chance.choices(WORDS, k=20) + [f"word{chance.randrange(5_000)}" for _ in range(200)])
        last = first_release + number * 10 + 9
        projects.append(
            {"id": project_id, "owner_id": chance.choice(owners).id, "name": name, "normalized": name,
             "ultra_normalized": name, "visibility": "public", "summary": summary, "tags": tags,
             "task_type": "single-turn", "n_stars": chance.randrange(100), "n_downloads": chance.randrange(10_000),
             "updated_at": began - timedelta(minutes=number), "latest_release_id": last}
        )  # fmt: skip
        for version in range(10):
            release_id = first_release + number * 10 + version
            releases.append({"id": release_id, "project_id": project_id, "version": f"0.{version}.0", "license": "MIT"})
            sha256 = hashlib.sha256(f"{name}{version}".encode()).hexdigest()
            files.append(
                {"release_id": release_id, "project_id": project_id, "filename": f"{name}-0.{version}.0.whl",
                 "kind": "wheel", "size_bytes": 1, "sha256": sha256, "metadata_sha256": sha256}
            )  # fmt: skip
        facets += [{"kind": "tag", "value": tag, "project_id": project_id} for tag in tags]
        facets += [{"kind": "license", "value": "MIT", "project_id": project_id}]
        needs.append({"release_id": last, "normalized": "verifiers", "requirement": "verifiers>=0.1.9"})
        texts.append({"id": project_id, "name": name, "summary": summary, "tags": " ".join(tags), "readme": readme})
    session.execute(insert(Project), [{**project, "latest_release_id": None} for project in projects])
    session.execute(insert(Release), releases)
    session.execute(text("UPDATE project SET latest_release_id = (SELECT max(id) FROM release WHERE project_id = "
                         "project.id) WHERE latest_release_id IS NULL"))  # fmt: skip
    for table, rows in ((File, files), (Facet, facets), (Dependency, needs)):
        session.execute(insert(table), rows)
    session.execute(text("INSERT INTO project_search (rowid, owner, name, summary, tags, readme) "
                         "VALUES (:id, '', :name, :summary, :tags, :readme)"), texts)  # fmt: skip


# Measuring


def measure(arguments, pid, base, token):
    basic = "Authorization: Basic " + base64.b64encode(f"__token__:{token}".encode()).decode()
    accept = f"Accept: {JSON}"
    page = f"{base}/bench/page20/simple/page20/"
    asked = urllib.request.Request(page, headers={"Accept": JSON})
    etag = urllib.request.urlopen(asked).headers["ETag"]
    wheel = f"{base}/bench/wheel1mb/simple/wheel1mb/"
    file = json.load(urllib.request.urlopen(urllib.request.Request(wheel, headers={"Accept": JSON})))["files"][0]
    cases = {
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
    for name, (url, headers) in cases.items():
        if arguments.only and name not in arguments.only.split(","):
            continue
        runs = [one_round(pid, url, headers, arguments.secs) for _ in range(arguments.rounds)]
        row = {
            "case": name,
            "cpu_us": round(statistics.median(cpu for cpu, _, _ in runs), 1),
            "per_s": round(max(rate for _, rate, _ in runs)),
            "failed": sum(bad for _, _, bad in runs),
            "rss_mib": rss_mib(pid),
        }
        print(json.dumps(row), flush=True)


def one_round(pid, url, headers, secs):
    command = ["wrk", "-t1", "-c8", f"-d{secs}s", "--timeout", "30s"]
    for header in headers:
        command += ["-H", header]
    before = cpu_seconds(pid)
    out = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    used = cpu_seconds(pid) - before
    n = int(re.search(r"(\d+) requests in", out)[1])
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return used / max(1, n) * 1e6, n / secs, int(bad[1]) if bad else 0


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mib(pid):
    return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port):
    for _ in range(300):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the hub did not start")


if __name__ == "__main__":
    main()
