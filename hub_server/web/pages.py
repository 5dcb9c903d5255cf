"""`page`: a template over what a service said. Everything that is printed is escaped; the one exception is a README,
which was cleaned when it was published, and the viewer's fragments, which escape for themselves."""

from __future__ import annotations

import hashlib
import http
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hub_server.answers import described, shown
from hub_server.errors import BadRequest, HubError
from hub_server.http import hub_of
from hub_server.principal import NOBODY, Principal
from verifiers.viewer import asset_path

STATIC = Path(__file__).with_name("static")
ASSETS = {
    "hub.css": STATIC / "hub.css",
    "hub.js": STATIC / "hub.js",
    "htmx.js": STATIC / "htmx.min.js",
    "viewer.css": asset_path("viewer.css"),
    "viewer.js": asset_path("viewer.js"),
}
MAX_FORM_FIELDS = 50
SAID_S = 60  # a redirect is followed at once
MAX_SAID_CHARS = 300


def page(
    request: Request,
    template: str,
    who: Principal,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **context: Any,
) -> Response:
    """A whole page. What differs with whoever asks is never kept by a cache on the way (`door.py`)."""
    settings = hub_of(request).settings
    said = unquote(request.cookies.get(_said_cookie(request), ""))[:MAX_SAID_CHARS]
    text = (
        _templates()
        .get_template(template)
        .render(
            who=who,
            site=settings.title,
            base=request.scope.get("root_path", ""),
            here=_here(request),
            said=said,
            **context,
        )
    )
    answer = HTMLResponse(text, status, headers)
    if said:
        answer.delete_cookie(_said_cookie(request), path="/", secure=_is_secure(request), httponly=True, samesite="lax")
    return answer


def fragment(request: Request, template: str, block: str, who: Principal, **context: Any) -> Response:
    """One block of a template, for htmx."""
    found = _templates().get_template(template)
    base = request.scope.get("root_path", "")
    given = found.new_context({"who": who, "base": base, "here": _here(request), **context})
    return HTMLResponse("".join(found.blocks[block](given)), headers={"Vary": "HX-Request"})


def is_htmx(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def back_to(request: Request, path: str, said: str = "") -> Response:
    """After a form was handled: the page that shows the result. `said` is shown there once.

    It travels in a cookie: what stood in the address, anybody could make a link of that has the hub say it.
    """
    answer = RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)
    if said:
        text = quote(said[:MAX_SAID_CHARS], safe="")
        answer.set_cookie(
            _said_cookie(request),
            text,
            max_age=SAID_S,
            path="/",
            secure=_is_secure(request),
            httponly=True,
            samesite="lax",
        )
    return answer


def _said_cookie(request: Request) -> str:
    return "__Host-vf-said" if _is_secure(request) else "vf-said"


def _is_secure(request: Request) -> bool:
    return request.scope["scheme"] == "https"


async def fields(request: Request) -> dict[str, str]:
    """A form's fields; of several with one name the last. Raises BadRequest for text that cannot be stored."""
    form = await request.form(max_files=0, max_fields=MAX_FORM_FIELDS)
    found = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    if not all(map(_is_text, found.values())):
        raise BadRequest("a form's text holds no NUL and no half of a letter")
    return found


def _is_text(value: str) -> bool:
    """A form may say that it is in an encoding which gives halves of letters."""
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def whole_number(text: str) -> int | None:
    """Of digits that people type and databases hold; `None` for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


class _Number(Convertor[int]):
    """In routes, `{example_id:number}`: a whole number that databases hold, negative ones too."""

    regex = "-?[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", _Number())


async def error_page(request: Request, error: Exception) -> Response:
    """What a person sees when something is refused. Somebody who has to sign in first is sent there."""
    status, code, message, headers = described(error)
    headers.pop("WWW-Authenticate", None)  # a browser would open a box that knows nothing of our sign-in page
    if status == 401 and request.method == "GET" and not request.url.path.endswith("/login"):
        return back_to(request, f"/login?next={quote(_here(request), safe='')}")
    return page(
        request,
        "error.html",
        NOBODY,
        status=status,
        headers=headers,
        title=http.HTTPStatus(status).phrase,
        code=code,
        message=shown(message),
        request_id=getattr(request.state, "request_id", ""),
    )


def message_of(error: HubError) -> str:
    return shown(error.message)


def _here(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


@cache
def _templates() -> Environment:
    env = Environment(
        loader=PackageLoader("hub_server.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"date": _date, "moment": _moment, "number": _number, "size": _size}
    env.filters |= {"readme": _readme, "url": _quoted}
    env.globals |= {"asset": asset_url, "address": _query}
    return env


@cache
def asset_url(name: str) -> str:
    """An asset's address says what is in it, so that browsers keep it for good."""
    return f"/static/{hashlib.sha256(ASSETS[name].read_bytes()).hexdigest()[:16]}/{name}"


_IMAGE = re.compile(r"<img\b[^>]*>")
_ALT = re.compile(r'\balt="([^"]*)"')


def _readme(cleaned: str) -> Markup:
    """A README as it was cleaned when it was published, its images as their descriptions: whoever reads a page of this
    hub is not to be seen by the hosts of others."""

    def told(image: re.Match[str]) -> str:
        alt = _ALT.search(image[0])
        return f'<span class="image">{alt[1] if alt and alt[1] else "image"}</span>'

    return Markup(_IMAGE.sub(told, cleaned))


def _quoted(text: str) -> str:
    return quote(text, safe="/@")


def _query(**fields: Any) -> str:
    """`?name=value&…` of the fields that have a value."""
    given = {name: value for name, value in fields.items() if value not in (None, "", False, ())}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _date(moment: datetime | None) -> Markup:
    return _time(moment, "%Y-%m-%d")


def _moment(moment: datetime | None) -> Markup:
    return _time(moment, "%Y-%m-%d %H:%M UTC")


def _time(moment: datetime | None, form: str) -> Markup:
    if moment is None:
        return Markup("")
    moment = moment.astimezone(UTC)
    exact = moment.isoformat(timespec="seconds")
    return Markup('<time datetime="{}">{}</time>').format(exact, moment.strftime(form))


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _size(n_bytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"
