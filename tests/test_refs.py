import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.errors import ConfigError
from verifiers.refs import EnvRef, near, normalised, taken_by


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("math-env", EnvRef("math-env")),
        (" gsm8k ", EnvRef("gsm8k")),
        ("ada/math_env", EnvRef("math_env", "ada")),
        ("ada/math-env@0.2.0", EnvRef("math-env", "ada", "0.2.0")),
        ("wordle@1.0rc1+local", EnvRef("wordle", None, "1.0rc1+local")),
        ("wordle@latest", EnvRef("wordle")),
    ],
)
def test_a_reference_has_a_name_and_maybe_owner_and_version(text, expected):
    assert EnvRef.parse(text) == expected


def test_dash_and_underscore_are_the_same_environment():
    one, other = EnvRef.parse("math-env"), EnvRef.parse("math_env")
    assert (one.module, one.distribution) == (other.module, other.distribution) == ("math_env", "math-env")


BAD = ["", " ", "a b", "../up", "a/", "/a", "a/b/c", "a@", "a@1 2", "-a", "a-", "a.b", "é", "a;rm", "a@../x", "@1"]


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_be_a_name_is_refused_and_quoted(text):
    with pytest.raises(ConfigError) as refused:
        EnvRef.parse(text)
    assert f"'{text}'" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("json", "standard library"),
        ("ada/json@1", "standard library"),
        ("verifiers", "this library itself"),
        ("math-verify", "a package that this library needs"),
        ("datasets", "a package that this library needs"),
        ("class", "a word of the Python language"),
    ],
)
def test_a_name_whose_module_is_taken_is_refused_with_the_reason(text, reason):
    with pytest.raises(ConfigError, match=reason):
        EnvRef.parse(text)


def test_every_core_dependency_is_a_taken_name():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        assert taken_by(requirement.split(">=")[0].replace("-", "_")), requirement


@given(st.from_regex(r"[a-z][a-z0-9_-]{0,20}[a-z0-9]x9", fullmatch=True), st.sampled_from([None, "ada", "a.b"]))
def test_text_of_a_reference_parses_to_the_same_reference(name, owner):
    ref = EnvRef(name, owner, "1.2")
    assert EnvRef.parse(str(ref)) == ref
    assert normalised(ref.module) == ref.distribution


def test_near_names_come_best_first_and_strangers_not_at_all():
    assert near("gsm8kk", ["wordle", "gsm8k"]) == ["gsm8k"]
    assert near("Math_Env", ["math-env", "math-envs"])[0] == "math-env"
    assert near("math", ["math-env", "wordle"]) == ["math-env"]
    assert near("zzz", ["math-env", "wordle"]) == []
