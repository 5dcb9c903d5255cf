"""`pull`: the source of a release, unpacked into a folder."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from verifiers.archives import check_sdist
from verifiers.errors import SetupError
from verifiers.hub.client import HubClient
from verifiers.hub.fetch import Fetched, fetch
from verifiers.refs import EnvRef
from verifiers.unpacking import unpack_member


def pull(ref: EnvRef, target: Path, *, client: HubClient, say: Callable[[str], None]) -> Fetched:
    """Unpacks the sdist's folder as `target`, which must be missing or empty.

    The hash is compared and the archive checked by the rules of publishing before anything is unpacked; what
    would leave the folder is refused once more. Raises SetupError.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SetupError(f"{target} is there already and not empty: name another folder (--target)")
    fetched = fetch(client, ref, kind="sdist", say=say)
    check_sdist(fetched.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".vf-pull-") as folder:
        with tarfile.open(fetched.path) as archive:
            for member in archive:
                unpack_member(archive, member, folder)
        (unpacked,) = Path(folder).iterdir()  # one folder at the top: that was checked
        if target.is_dir():
            target.rmdir()
        unpacked.rename(target)
    return fetched
