"""`StagedRelease`: a wheel and an sdist become one release, at once or not at all.

begin → put each file → finalize. Until it is final nothing of it is in any page or index and its version is free;
what is not finalized in time is swept. Each step may be repeated when its answer was lost.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.errors import BadRequest, Conflict, NotFound, Unprocessable
from hub_server.hub import Hub
from hub_server.models import File, Project, Release, Staged, StagedFile, now
from hub_server.principal import Principal
from hub_server.services import audit
from hub_server.services.arrived import Arrived
from hub_server.services.publish import (
    checked_file,
    file_named,
    refusals_answered,
    refuse_reserved,
    settled,
    store,
    store_again_if_swept,
)
from hub_server.services.publish_target import new_project, new_release, refuse_alike, release_spelt, target_for
from hub_server.services.readme_process import RENDERER
from hub_server.services.release_rows import add_file, describe_release, refresh_project
from hub_server.services.stored import hold_stored
from hub_server.storage import full_disk_named
from verifiers.archives import Checked, canonical_version, check_pair
from verifiers.refs import normalised

OPEN_FOR = timedelta(hours=24)
MAX_FILES = 20


@dataclass(frozen=True, slots=True)
class OpenRelease:
    id: str
    owner: str
    name: str
    version: str
    expires_at: datetime
    files: dict[str, str]  # file name → SHA-256
    is_final: bool


def begin(hub: Hub, who: Principal, owner: str, name: str, version: str) -> OpenRelease:
    """A place to put the files of a new version. Raises HubError, Conflict when the version is there already."""
    refuse_reserved(hub.settings, name)
    with refusals_answered():
        version = canonical_version(version)
    with hub.database.write(seen=False) as session:
        account, project = target_for(session, who, owner, name)
        if project is None:
            refuse_alike(session, account, name)
        else:
            _refuse_taken(session, project, version)
        staged = Staged(
            id=secrets.token_hex(16),
            owner=account,
            name=name,
            normalized=normalised(name),
            version=version,
            created_by_id=who.user_id,
            expires_at=now() + OPEN_FOR,
            files=[],
        )
        session.add(staged)
        return _view(staged)


def look(hub: Hub, who: Principal, owner: str, name: str, staged_id: str) -> OpenRelease:
    """What was put so far. Raises NotFound to anybody but who began it."""
    with hub.database.read() as session:
        return _view(_staged(session, who, owner, name, staged_id))


def put(hub: Hub, who: Principal, owner: str, name: str, staged_id: str, arrived: Arrived) -> OpenRelease:
    """Checks and stores one file of it. The same file again changes nothing; another of its name takes its place."""
    with hub.database.read() as session:
        staged = _open(session, who, owner, name, staged_id)
        named = file_named(hub.settings, arrived.filename)
        if (named.normalized, named.version) != (staged.normalized, staged.version):
            raise BadRequest(
                f"{arrived.filename} is no file of {staged.name} {staged.version}", code="filename_invalid"
            )
    checked = checked_file(hub.settings, arrived.path, arrived.filename)
    return settled(lambda: _put(hub, who, owner, name, staged_id, checked, arrived.path))


def _put(hub: Hub, who: Principal, owner: str, name: str, staged_id: str, checked: Checked, path: Path) -> OpenRelease:
    store(hub, checked, path)
    with hub.database.write(seen=False) as session:
        hold_stored(session)
        staged = _open(session, who, owner, name, staged_id, lock=True)
        row = next((one for one in staged.files if one.filename == checked.filename), None)
        if row is None:
            if len(staged.files) >= MAX_FILES:
                raise BadRequest(f"a release has at most {MAX_FILES} files", code="too_many_files")
            row = StagedFile(filename=checked.filename, kind=checked.kind)
            staged.files.append(row)
        row.size_bytes, row.sha256 = checked.size_bytes, checked.sha256
        store_again_if_swept(hub, checked, path)
        return _view(staged)


def abandon(hub: Hub, who: Principal, owner: str, name: str, staged_id: str) -> None:
    """Forgets a release that was not finished. Its files are swept later, if no other release has them."""
    with hub.database.write(seen=False) as session:
        session.delete(_open(session, who, owner, name, staged_id, lock=True))


@dataclass(frozen=True, slots=True)
class FinalRelease:
    owner: str
    name: str
    version: str
    visibility: str
    content_hash: str | None
    files: dict[str, str]  # file name → SHA-256


def finalize(hub: Hub, who: Principal, owner: str, name: str, staged_id: str) -> FinalRelease:
    """Makes it a release, seen by everybody who may see the project, in one transaction.

    Raises Unprocessable when the files do not belong together, Conflict when somebody else published the version.
    """
    with hub.database.read() as session:
        staged = _staged(session, who, owner, name, staged_id)
        if staged.release_id is not None:
            return _finished(session.get_one(Release, staged.release_id))
        names = {row.filename: row.sha256 for row in staged.files}
    with contextlib.ExitStack() as stack:
        paths = {filename: stack.enter_context(_on_disk(hub, sha256)) for filename, sha256 in names.items()}
        # Looked at again, because what counts is what lies in the storage, not what was found when it came.
        checked = [checked_file(hub.settings, path, filename) for filename, path in paths.items()]
        wheels = _fitting(checked)
        description = wheels[0].metadata
        readme_html = RENDERER.render(description.description or "", description.description_content_type)
        return settled(lambda: _finalize(hub, who, owner, name, staged_id, checked, paths, readme_html))


def _finalize(
    hub: Hub,
    who: Principal,
    owner: str,
    name: str,
    staged_id: str,
    checked: list[Checked],
    paths: dict[str, Path],
    readme_html: str,
) -> FinalRelease:
    with hub.database.write() as session:
        hold_stored(session)
        staged = _staged(session, who, owner, name, staged_id, lock=True)
        if staged.release_id is not None:
            return _finished(session.get_one(Release, staged.release_id))
        if {row.filename: row.sha256 for row in staged.files} != {one.filename: one.sha256 for one in checked}:
            raise Conflict("the files changed while the release was finalized: finalize it again", code="files_changed")
        account, project = target_for(session, who, owner, name, lock=True)
        project = project or new_project(session, who, account, staged.name)
        _refuse_taken(session, project, staged.version)
        release = new_release(session, who, project, staged.version)
        for one in sorted(checked, key=lambda one: one.kind != "wheel"):
            describe_release(session, release, one, readme_html)
            add_file(session, release, one)
            store_again_if_swept(hub, one, paths[one.filename])
        release.is_final = True
        staged.release_id = release.id
        refresh_project(session, project, has_new_release=True)
        audit.record(
            session, who, "release.publish", project=project, target=f"{account.name}/{project.name}@{release.version}",
            files=[one.filename for one in checked],
        )  # fmt: skip
        return _finished(release)


def _fitting(checked: list[Checked]) -> list[Checked]:
    """The wheels. Raises Unprocessable, BadRequest."""
    wheels = [one for one in checked if one.kind == "wheel"]
    sdists = [one for one in checked if one.kind == "sdist"]
    if not wheels or len(sdists) != 1:
        raise Unprocessable(
            f"a release has a wheel and one sdist; this one has {len(wheels)} wheels and {len(sdists)} sdists",
            code="release_incomplete",
        )
    if len({wheel.name.tags for wheel in wheels}) < len(wheels):
        raise Unprocessable("two wheels have the same tags", code="wheel_exists")
    with refusals_answered():
        for wheel in wheels:
            check_pair(wheel, sdists[0])
    return wheels


@contextlib.contextmanager
def _on_disk(hub: Hub, sha256: str) -> Iterator[Path]:
    """A stored file as a path: itself, or a copy while the block runs."""
    key = f"files/{sha256}"
    path = hub.storage.local_path(key)
    if path is not None and path.exists():
        yield path
        return
    with tempfile.NamedTemporaryFile(dir=hub.settings.temporary, prefix="finish-") as copy:
        try:
            with full_disk_named():
                for piece in hub.storage.read(key):
                    copy.write(piece)
                copy.flush()
        except FileNotFoundError:
            raise NotFound("a file of this release is gone: put it again", code="file_gone") from None
        yield Path(copy.name)


def _refuse_taken(session: Session, project: Project, version: str) -> None:
    """A release that is finished as a whole must be new."""
    found = release_spelt(session, project, version)
    if found is not None:
        raise Conflict(
            f"version {version} of '{project.name}' is published already: choose another one", code="version_exists"
        )


def _staged(session: Session, who: Principal, owner: str, name: str, staged_id: str, *, lock: bool = False) -> Staged:
    """Raises what publishing to the project raises, and NotFound when it is somebody else's or gone."""
    account, _ = target_for(session, who, owner, name)
    query = select(Staged).where(
        Staged.id == staged_id,
        Staged.owner_id == account.id,
        Staged.normalized == normalised(name),
        Staged.created_by_id == who.user_id,
        Staged.expires_at > now(),
    )
    staged = session.scalar(query.with_for_update() if lock else query)
    if staged is None:
        raise NotFound(f"there is no open release '{staged_id[:40]}' of '{owner}/{name}': begin one")
    return staged


def _open(session: Session, who: Principal, owner: str, name: str, staged_id: str, *, lock: bool = False) -> Staged:
    staged = _staged(session, who, owner, name, staged_id, lock=lock)
    if staged.release_id is not None:
        raise Conflict(f"version {staged.version} of '{name}' is published and never changes", code="release_final")
    return staged


def _view(staged: Staged) -> OpenRelease:
    return OpenRelease(
        staged.id,
        staged.owner.name,
        staged.name,
        staged.version,
        staged.expires_at,
        {row.filename: row.sha256 for row in staged.files},
        staged.release_id is not None,
    )


def _finished(release: Release) -> FinalRelease:
    project = release.project
    files: list[File] = release.files
    return FinalRelease(
        project.owner.name,
        project.name,
        release.version,
        project.visibility,
        release.content_hash,
        {file.filename: file.sha256 for file in files},
    )
