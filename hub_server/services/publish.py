"""`Publish`: a file that came by an upload form becomes part of a release, or is refused and leaves nothing.

The order is what keeps a crash harmless: the file is checked, stored, and only then named by a row, in one
transaction. Whatever was looked at before the transaction is looked at in it again, because another upload may have
been first in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.db import retried
from hub_server.errors import BadRequest, Conflict, TooLarge, Unavailable
from hub_server.hub import Hub
from hub_server.models import File, Project
from hub_server.principal import Principal
from hub_server.services import audit
from hub_server.services.arrived import Arrived
from hub_server.services.publish_target import new_project, new_release, open_release, target_for
from hub_server.services.readme_process import RENDERER
from hub_server.services.release_rows import (
    add_file,
    describe_release,
    has_same_tags,
    metadata_sha256,
    refresh_project,
)
from hub_server.services.stored import hold_stored
from hub_server.settings import Settings
from verifiers.archives import (
    ArchiveRefused,
    Checked,
    FileName,
    Limits,
    check,
    check_form,
    file_name_of,
    refuse_name,
)
from verifiers.refs import normalised

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Published:
    owner: str
    name: str  # of the project, as it writes itself
    version: str
    filename: str
    sha256: str
    is_new: bool  # False: the very same file was here already


def publish_form(
    hub: Hub, who: Principal, owner: str, fields: Mapping[str, Sequence[str]], arrived: Arrived
) -> Published:
    """A file and the fields that an upload tool sends along. Raises HubError."""
    if list(fields.get(":action", ())) != ["file_upload"]:
        raise BadRequest("the field ':action' must be 'file_upload'", code="form_invalid")
    name = file_named(hub.settings, arrived.filename)
    with hub.database.read() as session:
        account, project = target_for(session, who, owner, name.normalized)
        found = None if project is None else _known_file(session, project, arrived.filename, arrived)
        if found is None and project is not None:
            open_release(session, hub.settings, project, name.version)
    checked = checked_file(hub.settings, arrived.path, arrived.filename)
    with refusals_answered():
        check_form(checked, fields)
    if found is not None:
        return Published(account.name, checked.project, checked.version, checked.filename, checked.sha256, False)
    readme_html = RENDERER.render(checked.metadata.description or "", checked.metadata.description_content_type)
    return settled(lambda: _publish(hub, who, owner, checked, readme_html, arrived))


def _publish(hub: Hub, who: Principal, owner: str, checked: Checked, readme_html: str, arrived: Arrived) -> Published:
    store(hub, checked, arrived.path)
    with hub.database.write() as session:
        hold_stored(session)
        account, project = target_for(session, who, owner, checked.normalized, lock=True)
        is_new = True
        if project is not None and _known_file(session, project, checked.filename, arrived) is not None:
            is_new = False
        else:
            project = project or new_project(session, who, account, checked.project)
            release = open_release(session, hub.settings, project, checked.version)
            release = release or new_release(session, who, project, checked.version)
            if has_same_tags(release, checked):
                raise Conflict(
                    f"version {release.version} has a wheel with the tags of {checked.filename} already",
                    code="wheel_exists",
                )
            describe_release(session, release, checked, readme_html)
            file = add_file(session, release, checked)
            store_again_if_swept(hub, checked, arrived.path)
            refresh_project(session, project, has_new_release=True)
            audit.record(
                session, who, "file.publish", project=project, target=file.filename, sha256=file.sha256,
                version=release.version,
            )  # fmt: skip
        return Published(account.name, project.name, checked.version, checked.filename, checked.sha256, is_new)


# Steps that staged releases take too


def settled(action: Callable[[], T]) -> T:
    """Does it, and again when somebody else wrote the same name in between: the second look sees theirs."""
    try:
        return retried(action, tries=3)
    except IntegrityError as error:
        raise Unavailable("many are publishing this at once: try again", retry_after_s=1) from error


def file_named(settings: Settings, filename: str) -> FileName:
    """What the file's name says. Raises BadRequest."""
    with refusals_answered():
        return file_name_of(filename, limits_of(settings))


def checked_file(settings: Settings, path: Path, filename: str) -> Checked:
    """Raises BadRequest, TooLarge, Conflict."""
    with refusals_answered():
        checked = check(path, filename, limits_of(settings))
    refuse_reserved(settings, checked.project)
    return checked


def refuse_reserved(settings: Settings, name: str) -> None:
    """Raises BadRequest for what cannot be the name of a new environment."""
    with refusals_answered():
        refuse_name(name)
    if normalised(name) in {normalised(reserved) for reserved in settings.reserved_names}:
        raise BadRequest(f"the name '{name}' is reserved on this hub", code="name_reserved")


def limits_of(settings: Settings) -> Limits:
    return Limits(
        max_size_bytes=settings.max_file_bytes,
        platform_wheels=settings.allow_platform_wheels,
        direct_urls=settings.allow_direct_urls,
    )


def store(hub: Hub, checked: Checked, path: Path) -> None:
    """The file, and a wheel's METADATA by itself. Before the transaction: nobody else waits for the disk."""
    for key, source in _stored_parts(checked, path).items():
        hub.storage.put(key, source)


def store_again_if_swept(hub: Hub, checked: Checked, path: Path) -> None:
    """In the transaction: what lay in the storage without a row may have been swept since it was put."""
    for key, source in _stored_parts(checked, path).items():
        if hub.storage.size(key) is None:
            hub.storage.put(key, source)


def _stored_parts(checked: Checked, path: Path) -> dict[str, Path | bytes]:
    parts: dict[str, Path | bytes] = {f"files/{checked.sha256}": path}
    if checked.kind == "wheel":
        parts[f"metadata/{metadata_sha256(checked)}"] = checked.metadata.raw
    return parts


def _known_file(session: Session, project: Project, filename: str, arrived: Arrived) -> File | None:
    """The very same file, if it is here; `None` for a new name. Raises BadRequest, Conflict for the loser of a race."""
    found = session.scalar(select(File).where(File.project_id == project.id, File.filename == filename))
    if found is None:
        return None
    if found.release.deleted_at is not None:
        raise BadRequest(
            f"File already exists: {filename} was deleted, and a file name is never used twice. Publish a new version",
            code="file_exists",
        )
    if found.sha256 != arrived.sha256:
        raise _other_bytes(found, arrived.began_at)
    return found


def _other_bytes(found: File, began_at: datetime) -> BadRequest | Conflict:
    message = (
        f"File already exists: {found.filename} with other content (sha256 {found.sha256}). A published file never "
        "changes: publish a new version"
    )
    if found.uploaded_at >= began_at:  # two uploads at once, and the other one was first
        return Conflict(message, code="file_exists")
    return BadRequest(message, code="file_exists")


@contextlib.contextmanager
def refusals_answered() -> Iterator[None]:
    """What the archive rules refuse becomes an answer of the hub, with the rules' own code."""
    try:
        yield
    except ArchiveRefused as error:
        answer = TooLarge if error.code == "too_large" else BadRequest
        raise answer(error.detail, code=error.code) from None
