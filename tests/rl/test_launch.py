"""The command line of a server for training: every flag is one that vLLM has."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest
from vllm_server import PYTHON_VAR, vllm_python

from verifiers.errors import ConfigError
from verifiers.rl.launch import EXTENSION, EXTENSION_FOLDER, VLLMLaunch


def flags(launch: VLLMLaunch) -> dict[str, str]:
    command = launch.command
    return {flag: value for flag, value in zip(command, [*command[1:], ""]) if flag.startswith("--")}


def test_what_training_needs_is_always_there():
    found = flags(VLLMLaunch(model="m"))
    assert found["--logprobs-mode"] == "processed_logprobs"
    assert found["--generation-config"] == "vllm"
    assert "--enable-scale-out" in found
    assert json.loads(found["--weight-transfer-config"]) == {"backend": "verifiers"}
    assert found["--worker-extension-cls"] == EXTENSION
    assert VLLMLaunch(model="m").variables["VLLM_SERVER_DEV_MODE"] == "1"


def test_nobody_else_is_let_in_unless_told_so():
    assert flags(VLLMLaunch(model="m"))["--host"] == "127.0.0.1"


def test_the_url_is_where_the_server_listens():
    assert VLLMLaunch(model="m", port=81).url == "http://127.0.0.1:81/v1"
    assert VLLMLaunch(model="m", host="0.0.0.0", port=81).url == "http://127.0.0.1:81/v1"
    assert VLLMLaunch(model="m", host="::1", port=81).url == "http://[::1]:81/v1"


def test_the_extension_is_alone_on_the_path_that_vllm_gets(monkeypatch):
    """Else a module of ours could stand before one of Python's own."""
    assert [path.name for path in EXTENSION_FOLDER.glob("*.py")] == ["weights_vllm.py"]
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    assert VLLMLaunch(model="m").variables["PYTHONPATH"] == f"{EXTENSION_FOLDER}:/theirs"


def test_as_it_would_be_typed_it_is_what_is_run():
    launch = VLLMLaunch(model="a model", more_variables={"NOTE": "x y"}, extra=("--seed", "1"))
    words = shlex.split(str(launch))
    assert words[-len(launch.command) :] == launch.command
    assert "NOTE=x y" in words


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"model": ""}, "model is the folder or name"),
        ({"port": 0}, "port is a number from 1 to 65535; got 0"),
        ({"tensor_parallel": 0}, "tensor_parallel, data_parallel: 0, 1; 1 or more"),
        ({"cpu": True, "transfer": "nccl"}, "a server on a CPU wants 'verifiers'"),
    ],
)
def test_a_wrong_setting_is_named(wrong, told):
    with pytest.raises(ConfigError, match=told):
        VLLMLaunch(**{"model": "m"} | wrong)


def test_a_process_with_these_variables_finds_no_module_of_ours_but_the_extension():
    launch = VLLMLaunch(model="m")
    code = "import types, importlib.util as u; print(types.__file__, u.find_spec('weights_vllm').origin)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=launch.variables, capture_output=True, text=True, check=True
    )
    types, extension = done.stdout.split()
    assert "verifiers" not in types
    assert extension == str(EXTENSION_FOLDER / "weights_vllm.py")


@pytest.mark.vllm
def test_vllm_knows_every_flag():
    python = vllm_python()
    if python is None:
        pytest.skip(f"{PYTHON_VAR} does not name the Python of a virtual environment with vLLM (scripts/setup_vllm.sh)")
    launch = VLLMLaunch(
        model="m",
        max_model_len=8,
        max_num_seqs=8,
        tensor_parallel=2,
        data_parallel=2,
        tool_parser="hermes",
        reasoning_parser="qwen3",
        priorities=True,
        speculation={"method": "ngram", "num_speculative_tokens": 2},
    )
    code = (
        "import sys\n"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "print(make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:]).logprobs_mode)\n"
    )
    command = [python, "-c", code, *launch.command[3:]]
    done = subprocess.run(command, env=launch.variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == "processed_logprobs"
