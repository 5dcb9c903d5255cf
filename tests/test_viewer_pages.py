"""The pages of `vf view`, their server, and the command."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import pytest
from loopback import ROOT, outside_variables
from rollouts import nasty, record, tool_run, write_run
from test_viewer import ALLOWED, Page

from verifiers.errors import SetupError
from verifiers.records import encode_record
from verifiers.viewer import pages as pages_module
from verifiers.viewer.pages import Site
from verifiers.viewer.runs import Runs
from verifiers.viewer.server import ViewServer


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A page that a busy machine cut short is no failure of what makes it."""
    monkeypatch.setattr(pages_module, "FIRST_READ_S", 60.0)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Two runs of tools over the same rows, and a nasty one."""
    folder = tmp_path_factory.mktemp("outputs")
    tool_run(folder / "evals/tools--small/aaaa", "small", wrong=(1, 2, 3))
    tool_run(folder / "evals/tools--large/bbbb", "large", wrong=(3, 4))
    write_run(folder / "evals/nasty/cccc", [nasty(half="", rollout_index=n) for n in range(2)])
    return folder


@pytest.fixture
def site(outputs):
    return Site(Runs(outputs))


def get(site, address, status=200):
    url = urlsplit(address)
    query = dict(part.split("=", 1) for part in url.query.split("&") if part)
    reply = site.respond(url.path, {name: re.sub("%3C", "<", value) for name, value in query.items()})
    assert reply.status == status, reply.body
    return reply


def page(site, address, status=200):
    reply = get(site, address, status)
    assert reply.media_type == "text/html; charset=utf-8"
    return Page(reply.body.decode())


def test_the_list_of_runs_leads_to_each_and_compares_two(site):
    found = page(site, "/")
    assert {a["href"] for a in found.all("a")} == {"/run/aaaa", "/run/bbbb", "/run/cccc"}
    (form,) = found.all("form")
    assert (form["method"], form["action"]) == ("get", "/compare")
    assert {i["value"] for i in found.all("input", name="a", type="radio")} == {"aaaa", "bbbb", "cccc"}


def test_a_run_shows_its_numbers_its_filter_and_its_examples(site):
    found = page(site, "/run/aaaa")
    assert "21 of 24 scored" in found.text and "24 of 24 rollouts" in found.text and "small" in found.text
    assert len(found.classes("rv-try")) == 24
    assert found.all("input", name="q", type="search")


def test_a_filter_leaves_what_it_describes_and_is_carried_into_the_rollouts(site):
    found = page(site, "/run/aaaa?q=reward<0.5&sort=worst")
    assert "6 of 24 rollouts" in found.text
    assert len([s for s in found.classes("rv-try") if "rv-faint" not in s["class"]]) == 6
    first = next(s["href"] for s in found.classes("rv-try") if "rv-faint" not in s["class"])
    assert first == "/run/aaaa/1/0?q=reward%3C0.5&sort=worst"
    rollout = page(site, first)
    assert "1 of 6" in rollout.text and rollout.all("a", rel="next", href="/run/aaaa/1/1?q=reward%3C0.5&sort=worst")
    assert rollout.all("a", rel="up", href="/run/aaaa?q=reward%3C0.5&sort=worst")


def test_the_text_of_a_conversation_is_searched(site):
    assert "24 of 24 rollouts" in page(site, '/run/aaaa?q="use the tool"').text
    assert "1 of 24 rollouts" in page(site, '/run/aaaa?q="boom"').text


def test_a_filter_that_cannot_be_read_shows_why_and_everything(site):
    found = page(site, "/run/aaaa?q=corect<1")
    assert "did you mean 'correct'" in found.text and "24 of 24 rollouts" in found.text
    assert found.all("input", **{"aria-invalid": "true"})


def test_walking_by_the_links_alone_reaches_every_rollout_once(site):
    seen, address = [], "/run/aaaa/0/0?sort=disagreement"
    found = page(site, "/run/aaaa?sort=disagreement")
    address = found.classes("rv-try")[0]["href"]
    while address:
        seen.append(urlsplit(address).path)
        following = page(site, address).all("a", rel="next")
        address = following[0]["href"] if following else None
    assert len(seen) == len(set(seen)) == 24


def test_two_runs_are_compared_example_by_example(site):
    found = page(site, "/compare?a=aaaa&b=bbbb")
    assert "paired difference" in found.text and "only the candidate passes 2" in found.text
    assert "only the baseline passes 1" in found.text
    changed = page(site, "/compare?a=aaaa&b=bbbb&show=changed")
    pairs = {a["href"] for a in changed.all("a") if "/compare/example" in a["href"]}
    assert {re.search(r"example=(\d+)", pair)[1] for pair in pairs} == {"1", "2", "4"}
    pair = page(site, "/compare/example?a=aaaa&b=bbbb&example=1&tb=2")
    assert "Example 1 · try 0" in pair.text and "Example 1 · try 2" in pair.text
    assert pair.all("a", href="/compare/example?a=aaaa&b=bbbb&example=1&tb=2&ta=1")


def test_two_tries_of_one_run_are_shown_side_by_side(site):
    (link,) = [a["href"] for a in page(site, "/run/aaaa/1/1").all("a") if a["href"].startswith("/compare/example")]
    assert link == "/compare/example?a=aaaa&b=aaaa&example=1&ta=1&tb=0"
    found = page(site, link)
    assert "Example 1 · try 1" in found.text and "Example 1 · try 0" in found.text and "baseline" not in found.text


def test_whole_texts_are_plain_text_and_records_are_json(site):
    found = page(site, "/run/cccc/0/0")
    link = found.classes("rv-whole")[0]["href"]
    reply = get(site, link)
    assert reply.media_type == "text/plain; charset=utf-8" and reply.body.startswith(b"START long")
    assert json.loads(get(site, "/run/cccc/0/0/record.json").body)["example_id"] == 0


@pytest.mark.parametrize(
    "address",
    [
        "/nothing", "/run/zzzz", "/run/aaaa/99/0", "/run/aaaa/0/99", "/run/aaaa/0/0/text/none", "/run/../aaaa",
        "/compare", "/compare?a=aaaa&b=zzzz", "/compare/example?a=aaaa&b=bbbb&example=x", "/assets/viewer.py",
        "/compare/example?a=aaaa&b=bbbb&example=0&ta=77", "/assets/..", "/run/<script>", "/run/aaaa/1e3/0",
        "/compare/example?a=aaaa&b=cccc&example=1",
    ],
)  # fmt: skip
def test_what_is_not_there_is_a_page_that_says_so(site, address):
    assert page(site, address, 404).text.count("Not found") >= 1


def test_odd_queries_are_taken_for_what_they_mean(site):
    for query in ("page=0", "page=999", "page=x", "sort=x", "q=", "show=x", "page=-1"):
        page(site, f"/run/aaaa?{query}")
        page(site, f"/compare?a=aaaa&b=bbbb&{query}")


def test_every_page_is_inert(site):
    for address in ("/", "/run/cccc", "/run/cccc/0/0", "/run/cccc/0/1?q=errors>0", "/compare?a=cccc&b=cccc",
                    "/compare/example?a=cccc&b=cccc&example=0"):  # fmt: skip
        found = page(site, address)
        assert {name for name, _ in found.elements} <= ALLOWED | {
            "html",
            "head",
            "body",
            "main",
            "h1",
            "meta",
            "link",
            "script",
        }
        assert [s.get("src") for s in found.all("script")] == ["/assets/viewer.js"]
        assert not any(key.startswith("on") or key == "style" for _, found_ in found.elements for key in found_)


def test_a_run_that_goes_on_shows_more_when_loaded_again(tmp_path):
    path = write_run(tmp_path, [record()])
    site = Site(Runs(tmp_path))
    address = f"/run/{tmp_path.name}"
    assert "1 of 1 rollout" in page(site, address).text
    line = encode_record(record(example_id=1))
    with path.open("ab") as writer:
        writer.write(line[:20])
        writer.flush()
        assert "1 of 1 rollout" in page(site, address).text
        writer.write(line[20:] + b"\n")
    assert "2 of 2 rollouts" in page(site, address).text


def test_a_large_file_shows_how_far_it_is_read_and_loads_again(tmp_path, monkeypatch):
    monkeypatch.setattr(pages_module, "FIRST_READ_S", 0.0)
    write_run(tmp_path, [record(example_id=n) for n in range(100)])
    site = Site(Runs(tmp_path))
    first = page(site, f"/run/{tmp_path.name}")
    assert re.search(r"Reading results\.jsonl: \d+% so far", first.text) and first.all("meta", content="1")
    assert page(site, f"/run/{tmp_path.name}/99/0").text  # a link to one rollout waits for the whole file
    assert "Reading" not in page(site, f"/run/{tmp_path.name}").text


def test_an_empty_run_and_one_without_results_are_told(tmp_path):
    write_run(tmp_path / "empty", [])
    site = Site(Runs(tmp_path))
    assert "No rollouts yet." in page(site, "/run/empty").text
    (tmp_path / "empty/results.jsonl").unlink()
    assert "no results to read" in page(site, "/run/empty", 404).text


# The server


@pytest.fixture
def server(site):
    server = ViewServer(site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(server, path, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    connection.putrequest(method, path, skip_host=True)
    for value in [host] if isinstance(host, str) else [f"127.0.0.1:{server.port}"] if host is None else host:
        connection.putheader("Host", value)
    connection.endheaders()
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply, body


def test_pages_come_with_the_strictest_policy(server):
    reply, body = ask(server, "/run/aaaa")
    assert reply.status == 200 and b"<!doctype html>" in body
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:")
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert reply.headers["X-Content-Type-Options"] == "nosniff" and reply.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "[::1]:8710", "LOCALHOST:80"])
def test_this_machine_by_its_own_names_is_answered(server, host):
    assert ask(server, "/", host=host)[0].status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "0.0.0.0", []])
def test_any_other_host_is_refused(server, host):
    reply, body = ask(server, "/run/aaaa", host=host)
    assert reply.status == 421 and b"rv-" not in body


def test_only_reading_is_possible(server):
    assert ask(server, "/", method="HEAD")[1] == b""
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/", method=method)[0].status == 501


def test_odd_addresses_get_an_answer(server):
    many = "&".join(f"a{n}=1" for n in range(200))
    for path in ("//", "//[", "/%00", "/%ff", "/run/%2e%2e/%2e%2e/etc/passwd", f"/?{many}", "/assets/..%2f__init__.py",
                 "/run/aaaa?q=%ff%00"):  # fmt: skip
        assert ask(server, path)[0].status in (200, 400, 404), path


def test_a_port_that_is_taken_is_a_setup_error(server, site):
    with pytest.raises(SetupError, match=f"port {server.port} cannot be had"):
        ViewServer(site, server.port)


# The command


def vf_view(*arguments, cwd=None):
    command = [sys.executable, "-m", "verifiers.cli.main", "view", *map(str, arguments)]
    variables = outside_variables() | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=200, cwd=cwd)


def test_json_prints_the_rows_that_a_filter_leaves(outputs):
    done = vf_view(outputs / "evals/tools--small/aaaa", "--json", "--filter", "status=failed or error:reward")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["n_all"] == 24
    assert [(row["example_id"], row["status"]) for row in found["rows"]] == [(5, "failed"), (6, "fault")]


def test_json_of_two_runs_is_their_comparison(outputs):
    done = vf_view(outputs / "evals/tools--small/aaaa", outputs / "evals/tools--large/bbbb/results.jsonl", "--json")
    found = json.loads(done.stdout)
    assert found["counts"]["gained"] == 2 and found["counts"]["lost"] == 1 and len(found["examples"]) == 8
    assert found["verdict"].startswith(("No difference can be told", "The candidate is"))


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["nowhere"], 3, "nowhere does not exist"),
        ([], 3, "no runs in ./outputs: make one with vf-eval"),
        (["empty"], 3, "no results.jsonl in empty"),
        (["empty", "--filter", "reward<"], 2, "expected a number after 'reward<' at character 8"),
        (["a", "b", "c"], 2, "up to two runs"),
        (["empty", "empty"], 3, "empty is not one run"),
        (["runs", "--json"], 3, "give the folder of a run"),
        (["runs/x", "--json", "--filter", "zzz=1"], 2, "expected one of reward"),
    ],
)
def test_mistakes_get_one_line_that_says_what_to_do(tmp_path, arguments, code, said):
    (tmp_path / "empty").mkdir()
    for name in ("x", "y"):
        write_run(tmp_path / "runs" / name, [record(scores=[])])
    done = vf_view(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_without_a_run_the_newest_is_served_until_ctrl_c(tmp_path):
    for n, name in enumerate(("old", "new")):
        path = write_run(tmp_path / "outputs/evals" / name, [record()])
        os.utime(path, (time.time() - 100 + n, time.time() - 100 + n))
    command = [sys.executable, "-m", "verifiers.cli.main", "view", "--no-open", "--port", "0"]
    variables = outside_variables() | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=variables) as process:
        line = process.stderr.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/run/new$", line.strip())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        connection.request("GET", "/")
        reply = connection.getresponse()
        assert (reply.status, reply.headers["Location"]) == (303, "/run/new")
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        assert "Traceback" not in process.stderr.read()
