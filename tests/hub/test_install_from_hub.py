"""`vf-install owner/name` and what follows: real interpreters, the real uv, and a hub that answers on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import uv
from hub_online import online
from hub_packages import Package
from loopback import ROOT, Loopback, outside_variables

pytestmark = pytest.mark.slow

MODULE = """
import verifiers as vf

OWNER = "{owner}"

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

def load_environment(**kwargs):
    rows = [{{"question": "2 + 2?", "answer": "4"}}, {{"question": "1 + 1?", "answer": "2"}}]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[correct]), **kwargs)
"""


def package(name, version="1.0.0", owner="ada", **more):
    return Package(name, version, module_text=MODULE.format(owner=owner), **more)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with online(tmp_path_factory.mktemp("hub") / "data") as hub:
        for owner in ("ada", "bob"):
            hub.world.user(owner)
        for version in ("1.0.0", "1.1.0"):
            hub.world.release("ada/zz-sums", version, visibility="public", package=package("zz-sums", version))
        hub.world.release("bob/zz-sums", visibility="public", package=package("zz-sums", owner="bob"))
        hub.world.release("ada/zz-hidden", package=package("zz-hidden"))
        hub.world.release("ada/zz-library", visibility="public", package=package("zz-library"))
        yield hub


class Venv:
    """`vf` with the interpreter of a new virtual environment, in a home of its own."""

    def __init__(self, folder: Path, hub) -> None:
        self.work, self.hub, self.folder = folder / "work", hub, folder
        self.work.mkdir()
        self.python = self.make("venv")
        homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "CACHE", "DATA")}
        uv_cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
        self.variables = outside_variables() | homes | {"VF_HUB_URL": hub.url, "UV_CACHE_DIR": uv_cache}

    def make(self, name: str) -> Path:
        """A virtual environment with verifiers as an editable installation leaves it, without 70 packages anew."""
        place = self.folder / name
        subprocess.run([uv.find_uv_bin(), "venv", "-q", "-p", sys.executable, str(place)], check=True)
        (site,) = place.glob("lib/python*/site-packages")
        (site / "_verifiers.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        info = site / "verifiers-1.0.0.dist-info"
        info.mkdir()
        # of what it needs only what finding environments takes: the wheel that other interpreters get asks for no more
        needs = "".join(f"Requires-Dist: {name}\n" for name in ("packaging", "msgspec"))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: verifiers\nVersion: 1.0.0\n{needs}")
        (info / "RECORD").write_text("_verifiers.pth,,\n")
        return place / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.python.parent.parent.glob("lib/python*/site-packages")
        return site

    def __call__(self, *arguments: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-P", "-m", "verifiers.cli.main", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.work, env=self.variables | variables,
            stdin=subprocess.DEVNULL, timeout=280,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def listed(self) -> set[str]:
        return {one["name"] for one in json.loads(self("list", "--json").stdout)}

    def add_package(self, name: str) -> None:
        """A package that is no environment."""
        info = self.site / f"{name.replace('-', '_')}-2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
        (info / "RECORD").write_text(f"{name.replace('-', '_')}.py,,\n")
        (self.site / f"{name.replace('-', '_')}.py").write_text("x = 1\n")


@pytest.fixture
def venv(tmp_path, hub):
    return Venv(tmp_path, hub)


def test_installing_evaluating_and_pushing_end_to_end(hub, venv):
    token = hub.world.token("ada")
    said = venv("install", "Ada/zz-sums@1.0", "--json")
    assert json.loads(said.stdout) == [
        {"name": "zz-sums", "version": "1.0.0", "module": "zz_sums", "from": "ada on the hub"}
    ]
    assert "ada/zz-sums" in venv.listed()

    with Loopback(lambda body: "4") as model:
        evaluate = ("eval", "ada/zz-sums@1.0", "-m", "m", "-b", model.url, "-n", "2", "-r", "1", "--push")
        refused = venv(*evaluate, code=3)  # before the run: nobody is signed in
        assert "vf login" in refused.stderr and not model.requests
        done = venv(*evaluate, VF_HUB_TOKEN=token)
    assert f"pushed to the hub: {hub.url}/evaluations/" in done.stderr
    assert token not in done.stdout + done.stderr
    (folder,) = venv.work.glob("outputs/evals/*/*")
    assert all(token not in file.read_text() for file in folder.iterdir() if file.is_file())
    again = json.loads(venv("push-results", "--json", VF_HUB_TOKEN=token).stdout)
    assert again["url"] in done.stderr  # the same evaluation
    assert (again["version"], again["dirty"], again["mean_reward"]) == ("1.0.0", False, 0.5)

    edited = venv.site / "zz_sums.py"
    edited.write_text(edited.read_text().replace("== answer", '!= ""'))
    with Loopback(lambda body: "5") as model:
        venv("eval", "ada/zz-sums", "-m", "m", "-b", model.url, "-n", "1", "-r", "1", "--push", VF_HUB_TOKEN=token)
    pushed = json.loads(venv("push-results", "--json", VF_HUB_TOKEN=token).stdout)
    assert (pushed["version"], pushed["dirty"], pushed["mean_reward"]) == (None, True, 1.0)


def test_several_at_once_go_on_after_one_that_fails(venv):
    done = venv("install", "ada/zz-sums", "ada/zz-nowhere", "ada/zz-hidden", code=3)
    assert "installed zz-sums 1.1.0 from ada on the hub. Next: vf-eval ada/zz-sums" in done.stdout
    assert "zz-nowhere" in done.stderr and "zz-hidden" in done.stderr and "vf login" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_private_environment_is_installed_with_a_token(hub, venv):
    token = hub.world.token("ada", "read", project="ada/zz-hidden")
    done = venv("install", "ada/zz-hidden", VF_HUB_TOKEN=token)
    assert "installed zz-hidden 1.0.0" in done.stdout and token not in done.stdout + done.stderr
    assert not any(token in file.read_text(errors="replace") for file in venv.site.glob("zz_hidden*/*"))


def test_another_owners_module_is_not_replaced(venv):
    venv("install", "ada/zz-sums")
    refused = venv("install", "bob/zz-sums", code=3)
    assert "ada/zz-sums is installed" in refused.stderr and "--isolated" in refused.stderr
    other = venv.make("other")
    assert f"Next: {other} -P -m" in venv("install", "ada/zz-sums", "--python", str(other.parent.parent)).stdout
    assert "has the same module" in venv("install", "bob/zz-sums", "--python", str(other), code=3).stderr
    assert "no environment 'bob/zz-sums'" in venv("uninstall", "bob/zz-sums", code=3).stderr
    venv("uninstall", "ada/zz-sums")
    venv("install", "bob/zz-sums")


def test_item_48_a_package_that_is_no_environment_is_not_replaced_by_one_of_its_name(venv):
    venv.add_package("zz-library")
    refused = venv("install", "ada/zz-library", code=3)
    assert "would replace the package zz-library 2.0" in refused.stderr
    assert (venv.site / "zz_library.py").read_text() == "x = 1\n"


def test_evaluating_what_is_not_installed_asks_and_nobody_there_means_no(venv):
    with Loopback(lambda body: "4") as model:
        evaluate = ("eval", "ada/zz-sums@1.1.0", "-m", "m", "-b", model.url, "-n", "1", "-r", "1")
        refused = venv(*evaluate, code=3)
        assert "Try: vf-install ada/zz-sums@1.1.0" in refused.stderr
        assert not list(venv.site.glob("zz_sums*"))
        done = venv(*evaluate, "--yes")
    assert "zz-sums 1.1.0" in done.stdout


def test_a_python_that_is_none_is_refused(venv):
    assert "--python nowhere" in venv("install", "ada/zz-sums", "--python", "nowhere", code=3).stderr
    assert "give one of the two" in venv("install", "x", "--python", "p", "--isolated", code=2).stderr


def test_an_isolated_environment_is_found_by_eval_and_removed_by_uninstall(hub, venv):
    venv("install", "ada/zz-sums")
    done = venv("install", "bob/zz-sums", "--isolated")
    assert "into an interpreter of its own. Next: vf-eval bob/zz-sums" in done.stdout
    place = venv.folder / "data" / "verifiers" / "isolated" / "bob--zz-sums"
    assert (place / "bin" / "python").exists()
    assert venv.listed() >= {"ada/zz-sums", "bob/zz-sums"}
    (site,) = place.glob("lib/python*/site-packages")
    assert (site / "verifiers" / "install.py").is_file()  # a copy of this library, not a link to it
    (site / "_needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    with Loopback(lambda body: "4") as model:
        done = venv("eval", "bob/zz-sums", "-m", "m", "-b", model.url, "-n", "2", "-r", "1", "--json")
    assert json.loads(done.stdout)["env"]["owner"] == "bob"
    assert json.loads(done.stdout)["avg_reward"] == 0.5
    assert "removed zz-sums 1.0.0" in venv("uninstall", "bob/zz-sums").stdout
    assert not place.exists()
    assert venv.listed() & {"ada/zz-sums", "bob/zz-sums"} == {"ada/zz-sums"}  # that one stays
