"""Pages of owners and of one's own account: signing in, tokens, organisations, the log of deeds."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hub_server.errors import HubError, NotSignedIn, Unprocessable
from hub_server.http import (
    address_of,
    anyone,
    clear_session,
    hub_of,
    local_path,
    principal,
    session_cookie,
    set_session,
)
from hub_server.principal import Principal
from hub_server.services import access_tokens, accounts, audit_log, catalog, devices, organisations
from hub_server.services.access_tokens import TokenWish
from hub_server.web.pages import back_to, fields, message_of, page, whole_number


async def login(request: Request) -> Response:
    who = await anyone(request)
    target = local_path(request.query_params.get("next"))
    if not who.is_anonymous:
        return back_to(request, target)
    return page(request, "login.html", who, next=target, problem="", name="")


async def sign_in(request: Request) -> Response:
    who = await anyone(request)
    form = await fields(request)
    target = local_path(form.get("next"))
    try:
        secret = await run_in_threadpool(
            accounts.sign_in, hub_of(request), form.get("name", ""), form.get("password", ""), address_of(request)
        )
        answer = back_to(request, target)
        set_session(request, answer, secret)
    except HubError as problem:
        name = form.get("name", "")
        headers = {} if problem.retry_after_s is None else {"Retry-After": str(problem.retry_after_s)}
        return page(
            request, "login.html", who, status=problem.status, headers=headers,
            next=target, problem=message_of(problem), name=name,
        )  # fmt: skip
    return answer


async def sign_out(request: Request) -> Response:
    cookie = session_cookie(request)
    if cookie:
        await run_in_threadpool(accounts.sign_out, hub_of(request), cookie)
    answer = back_to(request, "/")
    clear_session(request, answer)
    return answer


async def device(request: Request) -> Response:
    """Where `vf login` leads: shows what asks for a token, and from where."""
    who = await _user(request)
    code = request.query_params.get("code", "")
    waiting = None
    if code:
        waiting = await run_in_threadpool(devices.waiting, hub_of(request), who, code)
    return page(request, "device.html", who, waiting=waiting, code=code)


async def answer_device(request: Request) -> Response:
    who = await _user(request)
    form = await fields(request)
    code = form.get("code", "")
    if form.get("do") == "allow":
        await run_in_threadpool(devices.allow, hub_of(request), who, code)
        return back_to(request, "/login/device", "done: the terminal is signed in")
    await run_in_threadpool(devices.deny, hub_of(request), who, code)
    return back_to(request, "/login/device", "refused: nothing was given out")


async def tokens(request: Request) -> Response:
    who = await _user(request)
    found = await run_in_threadpool(access_tokens.list_tokens, hub_of(request), who)
    return page(request, "tokens.html", who, tokens=found, made=None)


async def change_tokens(request: Request) -> Response:
    """A new token is shown in the answer itself, once: no address, history or log ever holds it."""
    who = await _user(request)
    hub, form = hub_of(request), await fields(request)
    if form.get("do") == "revoke":
        number = whole_number(form.get("token", ""))
        await run_in_threadpool(access_tokens.revoke_token, hub, who, number or 0)
        return back_to(request, "/tokens", "the token is revoked")
    days = whole_number(form.get("days", "90"))
    if form.get("do") != "create" or days is None:
        raise _unknown(form.get("do", ""))
    wish = TokenWish(
        name=form.get("name", ""),
        scope=form.get("scope", "publish"),
        owner=form.get("owner") or None,
        project=form.get("project") or None,
        days=float(days) if days else None,
    )
    made = await run_in_threadpool(access_tokens.create_token, hub, who, wish)
    found = await run_in_threadpool(access_tokens.list_tokens, hub, who)
    return page(request, "tokens.html", who, tokens=found, made=made, headers={"Cache-Control": "no-store"})


async def account(request: Request) -> Response:
    who = await _user(request)
    hub = hub_of(request)
    profile = await run_in_threadpool(organisations.profile, hub, who, who.name)
    mine = await run_in_threadpool(organisations.organisations_of, hub, who)
    users = await run_in_threadpool(accounts.list_users, hub, who) if who.is_admin else []
    return page(request, "account.html", who, profile=profile, organisations=mine, users=users)


async def change_account(request: Request) -> Response:
    who = await _user(request)
    form = await fields(request)
    path, said = await run_in_threadpool(_change_account, request, who, form)
    return back_to(request, path, said)


def _change_account(request: Request, who: Principal, form: dict[str, str]) -> tuple[str, str]:
    hub, do = hub_of(request), form.get("do")
    if do == "profile":
        name = form.get("owner") or who.name
        organisations.edit_profile(
            hub, who, name, display_name=form.get("display_name", ""), about=form.get("about", "")
        )
        return "/account" if name == who.name else f"/organisations/{name}", "saved"
    if do == "password":
        accounts.change_password(hub, who, form.get("old", ""), form.get("new", ""))
        return "/account", "the password is changed"
    if do == "organisation":
        made = organisations.create_organisation(hub, who, form.get("name", ""), form.get("display_name", ""))
        return f"/organisations/{made.name}", f"{made.name} is yours"
    if do == "user":
        made_user = accounts.register(hub, who, form.get("name", ""), form.get("password") or None)
        return "/account", f"{made_user.name} can sign in"
    if do not in ("enable", "disable"):
        raise _unknown(do or "")
    accounts.set_active(hub, form.get("name", ""), do == "enable", who=who)
    return "/account", f"{form.get('name')} is {'enabled' if do == 'enable' else 'shut out'}"


async def organisation(request: Request) -> Response:
    who = await _user(request)
    hub, name = hub_of(request), request.path_params["organisation"]
    profile = await run_in_threadpool(organisations.profile, hub, who, name)
    people = await run_in_threadpool(organisations.members, hub, who, name)
    return page(request, "organisation.html", who, profile=profile, people=people)


async def change_organisation(request: Request) -> Response:
    who = await _user(request)
    hub, name, form = hub_of(request), request.path_params["organisation"], await fields(request)
    user = form.get("user", "")
    if form.get("do") == "remove":
        await run_in_threadpool(organisations.remove_member, hub, who, name, user)
        gone = user == who.name
        return back_to(request, f"/{name}" if gone else f"/organisations/{name}", f"{user} is no member any more")
    if form.get("do") != "set":
        raise _unknown(form.get("do", ""))
    await run_in_threadpool(organisations.set_member, hub, who, name, user, form.get("role", ""))
    return back_to(request, f"/organisations/{name}", f"{user} is {form.get('role')} now")


async def audit(request: Request) -> Response:
    who = await _user(request)
    asked = request.query_params
    owner = asked.get("owner") or (None if who.is_admin else who.name)
    events = await run_in_threadpool(
        audit_log.read, hub_of(request), who,
        owner=owner, project=asked.get("project") or None, action=asked.get("action") or None,
        after=whole_number(asked.get("after", "")), limit=100,
    )  # fmt: skip
    return page(request, "audit.html", who, events=events, owner=owner, asked=asked)


async def owner(request: Request) -> Response:
    """What stands before the slash: a user or an organisation, with the environments that one may see."""
    who = await principal(request)
    hub, name = hub_of(request), request.path_params["owner"]
    profile = await run_in_threadpool(organisations.profile, hub, who, name)
    listing = await run_in_threadpool(
        catalog.environments, hub, who, catalog.Query(owner=name, after=request.query_params.get("after"), limit=50)
    )
    return page(request, "owner.html", who, profile=profile, listing=listing)


def _unknown(do: str) -> Unprocessable:
    """A form that lost its button must not do whatever is left over."""
    return Unprocessable(f"there is no '{do[:40]}' to do here")


async def _user(request: Request) -> Principal:
    who = await principal(request)
    if who.is_anonymous:
        raise NotSignedIn("sign in first")
    return who


routes: list[BaseRoute] = [
    Route("/login", login, methods=["GET"]),
    Route("/login", sign_in, methods=["POST"]),
    Route("/logout", sign_out, methods=["POST"]),
    Route("/login/device", device, methods=["GET"]),
    Route("/login/device", answer_device, methods=["POST"]),
    Route("/tokens", tokens, methods=["GET"]),
    Route("/tokens", change_tokens, methods=["POST"]),
    Route("/account", account, methods=["GET"]),
    Route("/account", change_account, methods=["POST"]),
    Route("/organisations/{organisation}", organisation, methods=["GET"]),
    Route("/organisations/{organisation}", change_organisation, methods=["POST"]),
    Route("/audit", audit, methods=["GET"]),
    Route("/{owner}", owner, methods=["GET"]),
]
