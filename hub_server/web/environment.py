"""An environment's pages: what it is, its versions, its source, what changed, its people and settings."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hub_server.errors import HubError
from hub_server.http import base_url, hub_of, principal
from hub_server.principal import Principal
from hub_server.services import (
    collaborators,
    details,
    evaluations,
    leaderboard,
    lineage,
    projects,
    release_changes,
    release_diff,
    sources,
    validations,
)
from hub_server.services.details import Detail
from hub_server.services.install_lines import install_lines
from hub_server.web.pages import back_to, fields, fragment, is_htmx, page
from verifiers.archives.own_wheel import own_wheel

SHOWN_FILE_BYTES = 400_000
TOP_RESULTS = 5


async def overview(request: Request) -> Response:
    who, detail = await _seen(request)
    owner, name = _place(request)
    hub = hub_of(request)
    version = request.query_params.get("version")
    shown = detail.latest
    if version:
        shown = await run_in_threadpool(details.release, hub, who, owner, name, version)
    lines = None
    if shown is not None:
        lines = install_lines(
            base_url(request),
            detail.card.owner,
            detail.card.normalized,
            version or None,
            private=detail.card.visibility == "private" or hub.settings.is_private,
            requires=[need.requirement for need in shown.needs],
            own_version=own_wheel().version,
        )
    board = await run_in_threadpool(leaderboard.leaderboard, hub, who, owner, name)
    family = await run_in_threadpool(lineage.lineage, hub, who, owner, name)
    users = await run_in_threadpool(lineage.used_by, hub, who, owner, name)
    checks = await run_in_threadpool(validations.of_project, hub, who, owner, name)
    return page(
        request,
        "environment.html",
        who,
        tab="overview",
        detail=detail,
        shown=shown,
        version=version,
        lines=lines,
        board=board,
        n_top=TOP_RESULTS,
        family=family,
        users=users,
        check=next((one for one in checks if shown is not None and one.version == shown.info.version), None),
    )


async def versions(request: Request) -> Response:
    who, detail = await _seen(request)
    return page(request, "versions.html", who, tab="versions", detail=detail, may_change=_may_publish(detail))


async def difference(request: Request) -> Response:
    who, detail = await _seen(request)
    owner, name = _place(request)
    asked = request.query_params
    published = [release.version for release in detail.releases]
    new = asked.get("new") or (published[0] if published else "")
    older = published[published.index(new) + 1 :] if new in published else []
    old = asked.get("old") or (older[0] if older else new)
    found = await run_in_threadpool(release_diff.release_diff, hub_of(request), who, owner, name, old, new)
    return page(request, "difference.html", who, tab="versions", detail=detail, found=found, published=published)


async def files(request: Request) -> Response:
    who, detail = await _seen(request)
    owner, name = _place(request)
    hub = hub_of(request)
    version, path = request.path_params.get("version", "latest"), request.path_params.get("path", "")
    found = await run_in_threadpool(sources.source, hub, who, owner, name, version)
    member = None
    if path:
        member = await run_in_threadpool(
            sources.source_file, hub, who, owner, name, version, path, max_bytes=SHOWN_FILE_BYTES
        )
    return page(
        request, "files.html", who, tab="files", detail=detail, found=found, member=member, version=version, path=path
    )


async def results(request: Request) -> Response:
    who, detail = await _seen(request)
    owner, name = _place(request)
    hub, asked = hub_of(request), request.query_params
    board = await run_in_threadpool(
        leaderboard.leaderboard, hub, who, owner, name, version=asked.get("version") or None, setup=asked.get("setup")
    )
    found = await run_in_threadpool(
        evaluations.of_project, hub, who, owner, name,
        model=asked.get("model") or None, version=asked.get("version") or None, after=asked.get("after"), limit=50,
    )  # fmt: skip
    return page(request, "results.html", who, tab="results", detail=detail, board=board, found=found, asked=asked)


async def star(request: Request) -> Response:
    """Sets or takes back the star, and shows the button anew."""
    who = await principal(request)
    owner, name = _place(request)
    wanted = (await fields(request)).get("to") == "on"
    state = await run_in_threadpool(projects.set_star, hub_of(request), who, owner, name, wanted)
    if is_htmx(request):
        return fragment(
            request, "environment_head.html", "star", who,
            owner=owner, name=name, n_stars=state.n_stars, is_starred=state.is_starred,
        )  # fmt: skip
    return back_to(request, f"/{owner}/{name}")


async def settings(request: Request) -> Response:
    who, detail = await _seen(request)
    owner, name = _place(request)
    people = await run_in_threadpool(collaborators.collaborators, hub_of(request), who, owner, name)
    return page(request, "project_settings.html", who, tab="settings", detail=detail, people=people)


async def change(request: Request) -> Response:
    """Every form of the settings and versions pages: `do` names the deed."""
    who, _ = await _seen(request)
    owner, name = _place(request)
    form = await fields(request)
    path, said = await run_in_threadpool(_change, request, who, owner, name, form)
    return back_to(request, path, said)


def _change(request: Request, who: Principal, owner: str, name: str, form: dict[str, str]) -> tuple[str, str]:
    hub, do, here = hub_of(request), form.get("do"), f"/{owner}/{name}"
    version, user = form.get("version", ""), form.get("user", "")
    if do == "yank":
        release_changes.yank(hub, who, owner, name, version, form.get("reason", ""))
        return f"{here}/versions", f"{version} is yanked"
    if do == "unyank":
        release_changes.unyank(hub, who, owner, name, version)
        return f"{here}/versions", f"{version} is offered again"
    if do == "delete-version":
        _confirmed(form, version)
        release_changes.delete_release(hub, who, owner, name, version)
        return f"{here}/versions", f"{version} is deleted"
    if do == "visibility":
        projects.set_visibility(hub, who, owner, name, form.get("visibility", ""))
        return f"{here}/settings", f"it is {form.get('visibility')} now"
    if do == "status":
        projects.set_status(hub, who, owner, name, form.get("status", ""), form.get("reason", ""))
        return f"{here}/settings", f"it is {form.get('status')} now"
    if do == "answers":
        projects.set_publish_answers(hub, who, owner, name, form.get("publish") == "yes")
        return f"{here}/settings", "saved"
    if do == "collaborator":
        collaborators.set_collaborator(hub, who, owner, name, user, form.get("role", ""))
        return f"{here}/settings", f"{user} is {form.get('role')} now"
    if do == "remove-collaborator":
        collaborators.remove_collaborator(hub, who, owner, name, user)
        return f"{here}/settings", f"{user} has no role any more"
    if do == "transfer":
        _confirmed(form, name)
        state = projects.transfer(hub, who, owner, name, form.get("to", ""))
        return f"/{state.owner}/{state.name}", f"it belongs to {state.owner} now"
    if do == "delete":
        _confirmed(form, name)
        projects.delete_project(hub, who, owner, name)
        return f"/{owner}", f"{name} is deleted"
    if do == "validate":
        validations.request(hub, who, owner, name, version)
        return here, f"{version} will be checked"
    raise Refused(f"there is no '{do}' to do here")


class Refused(HubError):
    status, code = 422, "unprocessable"


def _confirmed(form: dict[str, str], wanted: str) -> None:
    if form.get("confirm") != wanted:
        raise Refused(f"nothing was done: write '{wanted}' into the field to confirm it")


async def _seen(request: Request) -> tuple[Principal, Detail]:
    """The project of the address. Another spelling of its name is led to the right one by the template's links."""
    who = await principal(request)
    owner, name = _place(request)
    return who, await run_in_threadpool(details.environment, hub_of(request), who, owner, name)


def _place(request: Request) -> tuple[str, str]:
    return request.path_params["owner"], request.path_params["env"]


def _may_publish(detail: Detail) -> bool:
    return detail.role in ("maintainer", "owner")


_AT = "/{owner}/{env}"
routes: list[BaseRoute] = [
    Route(f"{_AT}/versions", versions, methods=["GET"]),
    Route(f"{_AT}/diff", difference, methods=["GET"]),
    Route(f"{_AT}/source", files, methods=["GET"]),
    Route(f"{_AT}/source/{{version}}", files, methods=["GET"]),
    Route(f"{_AT}/source/{{version}}/{{path:path}}", files, methods=["GET"]),
    Route(f"{_AT}/results", results, methods=["GET"]),
    Route(f"{_AT}/settings", settings, methods=["GET"]),
    Route(f"{_AT}/star", star, methods=["POST"]),
    Route(f"{_AT}/change", change, methods=["POST"]),
    Route(_AT, overview, methods=["GET"]),
]
