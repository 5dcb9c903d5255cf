"""`World`: people, tokens, organisations and released environments in a hub, for tests of the hub.

What is not a test's subject is written straight into the tables; uploads through the real road are `test_upload`'s.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Literal

from hub_packages import Package
from packaging.requirements import Requirement
from sqlalchemy import select

from hub_server import tokens
from hub_server.hub import Hub
from hub_server.models import Account, Collaborator, Dependency, File, Membership, Project, Release, Token, now
from hub_server.principal import Principal, Role, Scope
from hub_server.services.access import owner_named
from hub_server.services.search import index_project
from verifiers.archives import check, ultra_normalised
from verifiers.refs import normalised


@dataclass(frozen=True)
class Person:
    name: str
    id: int
    token: str  # of scope admin, for all that the user may
    is_admin: bool

    @property
    def headers(self) -> dict[str, str]:
        return bearer(self.token)

    @property
    def basic(self) -> tuple[str, str]:
        return ("__token__", self.token)

    @property
    def principal(self) -> Principal:
        return Principal(self.id, self.name, self.is_admin)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def until_told(hub: Hub, is_so: Callable[[], bool]) -> bool:
    """Whether it is so now on SQLite; soon on PostgreSQL, whose notices to other workers take their way: before what
    they hold would have been forgotten anyway."""
    until = time.monotonic() + (0 if hub.database.is_sqlite else 0.8 * hub.settings.token_cache_s)
    while not is_so():
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True


class World:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def user(self, name: str, *, is_admin: bool = False) -> Person:
        """A user without a password, with a token; sign-in by password is made with `accounts.create_user`."""
        with self.hub.database.write() as session:
            account = Account(kind="user", name=name, is_admin=is_admin)
            session.add(account)
            session.flush()
            user_id = account.id
        return Person(name, user_id, self.token(name), is_admin)

    def organisation(self, name: str, **roles: Role) -> int:
        """`world.organisation("lab", ada="owner", bob="reader")`; the users exist."""
        with self.hub.database.write() as session:
            account = Account(kind="organisation", name=name)
            session.add(account)
            session.flush()
            for user, role in roles.items():
                user_id = owner_named(session, user).id
                session.add(Membership(organisation_id=account.id, user_id=user_id, role=role))
            return account.id

    def token(
        self,
        user: str,
        scope: Scope = "admin",
        *,
        owner: str | None = None,
        project: str | None = None,
        expires_in_s: float | None = None,
    ) -> str:
        """`project` is `owner/name`. A negative `expires_in_s` makes one that has expired."""
        secret = tokens.make()
        with self.hub.database.write() as session:
            session.add(
                Token(
                    user_id=owner_named(session, user).id,
                    name="of a test",
                    prefix=secret.prefix,
                    sha256=secret.sha256,
                    scope=scope,
                    owner_id=None if owner is None else owner_named(session, owner).id,
                    project_id=None if project is None else self.project_id(project),
                    expires_at=None if expires_in_s is None else now() + timedelta(seconds=expires_in_s),
                )
            )
        return secret.text

    def project(self, ref: str, *, visibility: Literal["private", "public"] = "private", **collaborators: Role) -> int:
        """An environment without a release; its owner exists."""
        owner, _, name = ref.partition("/")
        with self.hub.database.write() as session:
            project = Project(
                owner_id=owner_named(session, owner).id,
                name=name,
                normalized=normalised(name),
                ultra_normalized=ultra_normalised(name),
                visibility=visibility,
            )
            session.add(project)
            session.flush()
            for user, role in collaborators.items():
                user_id = owner_named(session, user).id
                session.add(Collaborator(project_id=project.id, user_id=user_id, role=role))
            return project.id

    def project_id(self, ref: str) -> int | None:
        owner, _, name = ref.partition("/")
        with self.hub.database.read() as session:
            owner_id = owner_named(session, owner).id
            return session.scalar(
                select(Project.id).where(Project.owner_id == owner_id, Project.normalized == normalised(name))
            )

    def release(
        self,
        ref: str,
        version: str = "1.0.0",
        *,
        visibility: Literal["private", "public"] = "private",
        package: Package | None = None,
        tags: tuple[str, ...] = (),
    ) -> int:
        """A published release with a wheel and an sdist, its project made when it is missing. The release's id."""
        package = package or Package(ref.partition("/")[2], version)
        project_id = self.project_id(ref) or self.project(ref, visibility=visibility)
        with self.hub.database.write() as session:
            release = Release(project_id=project_id, version=package.version, is_final=True, summary=package.summary)
            release.requires_python, release.requires_dist = ">=3.11", list(package.requires)
            release.readme_html, release.readme_text = f"<pre>{package.readme}</pre>", package.readme
            session.add(release)
            session.flush()
            for filename, data in ((package.wheel_name, package.wheel()), (package.sdist_name, package.sdist())):
                session.add(self._stored(release, package, filename, data))
            project = session.get_one(Project, project_id)
            project.latest_release_id, project.updated_at = release.id, now()
            project.summary, project.tags = package.summary, list(tags)
            for requirement in package.requires:
                needed = normalised(Requirement(requirement).name)
                session.add(Dependency(release_id=release.id, normalized=needed, requirement=requirement))
            index_project(session, project)
            return release.id

    def _stored(self, release: Release, package: Package, filename: str, data: bytes) -> File:
        checked = check(io.BytesIO(data), filename)
        self.hub.storage.put(f"files/{checked.sha256}", data)
        file = File(
            release_id=release.id,
            project_id=release.project_id,
            filename=filename,
            kind=checked.kind,
            size_bytes=len(data),
            sha256=checked.sha256,
            requires_python=">=3.11",
            members=[[m.path, m.size_bytes, m.sha256, m.executable] for m in checked.members],
        )
        if checked.kind == "wheel":
            file.metadata_sha256 = sha256(package.metadata).hexdigest()
            self.hub.storage.put(f"metadata/{file.metadata_sha256}", package.metadata)
        return file
