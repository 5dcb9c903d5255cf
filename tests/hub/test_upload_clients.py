"""The real twine and the real `uv publish` against a real server: they publish, and say why not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from hub_packages import Package
from hub_servers import Server, places, served
from uv import find_uv_bin

pytestmark = pytest.mark.slow
pytest.importorskip("twine")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with places() as where, served(tmp_path_factory.mktemp("clients") / "hub", owner="ada", **where) as server:
        yield server


def files_of(folder: Path, package: Package) -> list[str]:
    folder.mkdir(exist_ok=True)
    paths = [folder / package.wheel_name, folder / package.sdist_name]
    for path, data in zip(paths, (package.wheel(), package.sdist()), strict=True):
        path.write_bytes(data)
    return [str(path) for path in paths]


def run(command: list[str], **environment: str) -> tuple[int, str]:
    """The exit status and all that was said, on one line: terminals wrap."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("UV_", "TWINE_", "PIP_"))}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**kept, "NO_COLOR": "1", **environment}
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def twine(server: Server, files: list[str], *flags: str, token: str | None = None) -> tuple[int, str]:
    command = [sys.executable, "-m", "twine", "upload", "--disable-progress-bar", "--non-interactive", *flags]
    return run(
        [*command, "--repository-url", f"{server.address}/legacy/", *files],
        TWINE_USERNAME="__token__",
        TWINE_PASSWORD=server.token if token is None else token,
    )


def uv(
    server: Server, files: list[str], *flags: str, token: str | None = None, path: str = "/legacy/"
) -> tuple[int, str]:
    secret = server.token if token is None else token
    command = [find_uv_bin(), "publish", "--no-config", "--publish-url", f"{server.address}{path}", *flags]
    return run([*command, *files], UV_PUBLISH_TOKEN=secret)


def listed(server: Server, name: str) -> dict[str, str]:
    """File name → SHA-256, as an installer sees it."""
    answer = httpx.get(
        f"{server.address}/ada/{name}/simple/{name}/",
        auth=("__token__", server.token),
        headers={"Accept": "application/vnd.pypi.simple.v1+json"},
    )
    answer.raise_for_status()
    return {file["filename"]: file["hashes"]["sha256"] for file in answer.json()["files"]}


@pytest.mark.parametrize("tool", [twine, uv])
def test_a_wheel_and_an_sdist_are_published_and_again(server, tmp_path, tool):
    package = Package(f"{tool.__name__}-env")
    files = files_of(tmp_path / "dist", package)
    assert tool(server, files)[0] == 0
    assert set(listed(server, package.name)) == {package.wheel_name, package.sdist_name}
    before = listed(server, package.name)
    status, said = tool(server, files)
    assert status == 0, said
    assert listed(server, package.name) == before


def test_twine_tells_with_verbose_why_a_file_is_refused(server, tmp_path):
    assert twine(server, files_of(tmp_path / "one", Package("clash-env")))[0] == 0
    status, said = twine(server, files_of(tmp_path / "two", Package("clash-env", summary="other")), "--verbose")
    assert status == 1
    assert "400 Bad Request" in said
    assert "File already exists" in said


def test_uv_tells_why_a_file_is_refused(server, tmp_path):
    assert uv(server, files_of(tmp_path / "one", Package("crash-env")))[0] == 0
    status, said = uv(server, files_of(tmp_path / "two", Package("crash-env", summary="other")))
    assert status == 2
    assert "File already exists" in said


def test_uv_with_a_check_url_sends_only_what_is_not_there(server, tmp_path):
    package = Package("check-env")
    files = files_of(tmp_path / "dist", package)
    assert uv(server, files[:1])[0] == 0
    index = f"{server.address}/ada/simple/".replace("://", f"://__token__:{server.token}@")
    status, said = uv(server, files, "--check-url", index)
    assert status == 0, said
    assert "already exists, skipping" in said
    assert set(listed(server, package.name)) == {package.wheel_name, package.sdist_name}


@pytest.mark.parametrize("tool", [twine, uv])
def test_a_wrong_token_is_401_and_said(server, tmp_path, tool):
    status, said = tool(server, files_of(tmp_path / "dist", Package("wrong-env")), token="vfh_wrong")
    assert status != 0
    assert "401" in said


def test_uv_at_an_index_is_told_where_to_upload(server, tmp_path):
    status, said = uv(server, files_of(tmp_path / "dist", Package("lost-env")), path="/ada/simple/")
    assert status != 0
    assert f"{server.address}/ada/legacy/" in said


def test_a_package_that_uv_builds_is_published_and_described(server, tmp_path):
    """No hand-made archive: `uv build` of a project with hatchling, when the builder can be had."""
    project = tmp_path / "project"
    project.mkdir()
    package = Package("built-env", readme="# Built")
    (project / "pyproject.toml").write_bytes(
        package.pyproject.replace(b"description =", b'readme = "README.md"\ndescription =')
        + b'\n[tool.hatch.build.targets.wheel]\ninclude = ["built_env.py"]\n'
        b'\n[tool.verifiers]\ntask_type = "single-turn"\ntags = ["made"]\n'
    )
    (project / "README.md").write_text(package.readme)
    (project / "built_env.py").write_text(package.module_text)
    build = [find_uv_bin(), "build", "--out-dir", str(tmp_path / "dist"), str(project)]
    built = subprocess.run(build, capture_output=True, text=True, timeout=200)
    if built.returncode:
        pytest.skip(f"nothing can be built here: {built.stderr[-300:]}")
    files = sorted(str(path) for path in (tmp_path / "dist").glob("built_env-*"))
    status, said = twine(server, files, "--verbose")
    assert status == 0, said
    assert len(listed(server, "built-env")) == 2
