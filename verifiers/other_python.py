"""`OtherPython`: an interpreter that is not the one running, with an environment and this `verifiers` in it.

Either one that the user names (`--python`), or one that is made for a single environment (`--isolated`), so that
environments whose dependencies or module names clash can live on one machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from verifiers.archives.own_wheel import own_wheel
from verifiers.errors import EnvironmentNotFound, SetupError
from verifiers.installed import InstalledEnv
from verifiers.refs import EnvRef, normalised
from verifiers.uv_program import run_uv

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class OtherPython:
    program: Path

    @classmethod
    def named(cls, python: str) -> OtherPython:
        """A path, or a virtual environment's folder. Raises SetupError when no Python of 3.11 or newer is there."""
        program = program_of(python)
        check = "import sys; sys.exit(sys.version_info < (3, 11))"
        try:
            done = subprocess.run([program, "-I", "-c", check], capture_output=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SetupError(f"--python {python}: {error}. Give an interpreter or a virtual environment") from None
        if done.returncode:
            raise SetupError(f"--python {python}: verifiers needs Python 3.11 or newer")
        return cls(program)

    @classmethod
    def isolated(cls, ref: EnvRef) -> OtherPython:
        """The interpreter made for this environment; `exists` tells whether it has been made."""
        return cls(isolated_folder(ref) / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    @property
    def exists(self) -> bool:
        return self.program.exists()

    @property
    def is_this_one(self) -> bool:
        return self.program.parent.parent.resolve() == Path(sys.prefix).resolve()

    def make(self) -> None:
        """Raises SetupError with uv's own words."""
        run_uv(["venv", "--quiet", "--clear", "--python", sys.executable, str(self.program.parent.parent)])

    def install(self, arguments: list[str], say: Say) -> None:
        """Installs what uv's `arguments` name, with this `verifiers` in place of whichever they ask for."""
        own = own_wheel()
        with tempfile.TemporaryDirectory(prefix="vf-install-") as folder:
            wheel = Path(folder) / own.filename
            wheel.write_bytes(own.content)
            override = Path(folder) / "override.txt"
            override.write_text(f"verifiers @ {wheel.as_uri()}\n", "utf-8")
            say(f"installing into {self.program}")
            run_uv(
                ["pip", "install", "--python", str(self.program), "--override", str(override), str(wheel), *arguments]
            )

    def vf(self, *arguments: str) -> list[str]:
        """The command line that runs `vf` there; -P, because the working folder may hold modules of any name."""
        return [str(self.program), "-P", "-m", "verifiers.cli.main", *arguments]

    def refuse_anothers(self, name: str, owner: str) -> None:
        """Raises SetupError when another owner's environment of this name is installed there."""
        try:
            there = self.find(name)
        except SetupError:  # no verifiers yet, so no environment either
            return
        if there is not None and there.owner not in (None, owner):
            raise SetupError(
                f"{there.owner}/{there.name} is installed in {self.program}, and '{owner}/{name}' has the same module. "
                "Remove that one, or give this one an interpreter of its own (--isolated)"
            )

    def remove(self, name: str) -> InstalledEnv:
        """Deletes an interpreter that was made for one environment; what that was."""
        env = self.find(name)
        if env is None:
            raise EnvironmentNotFound(f"{self.program} has no environment '{name}': remove its folder by hand")
        shutil.rmtree(self.program.parent.parent)
        return env

    def find(self, name: str) -> InstalledEnv | None:
        """The environment of this name as it is installed there. Raises SetupError when no verifiers runs there."""
        command = [str(self.program), "-c", _FIND, name]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=Path(sys.prefix))
        if done.returncode:
            raise SetupError(f"{self.program} does not run verifiers: {done.stderr.strip()[-500:]}")
        found = json.loads(done.stdout)
        if found is None:
            return None
        root = Path(found["root"]) if found["root"] else None
        return InstalledEnv(**{**found, "file": Path(found["file"]), "root": root})


def program_of(python: str) -> Path:
    """The interpreter that `--python` names: itself, or its virtual environment's folder."""
    place = Path(python).expanduser()
    programs = (place / "bin" / "python", place / "Scripts" / "python.exe")
    return next((program for program in programs if program.exists()), place)


# The working directory of a user may hold modules of any name, so it is left.
_FIND = """
import dataclasses, json, sys
from verifiers.installed import find_installed
found = find_installed(sys.argv[1])
print(json.dumps(found and dataclasses.asdict(found), default=str))
"""


def isolated_for(env_id: str) -> OtherPython | None:
    """The interpreter that was made for this environment; without an owner in the id, if only one was."""
    ref = EnvRef.parse(env_id)
    found = [
        other
        for known, other in isolated_environments()
        if known.name == ref.distribution and (ref.owner or "").lower() in ("", known.owner) and not other.is_this_one
    ]
    return found[0] if len(found) == 1 else None


def isolated_folder(ref: EnvRef) -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "verifiers" / "isolated" / f"{(ref.owner or '_').lower()}--{normalised(ref.name)}"


def isolated_environments() -> list[tuple[EnvRef, OtherPython]]:
    """Every environment that has an interpreter of its own, by owner and name."""
    found: list[tuple[EnvRef, OtherPython]] = []
    for folder in sorted(isolated_folder(EnvRef("x")).parent.glob("*--*")):
        owner, _, name = folder.name.partition("--")
        ref = EnvRef(name, None if owner == "_" else owner)
        other = OtherPython.isolated(ref)
        if other.exists:
            found.append((ref, other))
    return found
