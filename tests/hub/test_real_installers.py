"""uv and pip, as they are, against a real server, each in a new virtual environment."""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import hub_servers
import pytest
import uv
from hub_packages import Package
from hub_servers import places
from hub_world import World

from hub_server.hub import Hub
from hub_server.settings import Settings
from verifiers.archives.own_wheel import own_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

USES_THE_LIBRARY = "import verifiers as vf\n\ndef load_environment(**args):\n    return vf.__version__\n"
OURS = (
    "import verifiers, verifiers.records as records, {module} as env; print(env.load_environment(), records.__file__)"
)


@dataclass(frozen=True)
class Served:
    url: str
    token: str
    settings: Settings

    def index(self, ref: str, *, with_token: bool = False) -> str:
        who = f"__token__:{self.token}@" if with_token else ""
        return f"http://{who}{self.url.removeprefix('http://')}/{ref}/simple/"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A hub in a process of its own, with a public, a private and an old environment."""
    with places() as where:
        yield from serve(Settings.model_validate({"data": tmp_path_factory.mktemp("served") / "hub", **where}), where)


def serve(settings, where):
    hub = Hub.open(settings)
    world = World(hub)
    ada = world.user("ada")
    for name, visibility, needs in (
        ("zz-public-env", "public", "verifiers>=0.1.9"),
        ("zz-private-env", "private", "verifiers>=0.1.9"),
        ("zz-old-env", "public", "verifiers<0.2"),
    ):
        package = Package(name, requires=(needs,), module_text=USES_THE_LIBRARY)
        world.release(f"ada/{name}", visibility=visibility, package=package)
    hub.close()
    with hub_servers.served(settings.data, **where) as server:
        yield Served(server.address, ada.token, settings)


class Clean:
    """A new virtual environment and a home of its own. uv's cache is shared, so that packages come once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("UV_INDEX", "VIRTUAL_ENV"))},
            "VIRTUAL_ENV": str(folder / "venv"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_HTTP_TIMEOUT": "300",
        }
        self.environment.pop("PYTHONPATH", None)
        self.uv("venv", "-q", "-p", sys.executable, str(folder / "venv"))

    def uv(self, *arguments: str, code: int = 0, **environment: str) -> str:
        return self._run([uv.find_uv_bin(), *arguments], code, environment)

    def pip(self, *arguments: str, code: int = 0, **environment: str) -> str:
        return self._run([sys.executable, "-m", "pip", "--python", str(self.python), *arguments], code, environment)

    def runs_ours(self, module: str, python: Path | None = None) -> None:
        said = self._run([str(python or self.python), "-I", "-c", OURS.format(module=module)], 0, {}).split()
        assert said[0] == own_wheel().version
        assert "site-packages" in said[1]

    def has_ours(self) -> None:
        """Ours is there, file for file; its dependencies need not be."""
        (site,) = self.folder.glob("venv/lib/python*/site-packages")
        (info,) = site.glob("verifiers-*.dist-info")
        assert info.name == f"verifiers-{own_wheel().version}.dist-info"
        assert (info / "WHEEL").read_text().startswith("Wheel-Version: 1.0\nGenerator: verifiers\n")

    def _run(self, command: list[str], code: int, environment: dict[str, str]) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, env={**self.environment, **environment}
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def clean(tmp_path):
    return Clean(tmp_path)


# uv


def test_uv_pip_installs_a_public_environment_with_our_library(served, clean):
    clean.uv("pip", "install", "--extra-index-url", served.index("ada/zz-public-env"), "zz-public-env")
    clean.runs_ours("zz_public_env")


def test_uv_add_lock_and_sync_a_private_environment_without_writing_the_token_down(served, clean):
    project = clean.folder / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "user"\nversion = "1"\nrequires-python = ">=3.11"\n')
    there = ("--project", str(project))
    index = served.index("ada/zz-private-env")
    refused = clean.uv("add", *there, "--index", f"ada-private={index}", "zz-private-env", code=1)
    assert "zz-private-env" in refused
    secret = {"UV_INDEX_ADA_PRIVATE_USERNAME": "__token__", "UV_INDEX_ADA_PRIVATE_PASSWORD": served.token}
    clean.uv("add", *there, "--index", f"ada-private={index}", "zz-private-env", **secret)
    clean.runs_ours("zz_private_env", project / ".venv" / "bin" / "python")
    lock = (project / "uv.lock").read_text()
    assert served.token not in lock + (project / "pyproject.toml").read_text()
    (locked,) = [package for package in tomllib.loads(lock)["package"] if package["name"] == "verifiers"]
    assert locked["version"] == own_wheel().version
    assert locked["source"] == {"registry": index}
    assert locked["wheels"][0]["hash"] == f"sha256:{own_wheel().sha256}"
    assert locked["wheels"][0]["upload-time"]
    # Again from the lock file alone, the token out of a netrc file, nothing out of uv's cache of this index.
    netrc = clean.folder / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login __token__ password {served.token}\n")
    subprocess.run(["rm", "-rf", str(project / ".venv")], check=True)
    fresh = ("--refresh-package", "zz-private-env", "--refresh-package", "verifiers")
    clean.uv("sync", *there, "--frozen", *fresh, NETRC=str(netrc))
    clean.runs_ours("zz_private_env", project / ".venv" / "bin" / "python")


def test_uv_takes_the_token_in_the_address(served, clean):
    url = served.index("ada/zz-private-env", with_token=True)
    clean.uv("pip", "install", "--no-deps", "--extra-index-url", url, "zz-private-env", "verifiers")
    clean.has_ours()


def test_uv_says_clearly_that_it_cannot_install_for_another_library(served, clean):
    url = served.index("ada/zz-old-env")
    said = clean.uv("pip", "install", "--extra-index-url", url, "zz-old-env", code=1)
    text = re.sub(r"\s+", " ", said)
    assert "verifiers<0.2" in text
    assert f"verifiers=={own_wheel().version}" in text or "verifiers<=" in text or "no version" in text, text
    assert not list(clean.folder.glob("venv/lib/python*/site-packages/verifiers*"))


def test_uv_sees_a_new_release_at_once_when_it_asks_anew(served, clean):
    ask = (
        "pip",
        "install",
        "--dry-run",
        "--no-deps",
        "--extra-index-url",
        served.index("ada/zz-old-env"),
        "zz-old-env",
    )
    assert "zz-old-env==1.0.0" in clean.uv(*ask)
    hub = Hub.open(served.settings)  # another process than the server
    World(hub).release("ada/zz-old-env", package=Package("zz-old-env", "1.1.0", module_text=USES_THE_LIBRARY))
    hub.close()
    assert "zz-old-env==1.1.0" in clean.uv(*ask, "--refresh-package", "zz-old-env")


# pip


def test_pip_takes_our_library_and_not_another_of_that_name(served, clean):
    # Both have a `verifiers`; what it needs is left out here, because uv's test above has installed all of it.
    url = served.index("ada/zz-public-env")
    clean.pip("install", "--no-deps", "--extra-index-url", url, "zz-public-env", "verifiers>=0.1.9")
    clean.has_ours()


@pytest.mark.parametrize("way", ["address", "netrc"])
def test_pip_installs_a_private_environment(served, clean, way):
    netrc = clean.folder / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login __token__ password {served.token}\n" if way == "netrc" else "")
    url = served.index("ada/zz-private-env", with_token=way == "address")
    command = ("install", "--no-deps", "--no-input", "zz-private-env", "verifiers>=0.1.9", "--extra-index-url")
    nothing = clean.folder / "nothing"
    nothing.write_text("")
    refused = clean.pip(*command, served.index("ada/zz-private-env"), code=1, NETRC=str(nothing))
    assert "zz-private-env" in refused
    clean.pip(*command, url, NETRC=str(netrc))
    clean.has_ours()
