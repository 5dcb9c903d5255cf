"""The worker: packages nobody vouches for run in a sandbox alone, and only re-scoring makes an evaluation verified."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from hub_evaluations import Pusher, broken, lines, pusher, record
from hub_packages import Package
from hub_world import World
from sqlalchemy import select
from starlette.testclient import TestClient
from typer.testing import CliRunner

from hub_server.cli_worker import worker as worker_command
from hub_server.hub import Hub
from hub_server.models import Project, Release, Rescoring, Validation, now
from hub_server.services import job_queue, validations
from hub_server.services.rescoring import Claimed, Said, compare
from hub_server.services.sandboxed import Ended, NotPossible, Packages, lay_out, run_inside
from hub_server.settings import Settings
from hub_server.worker import Worker
from verifiers.errors import SetupError
from verifiers.sandbox.levels import find_level

SUMS = """
import verifiers as vf
from datasets import Dataset

def load_environment(n: int = 12):
    rows = [{{"question": f"What is {{i}} + 2?", "answer": str(i + 2)}} for i in range(n)]
    {look}
    def correct(completion, answer):
        said = completion[-1]["content"]
        return 1.0 if {paid} else 0.0
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[correct]))
"""
EXACT = 'said.strip() == f"<answer>{answer}</answer>"'


def sums(paid: str = EXACT, look: str = "pass", **about: Any) -> Package:
    return Package("sums", module_text=SUMS.format(paid=paid, look=look), **about)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"validation": True, "rescoring": True, "sandbox_timeout_s": 300.0})


@pytest.fixture
def sandbox() -> None:
    try:
        find_level(min_level=2).close()
    except SetupError as error:
        pytest.skip(str(error))


def validated(world: World, package: Package) -> validations.ValidationView:
    ada = world.user("ada")
    world.release(f"ada/{package.name}", package=package)
    done = Worker(world.hub).work_once()
    assert done is not None and done.what == "validation" and done.error is None
    (found,) = validations.of_project(world.hub, ada.principal, "ada", package.name)
    return found


# Validation


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
def test_a_sound_release_passes_and_sees_nothing_of_the_hub(
    world: World, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VF_HUB_SECRET_OF_A_TEST", "hush")
    look = (
        "import os\n"
        f"    assert not os.path.exists({str(hub.settings.data)!r}), 'sees the hub'\n"
        "    assert not [name for name in os.environ if name.startswith('VF_HUB')], 'sees its settings'\n"
        "    assert len(open('/proc/net/dev').readlines()) <= 3, 'has a network'"  # two of titles, one of loopback
    )
    found = validated(world, sums(look=look))
    assert (found.state, found.verdict, found.reason) == ("done", "passed", ""), found
    assert {check.name: check.status for check in found.checks}["reference"] == "ok"
    assert found.usage["wall_s"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
def test_a_release_that_pays_wrong_answers_fails_with_the_checks_named(world: World) -> None:
    found = validated(world, sums(paid="said"))
    assert found.verdict == "failed" and "wrong answer" in found.reason


def test_a_release_that_needs_what_is_not_here_is_not_validated(world: World) -> None:
    found = validated(world, sums(requires=("verifiers>=0.1.9", "no-such-package-anywhere>=2")))
    assert found.verdict == "not_validated" and "no-such-package-anywhere>=2" in found.reason
    assert "VF_HUB_VALIDATION_WHEELS" in found.reason


def ended(
    checks: list[dict[str, str]], *, ok: bool = False, outcome: str = "nonzero-exit", version: str = "1"
) -> Ended:
    report = {"env": "sums", "version": version, "ok": ok, "checks": checks}
    return Ended(outcome, 1, f"noise\n{json.dumps(report)}\n", "", {"wall_s": 1.0})


def test_a_release_whose_rows_come_from_the_network_is_not_validated_rather_than_failed() -> None:
    loads = {"name": "loads", "status": "failed", "reason": "no rows"}
    for said in ("asked for data.example, refused: declare network = true", "declared; asked for data.example"):
        judged = validations.judge(ended([loads, {"name": "network", "status": "ok", "reason": said}]), "1")
        assert judged.verdict == "not_validated" and "data.example" in judged.reason
    alone = validations.judge(ended([loads, {"name": "network", "status": "ok", "reason": "none was asked for"}]), "1")
    assert alone.verdict == "failed"


@pytest.mark.parametrize(
    "stdout", ["", "no json", '{"ok": true}', "[" * 100_000, '{"env": 1, "version": null, "ok": true, "checks": []}']
)
def test_what_a_package_prints_in_place_of_a_report_is_no_report(stdout: str) -> None:
    judged = validations.judge(Ended("ok", 0, stdout, "Traceback\nboom", {}), "1")
    assert judged.verdict == "not_validated" and "boom" in judged.reason


def test_a_report_is_cut_to_size_and_must_be_of_that_version() -> None:
    many = [{"name": "n" * 500, "status": "ok", "reason": "r" * 9_000}] * 500
    judged = validations.judge(ended(many, ok=True, outcome="ok"), "1")
    assert judged.verdict == "passed" and len(json.dumps(judged.report)) < 200_000
    assert validations.judge(ended([], ok=True, outcome="ok", version="2"), "1").verdict == "failed"
    assert validations.judge(ended([], outcome="timeout"), "1").verdict == "not_validated"


def packages_of(world: World, release_id: int) -> Packages:
    with world.hub.database.read() as session:
        return Packages.of(session.get_one(Release, release_id))


def test_what_a_package_needs_is_laid_out_from_the_owners_environments_and_the_operators_wheels(
    world: World, tmp_path: Path
) -> None:
    world.user("ada")
    world.release("ada/common-parts", package=Package("common-parts", requires=("from-operator",)))
    release = world.release("ada/sums", package=sums(requires=("common-parts>=1", "msgspec", "verifiers<0.2")))
    folder = tmp_path / "job"
    folder.mkdir()
    with pytest.raises(NotPossible, match="from-operator"):
        lay_out(world.hub, packages_of(world, release), folder)
    wheels, again = tmp_path / "wheels", tmp_path / "again"
    wheels.mkdir()
    again.mkdir()
    theirs = Package("from-operator", requires=())
    (wheels / theirs.wheel_name).write_bytes(theirs.wheel())
    settings = world.hub.settings.model_copy(update={"validation_wheels": wheels})
    site = lay_out(Hub(settings, world.hub.database, world.hub.storage), packages_of(world, release), again)
    there = {path.name for path in site.iterdir()}
    assert {"sums.py", "common_parts.py", "from_operator.py", "verifiers"} <= there
    assert "msgspec" not in there  # installed beside the hub


def test_a_package_by_its_address_is_not_fetched(world: World, tmp_path: Path) -> None:
    world.user("ada")
    wanted = packages_of(world, world.release("ada/sums", package=sums()))
    folder = tmp_path / "job"
    folder.mkdir()
    with pytest.raises(NotPossible, match="address"):
        lay_out(world.hub, replace(wanted, requires=["x @ https://evil.example/x.whl"]), folder)


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
def test_nothing_that_a_package_brings_is_run_outside_of_the_sandbox(world: World, tmp_path: Path) -> None:
    """Neither what an interpreter runs at its start, nor modules that the worker's own programs import."""
    world.user("ada")
    release = world.release("ada/sums", package=sums())
    folder, mark = tmp_path / "job", tmp_path / "was-here"
    folder.mkdir()
    site = lay_out(world.hub, packages_of(world, release), folder)
    leave = f"import pathlib; pathlib.Path({str(mark)!r}).touch()"
    (site / "evil.pth").write_text(leave + "\n")
    for name in ("sitecustomize", "typer", "json", "tarfile"):
        (site / f"{name}.py").write_text(f"try:\n    {leave}\nexcept OSError:\n    pass\n")
    found = run_inside(world.hub.settings, folder, ["-c", "import typer; print('inside', typer.__file__)"])
    assert found.outcome == "ok" and "site-packages/typer.py" in found.stdout
    assert not mark.exists()


# The queue


def queue(world: World) -> int:
    world.user("ada")
    release = world.release("ada/sums")
    with world.hub.database.write() as session:
        job = Validation(release_id=release)
        session.add(job)
        session.flush()
        return job.id


def test_a_job_is_one_workers_at_a_time(world: World) -> None:
    job = queue(world)
    assert job_queue.take(world.hub, Validation, "one") == job
    assert job_queue.take(world.hub, Validation, "two") is None
    assert job_queue.renew(world.hub, Validation, job, "one") and not job_queue.renew(world.hub, Validation, job, "two")


def expire(world: World, job: int) -> None:
    with world.hub.database.write() as session:
        session.get_one(Validation, job).lease_until = now() - timedelta(seconds=1)


def test_a_job_of_a_worker_that_went_silent_is_taken_over_and_its_late_result_dropped(world: World) -> None:
    job = queue(world)
    job_queue.take(world.hub, Validation, "one")
    expire(world, job)
    assert job_queue.take(world.hub, Validation, "two") == job
    with world.hub.database.write() as session:
        assert job_queue.held(session, Validation, job, "one") is None
        assert job_queue.held(session, Validation, job, "two") is not None


def test_a_job_that_no_worker_comes_back_from_is_given_up(world: World) -> None:
    job = queue(world)
    for n in range(3):
        assert job_queue.take(world.hub, Validation, f"w{n}") == job
        expire(world, job)
    assert job_queue.take(world.hub, Validation, "w4") is None
    with world.hub.database.read() as session:
        found = session.get_one(Validation, job)
        assert found.state == "failed" and "3 attempts" in found.reason


def test_each_release_is_queued_once(world: World) -> None:
    world.user("ada")
    world.release("ada/sums")
    assert validations.enqueue_missing(world.hub) == 1
    assert validations.enqueue_missing(world.hub) == 0


def test_a_maintainer_may_ask_for_a_validation_again(world: World, client: TestClient) -> None:
    ada, eve = world.user("ada"), world.user("eve")
    world.release("ada/sums", visibility="public")
    path = "/api/v1/projects/ada/sums/versions/1.0.0/validations"
    assert client.post(path, headers=eve.headers).status_code == 403
    assert client.post(path, headers=ada.headers).status_code == 202
    assert client.post(path, headers=ada.headers).json()["code"] == "queued"
    (found,) = client.get("/api/v1/projects/ada/sums/validations").json()["validations"]
    assert (found["state"], found["verdict"], found["version"]) == ("queued", None, "1.0.0")


class TestOff:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"validation": False, "rescoring": False})

    def test_nothing_is_run_by_default(self, world: World, client: TestClient) -> None:
        assert not Settings().validation and not Settings().rescoring
        ada = world.user("ada")
        push = pusher(world, client, ada)
        id = push.push([[1.0]])
        asked = client.post("/api/v1/projects/ada/sums/versions/1.0.0/validations", headers=ada.headers)
        assert asked.status_code == 409 and asked.json()["code"] == "switched_off"
        assert (
            client.post(f"/api/v1/evaluations/{id}/verification", headers=ada.headers).json()["code"] == "switched_off"
        )
        assert Worker(world.hub).work_once() is None


def test_the_command_says_what_to_switch_on(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(worker_command)
    found = CliRunner().invoke(app, ["--data", str(tmp_path / "empty"), "--once"])
    assert found.exit_code == 3 and "VF_HUB_VALIDATION=1" in found.output


def test_the_command_does_what_waits_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VF_HUB_VALIDATION", "1")
    hub = Hub.open(Settings(data=tmp_path / "hub"))
    world = World(hub)
    world.user("ada")
    world.release("ada/sums", package=sums(requires=("no-such-package-anywhere",)))
    hub.close()
    app = typer.Typer()
    app.command()(worker_command)
    found = CliRunner().invoke(app, ["--data", str(tmp_path / "hub"), "--once", "--json"])
    assert found.exit_code == 0 and json.loads(found.output) == {"what": "validation", "id": 1, "error": None}


# Re-scoring


def answered(push: Pusher, rewards: list[float | None], *, right: list[bool], **changes: Any) -> str:
    """An evaluation whose rollouts answered rightly or not, and were pushed with these rewards."""
    id = push.begin(visibility="public", **changes)["id"]
    made = [
        record(n, 0, reward, wheel=push.wheel, text=f"<answer>{n + 2 if is_right else n}</answer>")
        for n, (reward, is_right) in enumerate(zip(rewards, right, strict=True))
    ]
    push.send(id, lines([*made, broken(11, wheel=push.wheel)]))
    push.complete(id)
    return id


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
def test_an_evaluation_is_verified_once_the_rubric_gives_the_same_rewards(world: World, client: TestClient) -> None:
    ada = world.user("ada")
    world.release("ada/sums", package=sums(), visibility="public")
    push = pusher(world, client, ada)
    with world.hub.database.write() as session:  # this test is of the other queue
        session.add(Validation(release_id=session.scalars(select(Release.id)).one(), state="done"))
    honest = answered(push, [1.0, 0.0, 1.0], right=[True, False, True])
    forged = answered(push, [1.0, 1.0, 1.0], right=[True, False, True])
    assert push.get(f"/evaluations/{honest}")["state"] == "complete"
    for id in (honest, forged):
        assert client.post(f"/api/v1/evaluations/{id}/verification", headers=ada.headers).status_code == 202
        done = Worker(world.hub).work_once()
        assert done is not None and done.error is None
    found = push.get(f"/evaluations/{honest}")
    assert found["state"] == "verified", found["verification"]
    figures = found["verification"]
    assert (figures["n_equal"], figures["n_differ"], figures["n_failed"], figures["mean_found"]) == (3, 0, 1, 2 / 3)
    found = push.get(f"/evaluations/{forged}")
    assert found["state"] == "complete" and found["verification"]["verdict"] == "differs"
    assert found["verification"]["differing"] == [{"example_id": 1, "rollout_index": 0, "pushed": 1.0, "found": 0.0}]
    assert [row["is_verified"] for row in push.get("/projects/ada/sums/leaderboard")["rows"]] == [True]


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
def test_an_answer_written_into_the_record_is_not_believed(world: World, client: TestClient) -> None:
    ada = world.user("ada")
    world.release("ada/sums", package=sums(), visibility="public")
    push = pusher(world, client, ada)
    with world.hub.database.write() as session:
        session.add(Validation(release_id=session.scalars(select(Release.id)).one(), state="done"))
    id = push.begin()["id"]
    cheat = record(3, 0, 1.0, wheel=push.wheel, text="<answer>99</answer>", answer="99")
    other_question = record(4, 0, 1.0, wheel=push.wheel, text="<answer>6</answer>", question="What is 4 + 2, really?")
    push.send(id, lines([cheat, other_question]))
    push.complete(id)
    client.post(f"/api/v1/evaluations/{id}/verification", headers=ada.headers)
    Worker(world.hub).work_once()
    found = push.get(f"/evaluations/{id}")["verification"]
    assert found["verdict"] == "differs" and found["n_differ"] == 1
    assert found["problems"] == [{"problem": "the package has no such row", "count": 1}]


def test_conversations_of_which_half_was_kept_at_home_are_not_verified(world: World, client: TestClient) -> None:
    ada = world.user("ada")
    world.release("ada/sums", package=sums(), visibility="public")
    push = pusher(world, client, ada)
    with world.hub.database.write() as session:
        session.add(Validation(release_id=session.scalars(select(Release.id)).one(), state="done"))
        session.scalars(select(Project)).one().publish_answers = False
    id = push.begin()["id"]
    talk = [{"role": "assistant", "content": "3?"}, {"role": "user", "content": "More."}]
    push.send(id, lines([record(0, 0, 1.0, wheel=push.wheel, messages=talk)]))
    push.complete(id)
    client.post(f"/api/v1/evaluations/{id}/verification", headers=ada.headers)
    Worker(world.hub).work_once()
    found = push.get(f"/evaluations/{id}")["verification"]
    assert found["verdict"] == "not_verified" and "publish_answers" in found["reason"]


def test_verified_needs_every_reward() -> None:
    def judged(claims: list[float | None], found: list[float | None]) -> Any:
        claimed = [Claimed(n, 0, c, "scored" if c is not None else "fault") for n, c in enumerate(claims)]
        return compare(claimed, {(n, 0): Said(n, 0, reward, "no judge") for n, reward in enumerate(found)})

    assert judged([1.0, 0.5], [1.0, 0.5 + 1e-9]).verdict == "verified"
    assert judged([1.0, 0.5], [1.0, 0.6]).verdict == "differs"
    assert judged([1.0, 0.5], [1.0, None]).verdict == "not_verified"
    assert judged([1.0, None], [1.0, 0.0]).report["n_newly_scored"] == 1
    assert judged([None], [None]).verdict == "not_verified"
    assert judged([1.0, 0.5], [1.0, 0.6]).report["largest_difference"] == pytest.approx(0.1)


def test_only_completed_evaluations_of_a_release_are_rescored_and_by_those_they_concern(
    world: World, client: TestClient
) -> None:
    ada, bob = world.user("ada"), world.user("bob")
    push = pusher(world, client, ada, visibility="public")

    def ask(id: str, headers: dict[str, str]) -> str:
        answer = client.post(f"/api/v1/evaluations/{id}/verification", headers=headers)
        return answer.json().get("code", answer.json().get("state"))

    opened = push.begin()["id"]
    assert ask(opened, ada.headers) == "open"
    dirty = push.begin(dirty=True)["id"]
    push.send(dirty, lines([record(0)]))
    push.complete(dirty)
    assert ask(dirty, ada.headers) == "not_bound"
    public = push.push([[1.0]], visibility="public")
    assert ask(public, bob.headers) == "forbidden" and ask(public, {}) == "not_signed_in"
    assert ask(public, ada.headers) == "queued"
    with world.hub.database.read() as session:
        assert session.scalars(select(Rescoring.state)).all() == ["queued"]
    (found,) = client.get(f"/api/v1/evaluations/{public}/verification").json()["rescorings"]
    assert found["state"] == "queued" and found["verdict"] is None
