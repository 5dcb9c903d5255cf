"""Imports point downwards only, and a heavy library is imported where it is wrapped and nowhere else."""

import ast
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "verifiers"

# From the lowest to the highest. A module imports from its own layer and from those above it in this list, no others;
# inside a layer there are no cycles. A folder stands for all that is in it.
LAYERS = [
    "errors images types clock calls decorators unpacking",
    "compat.late compat.shapes compat.classic_types",
    "records refs archives data_source dataset statistics parsers tools",
    "redaction line_file whole_file",
    "journal run_metadata",
    "clients sandbox",
    "attempt recording",
    "compat.scores compat.signatures compat.old_environment_names compat.old_rubric_names compat.formatting",
    "rubrics",
    "run results",
    "compat.results compat.training",
    "envs",
    "hub.credentials hub.client hub.fetch",
    "installed loading env_source uv_program other_python install build",
    "executor",
    "eval viewer hub rl",
    "compat.episodic_sum compat.error_chain compat.example_datasets compat.functions compat.logs compat.not_here",
    "compat.example_tools compat.resolved_clients compat.retries compat.sandbox_service",
    "adapters compat.old_paths compat.paths",
    "cli",
]
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names.split()}

# Which files wrap which heavy library. Another file that needs one is a reason to talk, not to add a line.
HEAVY = {
    "aiohttp": (
        "adapters/openenv_session clients/pool clients/endpoint eval/preflight sandbox/engine sandbox/gateway "
        "sandbox/kubernetes_cluster sandbox/remote_link"
    ),
    "datasets": "compat/example_datasets data_source dataset eval/hub_dataset",
    "gymnasium": "adapters/gym",
    "httpx2": "hub/client",
    "huggingface_hub": "eval/hub_dataset",
    "jinja2": "rl/chat_tokenizer",
    "math_verify": "rubrics/math_verify_grader",
    "mcp": "adapters/mcp_server",
    "mpmath": "rubrics/math_grader",
    "numpy": "adapters/gym adapters/trl_sample",
    "openai": "compat/functions rubrics/judge_client",
    "packaging": (
        "archives/checked archives/environment archives/form archives/metadata archives/names archives/sdist "
        "archives/wheel hub/fetch hub/version_bump install installed sandbox/packages"
    ),
    "py3langid": "rubrics/language",
    "pyarrow": "data_source",
    "pydantic": "tools",
    "pytest": "rubrics/swe_runner",
    "ray": "executor/ray_cluster",
    "reasoning_gym": "adapters/reasoning_gym",
    "rich": "cli/install cli/transfer eval/display",
    "sympy": "rubrics/math_verify_grader",
    "textarena": "adapters/textarena",
    "tomlkit": "adapters/prime_rl_config hub/credentials hub/version_bump",
    "safetensors": "rl/inside_vllm/weights_vllm rl/trainer/weights",
    "torch": "adapters/prime_rl rl/inside_vllm/* rl/trainer/* rl/ways",
    "transformers": "rl/chat_tokenizer rl/trainer/attention rl/trainer/model rl/trainer/weights",
    "typer": "cli/*",
    "uv": "uv_program clients/local_weights",
    "verl": "adapters/verl",
    "vllm": "rl/inside_vllm/*",  # loaded by vLLM itself
    "xllamacpp": "clients/local_server",
    "yarl": "clients/pool",
}
LIGHT = {"msgspec"}  # may be imported anywhere


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = [name for name in FILES if name]  # the package itself is only names


@cache
def imports_of(name: str) -> frozenset[str]:
    """Every module that the file imports at all, nested imports included, as absolute names."""
    path, found = FILES[name], set()
    is_front_door = path.name == "__init__.py"  # these hand out names on first touch: only what they load counts
    tree = ast.parse(path.read_text())
    for node in tree.body if is_front_door else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def own_imports(name: str) -> set[str]:
    found = {module.removeprefix("verifiers.") for module in imports_of(name) if module.startswith("verifiers.")}
    return found & set(FILES) - {name}


def foreign_imports(name: str) -> set[str]:
    tops = {module.partition(".")[0] for module in imports_of(name)}
    return tops - set(sys.stdlib_module_names) - {"verifiers"}


def layer_of(name: str) -> int:
    parts = name.split(".")
    for length in (2, 1):
        if (found := LAYER_OF.get(".".join(parts[:length]))) is not None:
            return found
    pytest.fail(f"verifiers/{name.replace('.', '/')}.py has no place in LAYERS: put it where it belongs")


@pytest.mark.parametrize("name", [name for name in MODULES if name != "compat"])
def test_imports_point_downwards(name):
    upwards = [used for used in own_imports(name) if used != "compat" and layer_of(used) > layer_of(name)]
    assert upwards == [], f"{name} imports what is built on it"


def test_there_are_no_cycles():
    graph = {name: {used for used in own_imports(name) if used} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules that import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("name", MODULES)
def test_heavy_libraries_are_imported_where_they_are_wrapped(name):
    here = name.replace(".", "/")
    for library in foreign_imports(name) - LIGHT:
        assert library != "hub_server", f"{here} imports the hub's server"
        assert library in HEAVY, f"{here} imports {library}, which is no dependency that HEAVY knows"
        assert any(fnmatch(here, place) for place in HEAVY[library].split()), (
            f"{here} imports {library}; it belongs to {HEAVY[library]}"
        )


def test_the_list_of_wrappers_is_not_longer_than_the_truth():
    listed = {(place, library) for library, places in HEAVY.items() for place in places.split()}
    used = {(name.replace(".", "/"), library) for name in MODULES for library in foreign_imports(name) - LIGHT}
    wrongly = [
        (place, lib)
        for place, lib in listed
        if not any(lib == library and fnmatch(file, place) for file, library in used)
    ]
    assert wrongly == []


OF_THE_HUB = {"archives", "records", "refs", "statistics", "viewer"}


@pytest.mark.parametrize("path", sorted((ROOT / "hub_server").rglob("*.py")), ids=lambda path: path.stem)
def test_the_hub_takes_from_the_library_only_what_both_sides_must_agree_on(path):
    """Programs in `inside/` are run beside an environment, in its sandbox, and never imported by the hub."""
    if path.parent.name == "inside":
        pytest.skip("runs in a sandbox")
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("verifiers.")}
    assert found <= OF_THE_HUB


def loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import verifiers",
        "import verifiers as vf; vf.SingleTurnEnv, vf.StatefulToolEnv, vf.EnvGroup, vf.Rubric, vf.ScriptedClient",
        "import verifiers as vf; vf.SingleTurnEnv(dataset=[{'question': 'q'}], rubric=vf.Rubric([len])).train_rows()",
        "import verifiers as vf\ndef f(x: int): ...\nvf.ToolEnv(dataset=[{'question': 'q'}], tools=[f])",
    ],
    ids=["import", "classes", "an environment", "an environment with a tool"],
)
def test_nothing_heavy_is_loaded_until_it_is_needed(code):
    heavy = {"aiohttp", "datasets", "numpy", "openai", "pydantic", "rich", "sympy", "tomlkit", "typer"}
    assert loaded_by(code) & heavy == set()


def test_importing_the_package_has_no_effect_but_its_names():
    extra = loaded_by("import verifiers") - loaded_by("import importlib, typing, __future__") - {"verifiers"}
    assert extra & {"asyncio", "msgspec", "logging", "concurrent"} == set()
