"""Tasks in Harbor's format: what is read from a folder, a registry file and a git repository, and what is refused."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import verifiers as vf
from verifiers.adapters.git_checkout import checkout, is_git_url, without_user
from verifiers.adapters.harbor import read_reward
from verifiers.adapters.harbor_task import without_canary

SAMPLES = Path(__file__).parent / "data" / "harbor"


@pytest.fixture
def task(tmp_path):
    """A copy of a sample to spoil: `task("word-count")` is its folder."""

    def copied(name):
        return Path(shutil.copytree(SAMPLES / name, tmp_path / name))

    return copied


def only(source, **options):
    (found,) = vf.load_harbor_tasks(source, **options)
    return found


def with_config(folder, text):
    (folder / "task.toml").write_text(text)
    return folder


# One task


def test_a_task_has_its_instruction_without_the_canary():
    task = only(SAMPLES / "word-count")
    assert task.name == "samples/word-count"
    assert task.instruction == ("Count the words in `/app/notes.txt` and write the number, alone, to `/app/count.txt`.")


def test_limits_and_resources_are_those_of_its_file():
    task = only(SAMPLES / "word-count")
    (stage,) = task.stages
    assert (stage.agent_timeout_s, stage.tests.timeout_s) == (120.0, 60.0)
    box = task.container
    assert (box.cpus, box.memory_mb, box.storage_mb, box.build_timeout_s) == (1.0, 512, 1024, 300.0)
    assert box.network_mode == "no-network"
    assert box.env == {"LANG": "C.UTF-8"}
    assert task.solution_env == {"HURRY": "1"}


def test_paths_of_image_tests_and_solution_lead_to_files_in_the_folder():
    task = only(SAMPLES / "word-count")
    (stage,) = task.stages
    assert task.dockerfile == "environment/Dockerfile"
    assert stage.tests.folders == ("tests",)
    assert (stage.tests.script, stage.solution) == ("tests/test.sh", "solution/solve.sh")
    for path in (task.dockerfile, stage.tests.script, stage.solution):
        assert (Path(task.folder) / path).is_file()


def test_variables_of_the_tests_are_kept_as_they_are_written():
    assert only(SAMPLES / "word-count").stages[0].tests.env == {"EXPECTED": "${EXPECTED_WORDS:-6}"}


def test_older_spellings_are_understood():
    task = only(SAMPLES / "old-greeting")
    assert task.name == "old-greeting"
    box = task.container
    assert (box.docker_image, box.memory_mb, box.storage_mb) == ("debian:stable-slim", 2048, 512)
    assert box.network_mode == "no-network"
    assert task.dockerfile is None
    assert task.stages[0].agent_timeout_s is None


def test_the_steps_of_a_task_are_its_stages():
    task = only(SAMPLES / "two-steps")
    write, sort = task.stages
    assert task.reward_of_stages == "final"
    assert task.instruction == write.instruction
    assert (write.min_reward, write.agent_timeout_s, write.solution) == (1.0, 90.0, "steps/write/solution/solve.sh")
    assert (sort.agent_timeout_s, sort.agent_user, sort.tests.timeout_s, sort.solution) == (30.0, "worker", 20.0, None)
    assert sort.tests.script == "steps/sort/tests/test.sh"
    assert sort.tests.folders == ("steps/sort/tests",)


def test_tests_that_the_steps_share_come_before_their_own(task):
    folder = task("two-steps")
    (folder / "tests").mkdir()
    (folder / "tests" / "test.sh").write_text("#!/bin/sh\n")
    (folder / "steps" / "sort" / "tests" / "test.sh").unlink()
    write, sort = only(folder).stages
    assert write.tests.folders == ("tests", "steps/write/tests")
    assert (write.tests.script, sort.tests.script) == ("steps/write/tests/test.sh", "tests/test.sh")


def test_tests_with_a_container_of_their_own_need_no_script(task):
    folder = task("old-greeting")
    (folder / "tests" / "test.sh").unlink()
    text = (folder / "task.toml").read_text()
    with_config(folder, f'{text}\n[verifier.environment]\ndocker_image = "judge:1"\nmemory_mb = 256\n')
    tests = only(folder).stages[0].tests
    assert tests.script is None and tests.folders == ()
    assert (tests.container.docker_image, tests.container.memory_mb) == ("judge:1", 256)


def test_a_dockerfile_among_separate_tests_is_their_container(task):
    folder = task("old-greeting")
    (folder / "tests" / "Dockerfile").write_text("FROM scratch\n")
    text = (folder / "task.toml").read_text()
    with_config(folder, f'{text}\n[verifier]\nenvironment_mode = "separate"\n')
    assert only(folder).stages[0].tests.dockerfile == "tests/Dockerfile"


def test_what_is_not_read_is_kept():
    config = only(SAMPLES / "word-count").config
    assert config["metadata"] == {"difficulty": "easy", "written": "2026-11-29"}
    assert config["task"]["keywords"] == ["text", "shell"]


def test_the_checksum_changes_with_any_file_and_with_nothing_else(task, tmp_path):
    folder = task("word-count")
    before = only(folder).checksum
    assert before == only(SAMPLES / "word-count").checksum
    (folder / "__pycache__").mkdir()
    assert only(folder).checksum == before
    (folder / "tests" / "test.sh").chmod(0o644)
    plain = only(folder).checksum
    (folder / "environment" / "notes.txt").write_text("one\n")
    assert len({before, plain, only(folder).checksum}) == 3


# Rows


def test_a_row_gives_the_task_back_in_a_rollout():
    task = only(SAMPLES / "two-steps")
    seen = []

    def reward(info):
        seen.append(vf.HarborTask.of(info))
        return 1.0

    env = vf.SingleTurnEnv(eval_dataset=[task.row()], rubric=vf.Rubric([reward]))
    (output,) = env.evaluate_sync(vf.ScriptedClient("done"), "m")["outputs"]
    assert seen == [task]
    assert output["task"] == "samples/two-steps"
    assert output["prompt"][-1]["content"] == task.instruction


def test_tasks_of_different_shapes_fit_one_table():
    tasks = vf.load_harbor_tasks(SAMPLES)
    env = vf.SingleTurnEnv(dataset=[task.row() for task in tasks], rubric=vf.Rubric([len]))
    assert [vf.HarborTask.of(row["info"]) for row in env.get_dataset()] == tasks


def test_running_them_in_containers_names_the_importer():
    with pytest.raises(vf.NotHere, match=r"vf\.load_harbor_tasks"):
        vf.HarborEnv(run_command="agent", dataset_path=SAMPLES)  # type: ignore[attr-defined]


# Folders of tasks


def test_a_folder_of_tasks_is_read_in_the_order_of_their_names():
    assert [task.name for task in vf.load_harbor_tasks(str(SAMPLES))] == [
        "old-greeting", "samples/two-steps", "samples/word-count",
    ]  # fmt: skip


def test_named_tasks_are_read_alone_and_in_that_order(task):
    (task("two-steps") / "task.toml").write_text("broken")
    folder = task("word-count").parent
    task("old-greeting")
    names = ["word-count", "old-greeting"]
    assert [Path(t.folder).name for t in vf.load_harbor_tasks(folder, tasks=names)] == names


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(vf.ConfigError, match="no Harbor task 'word-cuont'; it has 3, such as: old-greeting, two-steps"):
        vf.load_harbor_tasks(SAMPLES, tasks=["word-cuont"])


def test_all_broken_tasks_are_named_at_once(task):
    (task("two-steps") / "task.toml").write_text("broken")
    (task("old-greeting") / "instruction.md").unlink()
    folder = task("word-count").parent
    with pytest.raises(vf.DatasetError, match="2 of 3 Harbor tasks") as refused:
        vf.load_harbor_tasks(folder)
    assert "two-steps/task.toml: TOMLDecodeError" in str(refused.value)
    assert "old-greeting/instruction.md is missing" in str(refused.value)


def test_two_tasks_of_one_name_are_refused(task):
    folder = task("word-count")
    shutil.copytree(folder, folder.parent / "again")
    with pytest.raises(vf.DatasetError, match="two Harbor tasks are called 'samples/word-count'"):
        vf.load_harbor_tasks(folder.parent)


def test_a_folder_without_tasks_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(
        vf.ConfigError, match=r"no Harbor task in .*: neither it nor one of its 1 folders has a task.toml"
    ):
        vf.load_harbor_tasks(tmp_path)
    (tmp_path / "dataset.toml").write_text("")
    with pytest.raises(vf.ConfigError, match="harbor datasets download NAME"):
        vf.load_harbor_tasks(tmp_path)
    with pytest.raises(vf.ConfigError, match="neither a folder, nor a registry file"):
        vf.load_harbor_tasks(tmp_path / "nowhere")


# Refused

BROKEN = {
    "a text for a number": ('[agent]\ntimeout_sec = "long"', r"Expected `float \| null`, got `str` - at `\$.agent.tim"),
    "no time at all": ("[verifier]\ntimeout_sec = 0", "timeout_sec must be a number above 0, not 0.0"),
    "endless time": ("[agent]\ntimeout_sec = inf", "timeout_sec must be a number above 0, not inf"),
    "no memory": ("[environment]\nmemory_mb = 0", "memory_mb must be a number above 0"),
    "two sizes": ('[environment]\nmemory = "2G"\nmemory_mb = 1024', "memory = '2G' and memory_mb = 1024 differ"),
    "no size": ('[environment]\nstorage = "much"', "storage is a size like '2G' or '512M', not 'much'"),
    "another system": ('[environment]\nos = "plan9"', "os is 'linux' or 'windows', not 'plan9'"),
    "an unknown network": ('[environment]\nnetwork_mode = "some"', "Invalid enum value 'some'"),
    "hosts for nothing": ('[environment]\nallowed_hosts = ["a.example"]', "allowed_hosts needs network_mode"),
    "a name without owner": ('[task]\nname = "lonely"', "a task's name is like org/name, not 'lonely'"),
    "a step outside": ('[[steps]]\nname = "../up"', r"a step's name is that of its folder in steps/, not '\.\./up'"),
    "two equal steps": ('[[steps]]\nname = "a"\n[[steps]]\nname = "A"', "two steps are called 'a'"),
    "tests in two places": (
        '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]', "leaves no use for"
    ),
    "windows tests": ('[environment]\nos = "windows"', r"tests/test\.bat is missing: it judges the attempt"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=list(BROKEN))
def test_a_wrong_task_file_is_refused_with_what_is_wrong(task, text, said):
    with pytest.raises(vf.DatasetError, match=said):
        vf.load_harbor_tasks(with_config(task("word-count"), text))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("instruction.md", r"instruction\.md is missing: it is what the agent is told"),
        ("environment/Dockerfile", r"no container: task\.toml has no \[environment\] docker_image, and"),
        ("tests/test.sh", r"tests/test\.sh is missing: it judges the attempt"),
    ],
)
def test_a_missing_file_is_named(task, missing, said):
    folder = task("word-count")
    (folder / missing).unlink()
    with pytest.raises(vf.DatasetError, match=said):
        vf.load_harbor_tasks(folder)


def test_an_instruction_that_is_only_a_canary_is_refused(task):
    folder = task("word-count")
    (folder / "instruction.md").write_text("# canary 1234\n\n")
    with pytest.raises(vf.DatasetError, match=r"instruction\.md is empty"):
        vf.load_harbor_tasks(folder)


def test_a_link_out_of_the_task_is_refused(task, tmp_path):
    folder = task("word-count")
    (tmp_path / "secret").write_text("x")
    (folder / "tests" / "key").symlink_to(tmp_path / "secret")
    with pytest.raises(vf.DatasetError, match="tests/key leads out of the task's folder"):
        vf.load_harbor_tasks(folder)


def test_a_link_inside_the_task_is_fine(task):
    folder = task("word-count")
    (folder / "tests" / "notes").symlink_to("../environment/notes.txt")
    assert only(folder).name == "samples/word-count"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("# Canary: 1\n<!-- a CANARY -->\n\n# Task\nDo.", "# Task\nDo."),
        ("Mind the canary.\n# canary", "Mind the canary.\n# canary"),
        ("", ""),
    ],
)
def test_only_canaries_at_the_start_are_taken_off(text, rest):
    assert without_canary(text) == rest


# Rewards


def test_the_json_of_the_tests_comes_before_their_text(tmp_path):
    (tmp_path / "reward.txt").write_text("0.25\n")
    assert read_reward(tmp_path) == {"reward": 0.25}
    (tmp_path / "reward.json").write_text('{"reward": 1, "style": 0.5}')
    assert read_reward(tmp_path) == {"reward": 1.0, "style": 0.5}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("other.txt", "1", "wrote neither /logs/verifier/reward.json nor /logs/verifier/reward.txt"),
        ("reward.txt", "", "reward.txt holds no reward: ''"),
        ("reward.txt", "passed", "reward.txt holds no reward: 'passed'"),
        ("reward.txt", "nan", "reward.txt: reward is no finite number: nan"),
        ("reward.json", "{", "reward.json holds no reward"),
        ("reward.json", "{}", "reward.json holds no reward"),
        ("reward.json", "[1]", r"reward.json: reward is no finite number: \[1\]"),
        ("reward.json", '{"reward": true}', "reward.json: reward is no finite number: True"),
        ("reward.json", '{"a": "1"}', "reward.json: a is no finite number: '1'"),
        ("reward.json", '{"a": 1e999}', "reward.json: a is no finite number: inf"),
    ],
)
def test_tests_that_left_no_number_are_undecided_and_not_0(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(vf.Undecided, match=said) as undecided:
        read_reward(tmp_path)
    assert undecided.value.side == "environment"


# git


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Its address and its first commit, which is no branch any more; the second has broken the tasks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "repository"
    shutil.copytree(SAMPLES, folder / "tasks")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "tasks")
    first = git(folder, "rev-parse", "HEAD")
    shutil.rmtree(folder / "tasks" / "word-count")
    (folder / "tasks" / "old-greeting" / "task.toml").write_text("broken")
    git(folder, "commit", "-qam", "broken")
    return folder.as_uri(), first


def test_tasks_of_a_repository_are_read_as_they_were_at_the_commit(repository):
    url, commit = repository
    tasks = vf.load_harbor_tasks(url, commit=commit, subfolder="tasks")
    assert [task.checksum for task in tasks] == [task.checksum for task in vf.load_harbor_tasks(SAMPLES)]
    assert (tasks[0].source.url, tasks[0].source.commit, tasks[0].source.path) == (url, commit, "tasks/old-greeting")


def test_a_checkout_is_made_once(repository, tmp_path):
    url, commit = repository
    found = checkout(url, commit, ["tasks/word-count"])
    assert sorted(path.name for path in found.iterdir()) == ["tasks"]
    assert [path.name for path in (found / "tasks").iterdir()] == ["word-count"]
    shutil.rmtree(tmp_path / "repository")
    assert checkout(url, commit, ["tasks/word-count"]) == found


def test_an_address_without_a_commit_is_refused_with_the_present_one(repository, tmp_path):
    url, _ = repository
    now = git(tmp_path / "repository", "rev-parse", "HEAD")
    for commit in (None, "main", now[:8]):
        with pytest.raises(vf.ConfigError, match=f"not pinned to a commit.*commit='{now}' is where it is now"):
            vf.load_harbor_tasks(url, commit=commit)


def test_a_commit_and_a_path_that_are_not_there_are_named(repository):
    url, commit = repository
    with pytest.raises(vf.SetupError, match="git fetch failed"):
        vf.load_harbor_tasks(url, commit="0" * 40)
    with pytest.raises(vf.SetupError, match=r"git checkout failed: .*elsewhere"):
        vf.load_harbor_tasks(url, commit=commit, subfolder="elsewhere")
    with pytest.raises(vf.ConfigError, match="no path inside a repository"):
        vf.load_harbor_tasks(url, commit=commit, subfolder="../outside")


@pytest.mark.parametrize("text", ["ext::sh -c true", "--upload-pack=x", "tasks", "C:/tasks", "https:/one", "a b://c"])
def test_what_git_would_run_or_misread_is_no_address(text):
    assert not is_git_url(text)


@pytest.mark.parametrize("text", ["https://host.example/a.git", "git@host.example:a/b.git", "ssh://git@host.example/a"])
def test_addresses_of_git_are_known(text):
    assert is_git_url(text)


def test_a_password_in_an_address_is_not_kept():
    assert without_user("https://me:secret@host.example:8443/a.git") == "https://host.example:8443/a.git"


# Registries


def registry(path, *tasks, **changes):
    entry = {"name": "samples", "version": "1.0", "description": "x", "tasks": list(tasks), **changes}
    path.write_text(json.dumps([entry]))
    return path


def test_a_registry_leads_to_tasks_of_this_machine_and_of_repositories(repository, tmp_path, task):
    url, commit = repository
    task("old-greeting")
    far = {"git_url": url, "git_commit_id": commit}
    file = registry(
        tmp_path / "registry.json",
        {"name": "greet", "path": "old-greeting"},
        {"name": "count", "path": "tasks/word-count", **far},
        {"name": "steps", "path": "tasks/two-steps", **far},
    )
    found = vf.load_harbor_tasks(file, dataset="samples@1.0")
    assert [t.name for t in found] == ["old-greeting", "samples/word-count", "samples/two-steps"]
    assert [t.source is None for t in found] == [True, False, False]
    assert only(file, tasks=["count"]).name == "samples/word-count"


def test_a_registry_entry_that_is_not_pinned_needs_a_commit(repository, tmp_path):
    url, commit = repository
    file = registry(
        tmp_path / "r.json", {"name": "count", "path": "tasks/word-count", "git_url": url, "git_commit_id": "HEAD"}
    )
    with pytest.raises(vf.ConfigError, match="not pinned to a commit"):
        vf.load_harbor_tasks(file)
    assert only(file, commit=commit).source.commit == commit


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"git_url": "ext::sh -c true"}, "'ext::sh -c true' is no git address"),
        ({"git_url": "https://host.example/a.git", "path": "../up"}, "no path inside a repository"),
        ({"git_url": "https://host.example/a.git", "path": "--force"}, "no path inside a repository"),
    ],
)
def test_a_registry_cannot_reach_beyond_its_repositories(tmp_path, changed, said):
    entry = {"name": "x", "path": "a", "git_commit_id": "0" * 40, **changed}
    with pytest.raises(vf.ConfigError, match=said):
        vf.load_harbor_tasks(registry(tmp_path / "r.json", entry))


def test_a_dataset_that_is_not_in_the_registry_is_refused(tmp_path):
    file = registry(tmp_path / "r.json")
    with pytest.raises(vf.ConfigError, match=r"has no dataset 'sample'; it has: samples@1\.0"):
        vf.load_harbor_tasks(file, dataset="sample")
    file.write_text(json.dumps([*json.loads(file.read_text()), *json.loads(file.read_text())]))
    with pytest.raises(vf.ConfigError, match="lists 2 datasets; choose one"):
        vf.load_harbor_tasks(file)
    file.write_text("{}")
    with pytest.raises(vf.ConfigError, match="is no registry of Harbor datasets"):
        vf.load_harbor_tasks(file)


@pytest.mark.parametrize("option", [{"dataset": "a"}, {"commit": "0" * 40}, {"subfolder": "a"}])
def test_options_of_another_kind_of_source_are_refused(option):
    with pytest.raises(vf.ConfigError, match=r"(is for a registry file|are for a git address)"):
        vf.load_harbor_tasks(SAMPLES, **option)
