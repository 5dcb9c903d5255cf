"""A real Chromium walks the hub: publish → browse → look at a rollout → compare. In light, dark and on a phone, with an
accessibility check of each page; and without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsers import axe_script, chromium, need_browser, violations
from hub_evaluations import lines, record
from hub_packages import Package
from hub_servers import served

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCREENS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}},
}
LIMIT_MS = 120_000  # of a step, on a busy machine
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    need_browser()
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A served hub with an environment in two versions and two evaluations of it."""
    from hub_world import World

    from hub_server.hub import Hub
    from hub_server.services.accounts import create_user
    from hub_server.settings import Settings

    data = tmp_path_factory.mktemp("browser") / "hub"
    hub = Hub.open(Settings(data=data))
    world = World(hub)
    create_user(hub, "ada", PASSWORD, is_admin=True)
    readme = "# sums\n\nAdds two numbers.\n"
    for version in ("1.0.0", "1.1.0"):
        package = Package("sums", version, summary="Add two numbers", readme=readme)
        world.release("ada/sums", version, visibility="public", package=package, tags=("math", "eval"))
    token = world.token("ada")
    hub.close()
    with served(data, log_level="WARNING") as server:
        url = server.address
        evaluations = [evaluated(url, token, model, pass_from) for model, pass_from in (("small", 2), ("large", 1))]
        yield {"url": url, "token": token, "small": evaluations[0], "large": evaluations[1]}


def evaluated(url: str, token: str, model: str, pass_from: int) -> str:
    import httpx2

    with httpx2.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60) as api:
        new = {"idempotency_key": f"run-of-{model}", "model": model, "dirty": True, "visibility": "public"}
        id = api.post("/projects/ada/sums/evaluations", json=new).raise_for_status().json()["id"]
        made = [
            record(e, i, float(i >= pass_from), model=model, version=None, text=f"<b>{e + 2}</b>" * 3)
            for e in range(6)
            for i in range(4)
        ]
        api.post(f"/evaluations/{id}/samples", content=lines(made)).raise_for_status()
        api.post(f"/evaluations/{id}/complete", json={}).raise_for_status()
        return id


def pages(site: dict[str, str]) -> dict[str, str]:
    a, b = site["small"], site["large"]
    return {
        "home": "/", "environment": "/ada/sums", "versions": "/ada/sums/versions", "difference": "/ada/sums/diff",
        "source": "/ada/sums/source/latest/sums.py", "results": "/ada/sums/results", "evaluation": f"/evaluations/{a}",
        "rollout": f"/evaluations/{a}/rollouts/1/2", "comparison": f"/evaluations/{a}/compare/{b}",
        "pair": f"/evaluations/{a}/compare/{b}/1", "owner": "/ada", "reference": "/docs", "sign-in": "/login",
    }  # fmt: skip


@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_fits_the_screen_breaks_no_policy_and_can_be_read_by_everybody(browser, site, screen, tmp_path):
    context = browser.new_context(**SCREENS[screen])
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    faults: list[str] = []
    script = axe_script()
    for name, path in pages(site).items():
        page.goto(site["url"] + path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= SCREENS[screen]["viewport"]["width"], f"{name} is {width} wide"
        faults += [f"{name}: {fault}" for fault in violations(page, script)]
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert (faults, told) == ([], [])
    context.close()


def test_a_newcomer_finds_an_environment_a_rollout_and_a_difference(browser, site):
    page = browser.new_page()
    page.set_default_timeout(LIMIT_MS)
    page.goto(site["url"])
    page.fill("#q", "numbers")
    page.wait_for_url("**q=numbers**")  # htmx asked for the list while we typed
    page.click("text=sums")
    page.click("nav.tabs >> text=Results")
    page.click("button:has-text('Compare A with B')")
    assert page.locator("text=paired difference").count() == 1
    page.goto(f"{site['url']}/evaluations/{site['small']}")
    page.fill("#rv-filter", "reward<1")
    page.press("#rv-filter", "Enter")
    page.wait_for_url("**q=reward**")
    page.click(".rv-table tbody tr >> nth=0 >> a >> nth=0")
    assert "<b>2</b>" in page.inner_text("main")
    page.close()


def test_signing_in_starring_and_a_token_work_by_hand(browser, site):
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    page.goto(f"{site['url']}/tokens")
    page.fill("#name", "ada")
    page.fill("#password", PASSWORD)
    page.click("main button")
    page.fill("#name", "laptop")
    page.click("text=Make it")
    assert page.inner_text("section.good pre").startswith("vfh_")
    page.goto(f"{site['url']}/ada/sums")
    page.click("#star button")
    page.wait_for_selector("#star button[aria-pressed=true]")
    assert page.url.endswith("/ada/sums")  # only the button was shown anew
    context.close()


def test_everything_can_be_done_without_javascript(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    page.goto(f"{site['url']}/login")
    page.fill("#name", "ada")
    page.fill("#password", PASSWORD)
    page.click("main button")
    page.fill("#q", "numbers")
    page.click("aside button")
    page.click("text=sums")
    before = page.get_attribute("#star button", "aria-pressed")
    page.click("#star button")
    assert page.get_attribute("#star button", "aria-pressed") != before
    page.goto(f"{site['url']}/evaluations/{site['small']}?q=reward%3C1")
    page.click(".rv-table tbody tr >> nth=0 >> a >> nth=0")
    page.wait_for_url("**/rollouts/**")
    context.close()
