"""An adapter whose library is not installed says so in one line, and importing the adapters loads none of them."""

import subprocess
import sys

import pytest

import verifiers as vf


@pytest.mark.parametrize(
    ("make", "module", "package"),
    [
        (lambda: vf.MCPEnv([{"name": "a", "command": "b"}], dataset=[{"question": "q"}]), "mcp", "mcp"),
        (lambda: vf.GymEnv("FrozenLake-v1"), "gymnasium", "gymnasium"),
        (lambda: vf.TextArenaEnv("Wordle-v0"), "textarena", "textarena"),
        (lambda: vf.ReasoningGymEnv("arc_1d"), "reasoning_gym", "reasoning-gym"),
    ],
    ids=["mcp", "gym", "textarena", "reasoning-gym"],
)
def test_a_missing_library_is_named_with_the_line_that_installs_it(make, module, package, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(vf.SetupError) as refused:
        make()
    assert f"the package '{package}', which is not installed. Try: uv pip install {package}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_class_of_its_own_needs_no_gymnasium(monkeypatch):
    class Once:
        def reset(self, seed):
            return "go"

        def step(self, action):
            return "gone", 1.0, True, {}

    monkeypatch.setitem(sys.modules, "gymnasium", None)
    (output,) = vf.GymEnv(Once, num_eval_episodes=1).evaluate_sync(vf.ScriptedClient("x"), "m")["outputs"]
    assert output["reward"] == 1.0


def test_touching_the_classes_loads_none_of_the_libraries():
    program = (
        "import sys, verifiers as vf; "
        "vf.MCPEnv, vf.GymEnv, vf.TextArenaEnv, vf.ReasoningGymEnv, vf.OpenEnvEnv, vf.load_harbor_tasks; "
        "print(*{'mcp', 'gymnasium', 'textarena', 'reasoning_gym', 'numpy', 'nltk', 'aiohttp'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
