"""Small real packages of environments, built in memory: a wheel and an sdist that keep all the rules of `archives`."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    name: str
    version: str = "1.0.0"
    requires: tuple[str, ...] = ("verifiers>=0.1.9",)
    summary: str = "An environment of a test."
    readme: str = "# An environment\n\nOf a test."
    module_text: str = "def load_environment(**args):\n    return None\n"

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    @property
    def wheel_name(self) -> str:
        return f"{self.module.lower()}-{self.version}-py3-none-any.whl"

    @property
    def sdist_name(self) -> str:
        return f"{self.module.lower()}-{self.version}.tar.gz"

    @property
    def metadata(self) -> bytes:
        requires = "".join(f"Requires-Dist: {requirement}\n" for requirement in self.requires)
        head = (
            f"Metadata-Version: 2.4\nName: {self.name}\nVersion: {self.version}\nSummary: {self.summary}\n"
            f"Requires-Python: >=3.11\n{requires}Description-Content-Type: text/markdown\n"
        )
        return f"{head}\n{self.readme}\n".encode()

    @property
    def pyproject(self) -> bytes:
        return (
            f'[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n\n'
            f'[project]\nname = "{self.name}"\nversion = "{self.version}"\ndescription = "{self.summary}"\n'
            f'requires-python = ">=3.11"\ndependencies = {list(self.requires)}\n'
        ).encode()

    @property
    def files(self) -> dict[str, bytes]:
        """What the wheel installs."""
        return {f"{self.module}.py": self.module_text.encode()}

    def wheel(self) -> bytes:
        info = f"{self.module.lower()}-{self.version}.dist-info"
        members = {
            **self.files,
            f"{info}/METADATA": self.metadata,
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in members.items()]
        members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in members.items():
                archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
        return out.getvalue()

    def sdist(self, *, pyproject: bytes | None = None) -> bytes:
        top = f"{self.module.lower()}-{self.version}"
        members = {
            "PKG-INFO": self.metadata,
            "pyproject.toml": self.pyproject if pyproject is None else pyproject,
            "README.md": self.readme.encode(),
            f"{self.module}.py": self.module_text.encode(),
        }
        out = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path, data in members.items():
                member = tarfile.TarInfo(f"{top}/{path}")
                member.size, member.mode = len(data), 0o644
                archive.addfile(member, io.BytesIO(data))
        return out.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
