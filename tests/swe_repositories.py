"""Three small repositories with a bug each, made for these tests, and built here as bundles with a telling history."""

import os
import subprocess
from pathlib import Path

SECRET = "the fix is to count from one"  # said only by commits that a model must not see

ADDER = {
    "adder/__init__.py": "from adder.sums import total\n",
    "adder/sums.py": "def total(numbers):\n    result = 1\n    for number in numbers:\n        result += number\n"
    "    return result\n",
    "tests/test_total.py": "from adder import total\n\n\ndef test_is_number():\n"
    "    assert isinstance(total([1]), int)\n",
    "run.sh": "#!/bin/sh\necho run\n",
    "README.md": "Adds.\n",
}
ADDER_HIDDEN = """import pytest

from adder import total


def test_empty():
    assert total([]) == 0


@pytest.mark.parametrize("numbers, expected", [([2, 3], 5), ([-1], -1)])
def test_some(numbers, expected):
    assert total(numbers) == expected
"""
ADDER_ROW = {
    "instance_id": "adder-1",
    "problem_statement": "total([2, 3]) is 6, and {braces} do no harm.",
    "test_files": {"tests/test_hidden.py": ADDER_HIDDEN},
    "FAIL_TO_PASS": [
        "tests/test_hidden.py::test_empty",
        "tests/test_hidden.py::test_some[numbers0-5]",
        "tests/test_hidden.py::test_some[numbers1--1]",
    ],
    "PASS_TO_PASS": ["tests/test_total.py::test_is_number"],
}
ADDER_FIX = "sed -i 's/result = 1/result = 0/' adder/sums.py"

# src layout, unittest, a setting without which the tests fail
SLUGS = {
    "src/slugs/__init__.py": "def slug(text):\n    return text.lower().replace(' ', '_')\n",
    "setup.cfg": "[metadata]\nname = slugs\n\n[tool:pytest]\npython_files = check_*.py\n",
    "checks/__init__.py": "",
    "checks/check_slug.py": "import unittest\n\nfrom slugs import slug\n\n\nclass Slug(unittest.TestCase):\n"
    "    def test_lower(self):\n        self.assertEqual(slug('AB'), 'ab')\n",
}
SLUGS_HIDDEN = SLUGS["checks/check_slug.py"] + (
    "\n    def test_dash(self):\n        self.assertEqual(slug('A b'), 'a-b')\n"
)
SLUGS_ROW = {
    "instance_id": "slugs-1",
    "problem_statement": "Words should be joined by dashes.",
    "test_files": {"checks/check_slug.py": SLUGS_HIDDEN},
    "FAIL_TO_PASS": '["checks/check_slug.py::Slug::test_dash"]',
    "PASS_TO_PASS": '["checks/check_slug.py::Slug::test_lower"]',
    "runner": "unittest",
}
SLUGS_FIX = "sed -i \"s/'_'/'-'/\" src/slugs/__init__.py"

# fixtures in a conftest, settings in pyproject.toml, hidden tests by a diff, a file that is no UTF-8
LEDGER = {
    "ledger.py": "class Ledger:\n    def __init__(self):\n        self.lines = []\n\n    def add(self, amount):\n"
    "        self.lines.append(abs(amount))\n\n    def balance(self):\n        return sum(self.lines)\n",
    "pyproject.toml": '[project]\nname = "ledger"\nversion = "1"\n\n[tool.pytest.ini_options]\naddopts = "-q"\n',
    "tests/conftest.py": "import pytest\n\nfrom ledger import Ledger\n\n\n@pytest.fixture\ndef ledger():\n"
    "    return Ledger()\n",
    "tests/test_ledger.py": "def test_adds(ledger):\n    ledger.add(2)\n    assert ledger.balance() == 2\n",
    "data/latin.txt": b"caf\xe9\r\n",
    "data/raw.bin": bytes(range(256)),
    ".gitattributes": "*.txt text\n",
}
LEDGER_TEST_PATCH = """diff --git a/tests/test_ledger.py b/tests/test_ledger.py
--- a/tests/test_ledger.py
+++ b/tests/test_ledger.py
@@ -1,3 +1,8 @@
 def test_adds(ledger):
     ledger.add(2)
     assert ledger.balance() == 2
+
+
+def test_takes_away(ledger):
+    ledger.add(-2)
+    assert ledger.balance() == -2
"""
LEDGER_ROW = {
    "instance_id": "ledger-1",
    "repo": "made/ledger",
    "problem_statement": "Taking money away adds it.",
    "test_patch": LEDGER_TEST_PATCH,
    "FAIL_TO_PASS": '["tests/test_ledger.py::test_takes_away"]',
    "PASS_TO_PASS": '["tests/test_ledger.py::test_adds"]',
}
LEDGER_FIX = "sed -i 's/abs(amount)/amount/' ledger.py"

FIXES = {"adder": ADDER_FIX, "slugs": SLUGS_FIX, "ledger": LEDGER_FIX}
_ALL = {"adder": (ADDER, ADDER_ROW), "slugs": (SLUGS, SLUGS_ROW), "ledger": (LEDGER, LEDGER_ROW)}


def git(folder, *arguments):
    env = {
        **os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    }  # fmt: skip
    done = subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write(folder, files):
    for name, content in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o755 if name.endswith(".sh") else 0o644)


def repository(name, folder):
    """A git repository whose base lies between what came before and its fix; the base's commit."""
    files, _ = _ALL[name]
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "core.autocrlf", "false")
    write(folder, {**files, "OLD.txt": SECRET})
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", f"before: {SECRET}")
    (folder / "OLD.txt").unlink()
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "base")
    base = git(folder, "rev-parse", "HEAD")
    write(folder, {"FIX.txt": SECRET})
    subprocess.run(FIXES[name], shell=True, cwd=folder, check=True)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", f"fix: {SECRET}")
    git(folder, "tag", "-a", "v2", "-m", SECRET)
    git(folder, "branch", "solution")
    git(folder, "remote", "add", "origin", f"{folder}/.git")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(folder, "reset", "-q", "--hard", base)  # the fix stays in the reflog too
    return base


def rows(folder):
    """The rows of all three, their repositories as bundles."""
    made = {}
    for name, (_, row) in _ALL.items():
        base = repository(name, folder / name)
        bundle = folder / f"{name}.bundle"
        git(folder / name, "bundle", "create", "-q", str(bundle), "--all")
        made[name] = {**row, "repository": str(bundle), "base_commit": base}
    return made
