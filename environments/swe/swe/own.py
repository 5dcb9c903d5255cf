"""Our own tasks: each file of `repositories/` is a small repository with a bug, an issue, hidden tests and a solution.

`files` is the base commit, `test_files` what is brought for the tests alone; the other keys are those of SWE-bench.
"""

from __future__ import annotations

import io
import tarfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import verifiers as vf
from verifiers.rubrics.swe_repository import Repositories

FOLDER = Path(__file__).with_name("repositories")


def own_rows() -> list[dict[str, Any]]:
    """The five tasks; `repository` is the task's own file."""
    rows: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.toml")):
        row = read_toml(path)
        rows.append({**{key: value for key, value in row.items() if key != "files"}, "repository": str(path)})
    return rows


def read_toml(path: Path) -> dict[str, Any]:
    """Raises DatasetError when there is no such file, or it is not of this form."""
    try:
        row = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise vf.DatasetError(f"the repository {path} cannot be read: {error}") from None
    if not isinstance(row.get("files"), dict) or not row["files"]:
        raise vf.DatasetError(f"the repository {path} has no [files]: give the text of each by its path")
    return row


class OwnRepositories(Repositories):
    """Reads a `repository` that is a .toml file with the texts of its files; others as everywhere."""

    async def files(self, task: vf.SWETask) -> bytes | None:
        if task.repository is not None and task.repository.endswith(".toml"):
            return as_tar(Path(task.repository))
        return await super().files(task)


@cache
def as_tar(path: Path) -> bytes:
    """The base as a tar archive, the same bytes every time."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, text in sorted(read_toml(path)["files"].items()):
            entry = tarfile.TarInfo(name)
            data = text.encode()
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()
