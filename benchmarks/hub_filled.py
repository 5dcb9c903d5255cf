"""`fill`: a hub with made-up environments: a few of known sizes, and as many others as one likes."""

import hashlib
import random
from datetime import timedelta

from sqlalchemy import insert, text

from hub_server import tokens
from hub_server.hub import Hub
from hub_server.models import Account, Dependency, Facet, File, Project, Release, Token, now
from hub_server.services.search import index_project

WORDS = "math code tool search logic puzzle agent web game grade school proof step model reward chess word".split()


def fill(settings, n_projects):
    """Two public environments of 20 and 500 files, a private one, a wheel of 1 MB, `n_projects` others."""
    hub = Hub.open(settings)
    secret = tokens.make()
    with hub.database.write() as session:
        bench = Account(kind="user", name="bench")
        session.add(bench)
        session.flush()
        session.add(Token(user_id=bench.id, name="bench", prefix=secret.prefix, sha256=secret.sha256, scope="publish"))
        for name, n_files, visibility in (
            ("page20", 20, "public"), ("page500", 500, "public"), ("private20", 20, "private"), ("wheel1mb", 1, "public")
        ):  # fmt: skip
            project = Project(
                owner_id=bench.id, name=name, normalized=name, ultra_normalized=name, visibility=visibility
            )
            session.add(project)
            session.flush()
            for number in range(n_files):
                release = Release(project_id=project.id, version=f"0.{number}.0", requires_python=">=3.10")
                release.readme_text = "An environment of a benchmark."
                session.add(release)
                session.flush()
                data = random.Random(number).randbytes(1 << 20 if name == "wheel1mb" else 2_000)
                sha256 = hashlib.sha256(data).hexdigest()
                hub.storage.put(f"files/{sha256}", data)
                about = hashlib.sha256(data[:1_000]).hexdigest()
                hub.storage.put(f"metadata/{about}", data[:1_000])
                session.add(
                    File(
                        release_id=release.id, project_id=project.id, kind="wheel", size_bytes=len(data), sha256=sha256,
                        filename=f"{name}-{release.version}-py3-none-any.whl", metadata_sha256=about,
                        requires_python=">=3.10",
                    )
                )  # fmt: skip
            project.latest_release_id = release.id
            index_project(session, project)
    with hub.database.write() as session:
        fill_others(session, n_projects)
    hub.close()
    return secret.text


def fill_others(session, n_projects):
    """Each with ten files, tags, a README and dependencies."""
    chance = random.Random(1)
    if not n_projects:
        return
    owners = [Account(kind="user", name=f"owner-{number}") for number in range(max(1, n_projects // 20))]
    session.add_all(owners)
    session.flush()
    first_project = session.execute(text("SELECT max(id) FROM project")).scalar() + 1
    first_release = session.execute(text("SELECT max(id) FROM release")).scalar() + 1
    began = now()
    projects, releases, files, facets, needs, texts = [], [], [], [], [], []
    for number in range(n_projects):
        project_id, name = first_project + number, f"{chance.choice(WORDS)}-env-{number}"
        tags = chance.sample(WORDS, 3)
        summary = " ".join(chance.choices(WORDS, k=10))
        readme = " ".join(chance.choices(WORDS, k=20) + [f"word{chance.randrange(5_000)}" for _ in range(200)])
        last = first_release + number * 10 + 9
        projects.append(
            {"id": project_id, "owner_id": chance.choice(owners).id, "name": name, "normalized": name,
             "ultra_normalized": name, "visibility": "public", "summary": summary, "tags": tags,
             "task_type": "single-turn", "n_stars": chance.randrange(100), "n_downloads": chance.randrange(10_000),
             "updated_at": began - timedelta(minutes=number), "latest_release_id": last}
        )  # fmt: skip
        for version in range(10):
            release_id = first_release + number * 10 + version
            releases.append({"id": release_id, "project_id": project_id, "version": f"0.{version}.0", "license": "MIT"})
            sha256 = hashlib.sha256(f"{name}{version}".encode()).hexdigest()
            files.append(
                {"release_id": release_id, "project_id": project_id, "filename": f"{name}-0.{version}.0.whl",
                 "kind": "wheel", "size_bytes": 1, "sha256": sha256, "metadata_sha256": sha256}
            )  # fmt: skip
        facets += [{"kind": "tag", "value": tag, "project_id": project_id} for tag in tags]
        facets += [{"kind": "license", "value": "MIT", "project_id": project_id}]
        needs.append({"release_id": last, "normalized": "verifiers", "requirement": "verifiers>=0.1.9"})
        texts.append({"id": project_id, "name": name, "summary": summary, "tags": " ".join(tags), "readme": readme})
    session.execute(insert(Project), [{**project, "latest_release_id": None} for project in projects])
    session.execute(insert(Release), releases)
    session.execute(text("UPDATE project SET latest_release_id = (SELECT max(id) FROM release WHERE project_id = "
                         "project.id) WHERE latest_release_id IS NULL"))  # fmt: skip
    for table, rows in ((File, files), (Facet, facets), (Dependency, needs)):
        session.execute(insert(table), rows)
    session.execute(text("INSERT INTO project_search (rowid, owner, name, summary, tags, readme) "
                         "VALUES (:id, '', :name, :summary, :tags, :readme)"), texts)  # fmt: skip
