"""`vf push-results`: saved runs onto a hub that answers on this machine. What leaves is looked at byte by byte."""

from __future__ import annotations

import gzip
import json

import msgspec
import pytest
from hub_evaluations import record, wheel_sha256
from hub_online import Home, online
from hub_packages import Package

from verifiers.eval.summary import summarise_run
from verifiers.hub.push import idempotency_key
from verifiers.records import EnvInfo, JudgeInfo, Score
from verifiers.results import ResultsStore, RunConfig
from verifiers.run_metadata import read_metadata

PUSHED = {
    "id", "environment", "version", "dirty", "url", "n_samples", "n_withheld", "mean_reward", "lower_bound",
}  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with online(tmp_path_factory.mktemp("hub") / "data") as hub:
        hub.world.user("ada")
        hub.world.user("bob")
        hub.world.release("ada/sums", visibility="public", package=Package("sums"))
        hub.world.release("ada/exam", visibility="public", package=Package("exam"))
        yield hub


@pytest.fixture
def home(hub, tmp_path, monkeypatch):
    home = Home(tmp_path, monkeypatch)
    home.use(hub, hub.world.token("ada", "publish"))
    hub.seen.clear()
    return home


def config_of(hub, ref, owner="ada", **env):
    name = ref.partition("/")[2]
    info = {"wheel_sha256": wheel_sha256(hub.world, ref), "version": "1.0.0", "dirty": False, **env}
    return RunConfig(
        env_id=ref,
        env=EnvInfo(name=name, owner=owner, **info),
        model="small",
        row_hashes=["a", "b"],
        env_args={"difficulty": 3},
        base_url="http://10.9.8.7:8000/v1",
        command=["vf-eval", "/home/ada/secret-folder"],
    )


def saved(home, config, records, name="run", *, resume=False):
    """A folder as `vf-eval` leaves it."""
    folder = home.folder / "outputs" / "evals" / f"{config.env.name}--small" / name
    records = [msgspec.structs.replace(one, env=config.env) for one in records]
    with (ResultsStore.resume if resume else ResultsStore.create)(folder, config) as store:
        for one in records:
            store.append(one)
        last = {one.key: one for one in [*store.finished, *records]}
        store.finish(summarise_run(list(last.values()), total=config.total, time_s=1.0))
    return folder


def sent(hub):
    """Everything that left for the hub, unpacked."""
    bodies = [
        gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
        for request in hub.seen
    ]
    return b"\n".join(bodies).decode()


def requests(hub, method="POST"):
    return [request.path for request in hub.seen if request.method == method]


def test_a_run_is_pushed_once_however_often_it_is_pushed(hub, home):
    folder = saved(home, config_of(hub, "ada/sums"), [record(0, 0, 1.0), record(1, 0, 0.5)])
    first = home.vf("push-results", str(folder), "--json").json
    assert first.keys() == PUSHED
    assert (first["environment"], first["version"], first["dirty"]) == ("ada/sums", "1.0.0", False)
    assert (first["n_samples"], first["n_withheld"], first["mean_reward"]) == (2, 0, 0.75)
    assert first["url"] == f"{hub.url}/evaluations/{first['id']}"
    n_before = len(requests(hub))
    assert home.vf("push-results", "--json").json == first  # the newest run of this folder
    assert len(requests(hub)) == n_before + 1  # and no sample was sent again
    shown = home.vf("hub", "evaluations", "ada/sums", "--json").json
    assert [one["id"] for one in shown if one["id"] == first["id"]] == [first["id"]]


def test_what_describes_the_machine_stays_on_it(hub, home):
    folder = saved(home, config_of(hub, "ada/sums"), [record(0, 0, 0.0)], "told")
    home.vf("push-results", str(folder))
    everything = sent(hub)
    assert '"difficulty":3' in everything
    for private in ("10.9.8.7", "secret-folder", "base_url", '"parts"', '"host"', '"git"'):
        assert private not in everything, private


def test_a_run_of_failures_only_is_pushed_as_what_it_is(hub, home):
    folder = saved(home, config_of(hub, "ada/sums"), [record(0, 0, None)], "broken")
    done = home.vf("push-results", str(folder), "--json").json
    assert (done["mean_reward"], done["n_samples"]) == (None, 1)


@pytest.mark.parametrize("declared", [False, True], ids=["publish", "keep"])
def test_answers_that_are_kept_at_home_do_not_leave(hub, home, declared):
    judge = JudgeInfo(model="j", prompt_hash="0", response="JUDGE-SAW", reply="JUDGE-SAID")
    private = record(
        0, 0, 1.0,
        question="QUESTION-TEXT",
        text="MODEL-TEXT",
        answer="ANSWER-TEXT",
        info={"hint": "INFO-TEXT"},
        state_columns={"board": "STATE-TEXT"},
        scores=[Score(name="correct", weight=1.0, value=1.0, reason="REASON-TEXT", judge=judge)],
    )  # fmt: skip
    private = msgspec.structs.replace(
        private, messages=[*private.messages, {"role": "user", "content": "ENVIRONMENT-TEXT"}]
    )
    home.use(hub, hub.world.token("ada"))
    home.vf("hub", "answers", "ada/exam", "keep" if declared else "publish")
    hub.seen.clear()
    folder = saved(home, config_of(hub, "ada/exam"), [private], f"exam-{declared}")
    done = home.vf("push-results", str(folder))
    assert ("stayed here" in done.out) is declared
    everything = sent(hub)
    assert "MODEL-TEXT" in everything
    for text in ("QUESTION", "ANSWER", "INFO", "STATE", "REASON", "ENVIRONMENT"):
        assert (f"{text}-TEXT" not in everything) is declared, text
    assert ("JUDGE-S" not in everything) is declared


def test_an_edited_copy_or_a_source_folder_is_bound_to_no_release(hub, home):
    source = "source:" + "0" * 64
    for name, env in (("edited", {"dirty": True}), ("editable", {"wheel_sha256": source, "dirty": False})):
        folder = saved(home, config_of(hub, "ada/sums", **env), [record(0, 0, 1.0)], name)
        done = home.vf("push-results", str(folder))
        assert "bound to no release" in done.out
    clean = saved(home, config_of(hub, "ada/sums"), [record(0, 0, 1.0)], "clean")
    assert home.vf("push-results", str(clean), "--dirty", "--json").json["dirty"] is True


def test_another_wheel_under_the_same_version_is_refused(hub, home):
    folder = saved(home, config_of(hub, "ada/sums", wheel_sha256="1" * 64), [record(0, 0, 1.0)], "other")
    assert "another content" in home.vf("push-results", str(folder), code=3).err


def test_a_run_that_does_not_say_whose_it_is_must_be_told(hub, home):
    folder = saved(home, config_of(hub, "ada/sums", owner=None), [record(0, 0, 1.0)], "nobodys")
    assert "--env OWNER/sums" in home.vf("push-results", str(folder), code=3).err
    assert home.vf("push-results", str(folder), "--env", "ada/sums", "--json").json["version"] == "1.0.0"


def test_a_resumed_run_is_one_run_and_one_that_went_on_is_pushed_anew(hub, home):
    config = config_of(hub, "ada/sums")
    folder = saved(home, config, [record(0, 0, 1.0)], "resumed")
    half = home.vf("push-results", str(folder), "--json").json
    key = idempotency_key(read_metadata(folder))
    saved(home, config, [], "resumed", resume=True)  # a part that added nothing
    assert idempotency_key(read_metadata(folder)) == key
    saved(home, config, [record(1, 0, 0.0)], "resumed", resume=True)
    whole = home.vf("push-results", str(folder), "--json").json
    assert (half["n_samples"], whole["n_samples"]) == (1, 2) and half["id"] != whole["id"]


def test_a_rollout_that_was_run_again_counts_once(hub, home):
    folder = saved(home, config_of(hub, "ada/sums"), [record(0, 0, None), record(0, 0, 1.0)], "again")
    done = home.vf("push-results", str(folder), "--json").json
    assert (done["n_samples"], done["mean_reward"]) == (1, 1.0)


def test_a_push_that_broke_off_goes_on_where_it_was(hub, home):
    """As after a lost connection: the evaluation is open and has a part of the samples."""
    from verifiers.hub.client import HubClient
    from verifiers.records import encode_record

    config = config_of(hub, "ada/sums")
    records = [msgspec.structs.replace(one, env=config.env) for one in (record(0, 0, 1.0), record(1, 0, 1.0))]
    folder = saved(home, config, records, "lost")
    with HubClient() as client:
        begun = client.call("POST", "projects", "ada", "sums", "evaluations", json={
            "idempotency_key": idempotency_key(read_metadata(folder)), "model": "small", "version": "1.0.0",
            "wheel_sha256": config.env.wheel_sha256, "run": {"env_args": config.env_args},
        })  # fmt: skip
        client.call("POST", "evaluations", begun["id"], "samples", content=lambda: iter([encode_record(records[0])]))
    done = home.vf("push-results", str(folder), "--json").json
    assert (done["id"], done["n_samples"]) == (begun["id"], 2)


def test_visibility_and_title_go_along(hub, home):
    folder = saved(home, config_of(hub, "ada/sums"), [record(0, 0, 1.0)], "public")
    done = home.vf("push-results", str(folder), "--visibility", "public", "--name", "the first", "--json").json
    home.use(hub, hub.world.token("bob"))
    shown = home.vf("hub", "evaluation", "show", done["id"], "--json").json
    assert (shown["name"], shown["visibility"]) == ("the first", "public")


def test_what_is_no_run_is_refused(hub, home):
    (home.folder / "empty").mkdir()
    assert "metadata.json" in home.vf("push-results", "empty", code=3).err
    assert "outputs does not exist" in home.vf("push-results", code=3).err
    folder = saved(home, config_of(hub, "ada/sums"), [], "nothing")
    assert "nothing to push" in home.vf("push-results", str(folder), code=3).err
    assert json.loads((folder / "metadata.json").read_text())["status"] == "interrupted"
