"""What flags and a TOML file ask for."""

from pathlib import Path

import pytest

from verifiers.errors import ConfigError
from verifiers.eval.config import configs_of, parse_env_args, parse_headers, parse_object
from verifiers.eval.prepare import resume_command


def write(folder: Path, text: str) -> str:
    path = folder / "suite.toml"
    path.write_text(text)
    return str(path)


def test_env_args_are_json_pairs_or_both():
    assert parse_env_args(['{"a": 1, "b": null}', "c=[1, 2]", "d=plain text", "e=", "a=true"]) == {
        "a": True,
        "b": None,
        "c": [1, 2],
        "d": "plain text",
        "e": "",
    }


def test_several_pairs_fit_into_one_flag():
    assert parse_env_args(["difficulty=2 split=test"]) == {"difficulty": 2, "split": "test"}


def test_a_value_may_hold_an_equals_sign():
    assert parse_env_args(["url=http://host/?a=b"]) == {"url": "http://host/?a=b"}


def test_bad_json_is_shown_with_a_caret_under_the_fault():
    with pytest.raises(ConfigError) as error:
        parse_env_args(['{"a": 1, b: 2}'])
    lines = str(error.value).splitlines()
    assert lines[1].index("b: 2") == lines[2].index("^")
    assert "Quote it" in lines[0] and len(lines) == 3


def test_the_caret_stays_on_screen_in_a_long_text():
    with pytest.raises(ConfigError) as error:
        parse_object('{"a": "' + "x" * 500 + '", b}', "-S")
    lines = str(error.value).splitlines()
    assert all(len(line) < 80 for line in lines[1:])
    assert lines[1][lines[2].index("^")] == "b"


@pytest.mark.parametrize("text", ["[1]", "3", '"a"', "null", "word", "-x=1"])
def test_what_is_no_set_of_arguments_is_refused(text):
    with pytest.raises(ConfigError, match="-a"):
        parse_env_args([text])


def test_a_bad_header_is_told_without_its_value():
    with pytest.raises(ConfigError) as error:
        parse_headers(["Authorization Bearer sk-123456789"])
    assert "sk-123456789" not in str(error.value)


def test_flags_beat_the_table_which_beats_the_shared_keys(tmp_path):
    path = write(
        tmp_path, 'model = "m"\nnum_examples = 3\n[[eval]]\nenv_id = "a"\nmodel = "n"\n[[eval]]\nenv_id = "b"\n'
    )
    first, second = configs_of(path, {"num_examples": 9})
    assert (first.env_id, first.model, first.num_examples) == ("a", "n", 9)
    assert (second.env_id, second.model, second.num_examples) == ("b", "m", 9)


def test_an_unknown_key_names_the_nearest(tmp_path):
    path = write(tmp_path, '[[eval]]\nenv_id = "a"\nnum_example = 3\n')
    with pytest.raises(ConfigError, match=r"'num_example'.*'num_examples'"):
        configs_of(path, {})


def test_a_value_of_the_wrong_type_names_its_key(tmp_path):
    path = write(tmp_path, '[[eval]]\nenv_id = "a"\nnum_examples = "many"\n')
    with pytest.raises(ConfigError, match=r"num_examples: Expected `int"):
        configs_of(path, {})


@pytest.mark.parametrize("text", ["", "[[eval]]\nmodel = 'm'\n", "eval = 3\n", "a = \n", "[eval]\nenv_id = 'a'\n"])
def test_a_file_that_asks_for_nothing_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"suite\.toml"):
        configs_of(write(tmp_path, text), {})


def test_a_sweep_makes_every_combination(tmp_path):
    path = write(
        tmp_path,
        'env_id = "a"\n[[ablation]]\nenv_args = {fixed = 1}\n[ablation.sweep]\ntemperature = [0.0, 1.0]\n'
        "[ablation.sweep.env_args]\nlevel = [1, 2]\n",
    )
    made = [(config.temperature, config.env_args) for config in configs_of(path, {})]
    assert made == [(t, {"fixed": 1, "level": level}) for t in (0.0, 1.0) for level in (1, 2)]


def test_the_endpoints_file_is_looked_for_beside_the_toml_file(tmp_path):
    path = write(tmp_path, '[[eval]]\nenv_id = "a"\nendpoints_path = "own.toml"\n')
    assert configs_of(path, {})[0].endpoints_path == str(tmp_path / "own.toml")


@pytest.mark.parametrize(
    "given",
    [
        {"num_examples": 0},
        {"num_examples": -2},
        {"rollouts_per_example": -1},
        {"max_concurrent": 0},
        {"max_failed": 1.5},
        {"ungraded_alarm": -0.1},
        {"timeout_s": 0.0},
    ],
)
def test_numbers_without_sense_are_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given)).removesuffix("_s")):
        configs_of("a", given)


def test_own_sampling_flags_beat_sampling_args():
    config = configs_of("a", {"sampling_args": {"temperature": 1.0, "top_p": 0.5}, "temperature": 0.0})[0]
    assert config.sampling == {"temperature": 0.0, "top_p": 0.5}


def test_the_resume_command_is_the_original_one_quoted():
    argv = ["/bin/vf-eval", "math-env", "-a", '{"a": 1}', "-R", "--resume-path", "old", "-n", "3"]
    made = resume_command(argv, Path("outputs/evals/a b"))
    assert made == """vf-eval math-env -a '{"a": 1}' -n 3 --resume-path 'outputs/evals/a b'"""
    assert resume_command(["vf", "eval", "suite.toml"], None) == "vf eval suite.toml --resume"
