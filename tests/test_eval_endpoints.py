"""Which model a run asks, and where."""

from pathlib import Path

import pytest

from verifiers.errors import ConfigError, MissingKeyError
from verifiers.eval.config import EvalConfig
from verifiers.eval.endpoints import PROVIDERS, choose_model, is_near

KEY = "sk-0123456789abcdef"


@pytest.fixture(autouse=True)
def empty_surroundings(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", *(provider.key_var for provider in PROVIDERS.values())):
        monkeypatch.delenv(name, raising=False)


def choose(**given):
    return choose_model(EvalConfig(env_id="a", **given))


def endpoints(text: str, folder: str = "configs") -> None:
    Path(folder).mkdir(exist_ok=True)
    Path(folder, "endpoints.toml").write_text(text)


def test_without_any_word_the_model_on_this_machine_is_used_and_said():
    choice = choose()
    assert choice.is_local
    assert "on this machine" in choice.notes[0]


@pytest.mark.parametrize("given", [{"model": "local"}, {"provider": "local"}])
def test_the_local_model_is_used_when_named(given, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    choice = choose(**given)
    assert choice.is_local and not choice.notes


def test_a_key_alone_means_openai(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    choice = choose()
    assert (choice.model, choice.base_url, choice.secrets) == ("gpt-4.1-mini", "https://api.openai.com/v1", [KEY])


def test_a_model_without_a_key_names_the_variable_and_the_server():
    with pytest.raises(MissingKeyError, match=r"https://api.openai.com/v1: OPENAI_API_KEY is not set") as error:
        choose(model="gpt-x")
    assert "\n" not in str(error.value)


def test_a_near_server_needs_no_key():
    choice = choose(model="m", api_base_url="http://127.0.0.1:8000/v1/")
    assert choice.base_url == "http://127.0.0.1:8000/v1"
    assert choice.secrets == []


def test_a_far_server_without_a_key_is_refused():
    with pytest.raises(MissingKeyError, match="MY_KEY"):
        choose(model="m", api_base_url="https://api.example.com/v1", api_key_var="MY_KEY")


def test_the_usual_variable_gives_the_address(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
    choice = choose()
    assert (choice.base_url, choice.model) == ("http://localhost:9/v1", None)


def test_a_header_with_a_key_is_a_key_and_a_secret():
    choice = choose(model="m", api_base_url="https://api.example.com/v1", headers={"Authorization": f"Bearer {KEY}"})
    assert KEY in choice.secrets


def test_providers_have_their_own_address_and_key(monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    choice = choose(provider="deepseek", model="m")
    assert choice.base_url == "https://api.deepseek.com/v1"
    assert choice.secrets == [KEY]


def test_an_unknown_provider_names_the_nearest():
    with pytest.raises(ConfigError, match="openrouter"):
        choose(provider="open-router")


def test_a_name_of_the_endpoints_file_gives_model_address_key_and_prices(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    endpoints(
        '[[endpoint]]\nendpoint_id = "big"\nmodel = "big-1"\nurl = "https://api.example.com/v1"\nkey = "MY_KEY"\n'
        "input_price = 1.0\noutput_price = 4.0\n"
    )
    choice = choose(model="big")
    assert (choice.model, choice.base_url, choice.prices) == ("big-1", "https://api.example.com/v1", (1.0, 4.0))
    assert choice.secrets == [KEY]


def test_a_repeated_name_makes_replicas():
    endpoints(
        '[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://127.0.0.1:1/v1"\n'
        '[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\napi_base_url = "http://127.0.0.1:2/v1"\n'
    )
    assert [replica.base_url for replica in choose(model="a").replicas] == [
        "http://127.0.0.1:1/v1",
        "http://127.0.0.1:2/v1",
    ]


def test_an_address_on_the_command_line_beats_the_endpoints_file():
    endpoints('[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://127.0.0.1:1/v1"\n')
    choice = choose(model="a", api_base_url="http://127.0.0.1:3/v1")
    assert (choice.model, choice.base_url) == ("a", "http://127.0.0.1:3/v1")


@pytest.mark.parametrize(
    "text, words",
    [
        ('[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurll = "http://127.0.0.1:1/v1"\n', "'urll'.*'url'"),
        ('[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\n', "'url' is missing"),
        (f'[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://h/v1"\nkey = "{KEY}"\n', "name"),
        ('[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://h/v1"\ninput_price = 1\n', "come together"),
        ("[[endpoint]\n", "cannot be read"),
    ],
)
def test_a_faulty_endpoints_file_is_named(text, words):
    endpoints(text)
    with pytest.raises(ConfigError, match=f"endpoints.toml.*{words}") as error:
        choose(model="a")
    assert KEY not in str(error.value)


def test_an_endpoint_id_that_is_not_there_names_the_nearest():
    endpoints('[[endpoint]]\nendpoint_id = "qwen-big"\nmodel = "m"\nurl = "http://127.0.0.1:1/v1"\n')
    with pytest.raises(ConfigError, match="qwen-big"):
        choose(endpoint_id="qwen-bog")


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://10.0.0.3:8000", "http://gpu-node:8000", "http://[::1]:1"]
)
def test_private_addresses_are_near(url):
    assert is_near(url)


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "http://8.8.8.8/v1"])
def test_public_addresses_are_far(url):
    assert not is_near(url)
