"""The viewer in a real browser: nothing of a model runs, keys work, nobody is kept out, it fits a telephone."""

import re
import threading

import pytest
from browsers import axe_script, chromium, need_browser, violations
from rollouts import nasty, tool_run, write_run

from verifiers.viewer.pages import Site
from verifiers.viewer.runs import Runs
from verifiers.viewer.server import ViewServer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

PAGES = {
    "runs": "/runs",
    "list": "/run/aaaa",
    "filtered": "/run/aaaa?q=reward<0.5&sort=worst",
    "wrong filter": "/run/aaaa?q=reward<",
    "rollout": "/run/aaaa/1/0?sort=disagreement",
    "failed": "/run/aaaa/5/0",
    "fault": "/run/aaaa/6/0",
    "nasty list": "/run/cccc",
    "nasty": "/run/cccc/0/0",
    "comparison": "/compare?a=aaaa&b=bbbb",
    "pair": "/compare/example?a=aaaa&b=bbbb&example=1",
    "nasty pair": "/compare/example?a=cccc&b=cccc&example=0",
    "not found": "/run/none",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    need_browser()
    folder = tmp_path_factory.mktemp("outputs")
    tool_run(folder / "evals/tools--small/aaaa", "small", wrong=(1, 2, 3))
    tool_run(folder / "evals/tools--large/bbbb", "large", wrong=(3, 4))
    write_run(folder / "evals/nasty/cccc", [nasty(half="", rollout_index=n) for n in range(2)])
    server = ViewServer(Site(Runs(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.url
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(address):
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser, address):
    """Opens a page in a context of its own; afterwards no script failed and nothing elsewhere was asked for."""
    contexts, complaints = [], []

    def open_(path, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: complaints.append(request.url) if is_elsewhere(request.url) else None)
        page.on("dialog", lambda dialog: complaints.append("a dialog"))
        page.goto(address + path)
        return page

    def is_elsewhere(url):
        return not url.startswith((f"{address}/", "data:"))

    yield open_
    for context in contexts:
        context.close()
    assert [text for text in complaints if "404" not in text] == []


def open_folds(page):
    page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")


@pytest.mark.parametrize("scheme, width", [("light", 1440), ("dark", 390)])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(open_page, address, scheme, width):
    script = axe_script()
    page = open_page("/runs", color_scheme=scheme, viewport={"width": width, "height": 800})
    for name, path in PAGES.items():
        page.goto(address + path)
        open_folds(page)
        assert violations(page, script) == [], name
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, name


def test_nothing_that_a_model_wrote_runs(open_page, address):
    page = open_page("/run/cccc/0/0")
    for path in ("/run/cccc/0/0", "/run/cccc", "/compare/example?a=cccc&b=cccc&example=0"):
        page.goto(address + path)
        open_folds(page)
        page.mouse.move(200, 200)
        assert "owned" not in page.title()
        assert page.locator(".rv").first.is_visible()  # a style of the model's would have hidden it
        assert page.evaluate("document.querySelectorAll('script').length") == 1
        assert page.evaluate("document.querySelectorAll('style, iframe, [style], [onerror]').length") == 0


def test_the_policy_would_stop_a_script_or_a_style_that_came_through(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/runs")
    page.evaluate("""
        const script = document.createElement("script");
        script.textContent = "window.ran = 1";
        const link = document.createElement("a");
        link.setAttribute("onclick", "window.ran = 2");
        link.setAttribute("style", "color: rgb(1, 2, 3)");
        document.body.append(script, link);
        link.click();
        window.colour = getComputedStyle(link).color;
    """)
    assert page.evaluate("window.ran") is None and page.evaluate("window.colour") != "rgb(1, 2, 3)"
    page.close()


def test_j_and_k_walk_through_the_rollouts_that_the_filter_left(open_page):
    page = open_page("/run/aaaa?q=reward<0.5&sort=worst")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.className").startswith("rv-try")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/aaaa/*/*?q=*")
    assert "1 of 6" in page.locator(".rv-steps").inner_text()
    for key, position in (("j", "2 of 6"), ("ArrowRight", "3 of 6"), ("k", "2 of 6"), ("ArrowLeft", "1 of 6")):
        with page.expect_navigation():  # the script is there when the page has loaded
            page.keyboard.press(key)
        assert position in page.locator(".rv-steps").inner_text()
    page.keyboard.press("k")  # there is none before the first
    assert "1 of 6" in page.locator(".rv-steps").inner_text()


def test_e_opens_every_fold_here_and_in_the_next_rollout(open_page):
    page = open_page("/run/aaaa/0/0")
    closed = "[...document.querySelectorAll('.rv-rollout details')].filter((fold) => !fold.open).length"
    assert page.evaluate(closed) > 0
    page.keyboard.press("e")
    assert page.evaluate(closed) == 0
    page.keyboard.press("j")
    page.wait_for_url("**/run/aaaa/0/1*")
    assert page.evaluate(closed) == 0
    page.keyboard.press("e")
    assert page.evaluate(closed) > 0


def test_slash_goes_to_the_filter_and_what_is_typed_there_is_no_command(open_page):
    page = open_page("/run/aaaa")
    page.keyboard.press("/")
    page.keyboard.type("turns>1 and reward=1")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=turns*")
    assert "of 24 rollouts" in page.locator(".rv-form").inner_text()
    assert page.locator("#rv-filter").input_value() == "turns>1 and reward=1"


def test_question_mark_shows_the_keys(open_page):
    page = open_page("/run/aaaa/0/0")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert "next rollout" in dialog.inner_text()
    assert violations(page, axe_script()) == []
    page.keyboard.press("j")  # while it is open nothing moves
    page.keyboard.press("Escape")
    assert not dialog.is_visible() and page.url.endswith("/run/aaaa/0/0")


def test_without_scripts_everything_is_reached_by_links_and_forms(open_page):
    page = open_page("/", java_script_enabled=False)
    page.get_by_role("link", name="aaaa").click()
    page.get_by_label("Filter", exact=True).fill("status=failed,fault")
    page.get_by_role("button", name="Apply").click()
    assert "2 of 24 rollouts" in page.locator(".rv-form").inner_text()
    page.locator(".rv-try:not(.rv-faint)").first.click()
    page.get_by_role("link", name="Next rollout").click()
    assert "2 of 2" in page.locator(".rv-steps").inner_text()
    page.locator("summary", has_text="reasoning").first.click()
    assert page.get_by_text("I multiply.").is_visible()


def test_two_runs_are_chosen_and_compared(open_page):
    page = open_page("/")
    page.get_by_label("aaaa as baseline").check()
    page.get_by_label("bbbb as candidate").check()
    page.get_by_role("button", name=re.compile("Compare")).click()
    page.get_by_role("link", name=re.compile("changed sides 3")).click()
    page.locator(".rv-col-question a").first.click()
    assert page.locator(".rv-pair .rv-rollout").count() == 2


def test_the_page_around_the_component_can_set_its_colours(open_page):
    page = open_page("/run/aaaa")
    read = "getComputedStyle(document.querySelector('.rv-overview')).color"
    before = page.evaluate(read)
    page.evaluate("document.documentElement.style.setProperty('--rv-ink', 'rgb(1, 2, 3)')")
    assert before != page.evaluate(read) == "rgb(1, 2, 3)"
