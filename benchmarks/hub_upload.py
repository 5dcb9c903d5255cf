"""What an upload costs a hub, with all its checks: CPU of the server's processes, wall time, memory.

usage: python benchmarks/hub_upload.py [--uploads 40] [--large-mib 100]

Wheels of 1 MB by the form that twine and uv send, one after another on one connection, each a release of its own; then
one of `--large-mib`, for the memory. The disk has its part in the wall time: each upload is synced to it before it is
confirmed.
"""

import argparse
import hashlib
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
from hub_served import Served, served

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hub_packages import Package

MIB = 1 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uploads", type=int, default=40)
    parser.add_argument("--large-mib", type=int, default=100)
    arguments = parser.parse_args()
    with served(max_file_bytes=str((arguments.large_mib + 8) * MIB)) as hub:
        client = httpx.Client(base_url=hub.base, headers={"Authorization": f"Bearer {hub.token}"}, timeout=300)
        upload(hub, client, package(0, MIB))  # starts the renderer of READMEs
        runs = [upload(hub, client, package(number, MIB)) for number in range(1, arguments.uploads + 1)]
        row = {
            "case": "upload 1 MB",
            "cpu_ms_p50": round(statistics.median(cpu for cpu, _ in runs), 1),
            "cpu_ms_p95": round(statistics.quantiles([cpu for cpu, _ in runs], n=20)[-1], 1),
            "wall_ms_p50": round(statistics.median(wall for _, wall in runs), 1),
            "wall_ms_p95": round(statistics.quantiles([wall for _, wall in runs], n=20)[-1], 1),
            "rss_mib": hub.memory_mib(),
        }
        print(json.dumps(row), flush=True)
        if arguments.large_mib:
            large = package(10_000, arguments.large_mib * MIB)
            hub.forget_peak()
            before = hub.memory_mib()
            cpu, wall = upload(hub, client, large)
            row = {"cpu_ms": round(cpu), "wall_ms": round(wall), "more_mib": round(hub.memory_mib("VmHWM") - before, 1)}
            print(json.dumps({"case": f"upload {arguments.large_mib} MiB", **row}))


@dataclass(frozen=True)
class Large(Package):
    """A package with data that cannot be packed."""

    size_bytes: int = MIB

    @property
    def files(self) -> dict[str, bytes]:
        data = random.Random(self.version).randbytes(self.size_bytes)
        return {f"{self.module}/__init__.py": self.module_text.encode(), f"{self.module}/data.bin": data}


def package(number: int, size_bytes: int) -> Large:
    return Large("bench-upload", f"0.{number}.0", size_bytes=size_bytes)


def upload(hub: Served, client: httpx.Client, package: Large) -> tuple[float, float]:
    """CPU and wall milliseconds."""
    content = package.wheel()
    form = {
        ":action": "file_upload", "protocol_version": "1", "metadata_version": "2.4", "name": package.name,
        "version": package.version, "filetype": "bdist_wheel", "pyversion": "py3", "summary": package.summary,
        "description_content_type": "text/markdown", "requires_python": ">=3.11", "description": package.readme,
        "requires_dist": list(package.requires), "sha256_digest": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    files = {"content": (package.wheel_name, content, "application/octet-stream")}
    cpu, began = hub.cpu_ns(), time.perf_counter()
    answer = client.post("/bench/legacy/", data=form, files=files)
    wall_ms = (time.perf_counter() - began) * 1e3
    if answer.status_code != 200:
        raise SystemExit(f"{package.wheel_name}: {answer.status_code} {answer.text}")
    time.sleep(0.01)
    return (hub.cpu_ns() - cpu) / 1e6, wall_ms


if __name__ == "__main__":
    main()
