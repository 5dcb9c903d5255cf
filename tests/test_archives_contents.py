"""What is read out of a good wheel and a good sdist: metadata, module, declaration, hashes; and how both belong
together."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import archive_samples as samples
import pytest
from archive_samples import (
    FOLDER,
    INFO,
    METADATA,
    PYPROJECT,
    SDIST_NAME,
    WHEEL_NAME,
    TarMember,
    ZipMember,
    changed,
    check,
    metadata_with,
    refused_sdist,
    wheel_with,
)  # fmt: skip

from verifiers import archives
from verifiers.archives import ArchiveRefused, Member
from verifiers.errors import ConfigError

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def wheel() -> archives.Checked:
    return check(samples.wheel(), WHEEL_NAME)


@pytest.fixture(scope="module")
def sdist() -> archives.Checked:
    return check(samples.sdist(), SDIST_NAME)


def test_a_good_wheel_says_what_is_in_it(wheel):
    data = samples.wheel()
    assert (wheel.kind, wheel.filename, wheel.project, wheel.version) == ("wheel", WHEEL_NAME, "zz-game", "0.1.0")
    assert (wheel.sha256, wheel.size_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert wheel.blake2_256 == hashlib.blake2b(data, digest_size=32).hexdigest()
    assert wheel.md5 == hashlib.md5(data).hexdigest()
    assert (wheel.module, wheel.content_hash, wheel.environment) == ("zz_game", None, None)
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        expected = [(name, hashlib.sha256(opened.read(name)).hexdigest()) for name in opened.namelist()]
    assert [(member.path, member.sha256) for member in wheel.members] == expected


def test_a_good_sdist_says_what_is_in_it(sdist):
    assert (sdist.kind, sdist.project, sdist.version, sdist.module) == ("sdist", "zz-game", "0.1.0", "zz_game")
    assert [member.path for member in sdist.members][:2] == ["PKG-INFO", "pyproject.toml"]
    assert sdist.content_hash == archives.content_hash(sdist.members)


def test_metadata_is_read_field_by_field_and_kept_byte_for_byte(wheel):
    metadata = wheel.metadata
    assert metadata.raw == METADATA
    assert (metadata.name, metadata.version, metadata.metadata_version) == ("zz-game", "0.1.0", "2.4")
    assert (metadata.summary, metadata.description) == ("A game", "# Zz\n\nA game.\n")
    assert metadata.description_content_type == "text/markdown"
    assert metadata.requires_dist == ("verifiers>=1.0.0", "numpy>=2")
    assert (metadata.requires_python, metadata.license, metadata.keywords) == (
        ">=3.11",
        "Apache-2.0",
        ("game", "train"),
    )
    assert metadata.authors == ("Ada <ada@example.com>",)
    assert metadata.project_urls == (("Source", "https://example.com/zz"),)


@pytest.mark.parametrize(
    ("fields", "authors"),
    [
        ("Author: Ada\nAuthor-email: ada@example.com", ("Ada <ada@example.com>",)),
        ("Author: Ada, Bob\nAuthor-email: Ada <ada@example.com>", ("Ada <ada@example.com>", "Bob")),
        (
            'Author-email: "Lovelace, A." <ada@example.com>, bob@example.com',
            ('"Lovelace, A." <ada@example.com>', "bob@example.com"),
        ),
        ("Author: Ada\nMaintainer: Bob", ("Ada", "Bob")),
    ],
)
def test_people_are_named_once_each_however_tools_write_them(fields, authors):
    metadata = metadata_with("Author-email: Ada <ada@example.com>", fields)
    assert check(samples.wheel(METADATA=metadata), WHEEL_NAME).metadata.authors == authors


def test_the_home_page_of_older_metadata_is_one_of_the_addresses():
    metadata = metadata_with("Project-URL:", "Home-page: https://example.com\nProject-URL:")
    urls = dict(check(samples.wheel(METADATA=metadata), WHEEL_NAME).metadata.project_urls)
    assert urls == {"Source": "https://example.com/zz", "Homepage": "https://example.com"}


def test_what_the_environment_says_of_itself_comes_from_its_pyproject(sdist):
    found = sdist.environment
    assert found is not None
    assert (found.task_type, found.tags, found.tools) == ("multi-turn", ("game",), ("guess",))
    assert [dataset.name for dataset in found.datasets] == ["example/words", "example/more"]
    assert found.datasets[1].revision == "abc"
    assert found.splits == {"train": 100, "eval": 10}
    assert (found.required_keys, found.publish_answers) == (("OPENAI_API_KEY",), True)
    assert (found.eval.num_examples, found.eval.rollouts_per_example) == (5, 3)
    assert found.validate == {"reference_reward": 1.0}
    assert found.unknown == ()


def test_a_wheel_that_keeps_its_pyproject_says_the_same_as_the_sdist(sdist):
    assert check(samples.wheel(pyproject=PYPROJECT), WHEEL_NAME).environment == sdist.environment


def test_the_pyproject_of_a_neighbour_in_a_wheel_is_passed_over():
    assert check(wheel_with("pyproject.toml", b'[project]\nname = "other"\n'), WHEEL_NAME).environment is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('task_type = "multi-turn"', "task_type = 3"),
        ('tools = ["guess"]', 'tools = "guess"'),
        ("publish_answers = true", 'publish_answers = "yes"'),
        ("num_examples = 5", "num_examples = 0"),
        ("num_examples = 5", "num_examples = true"),
        ("rollouts_per_example = 3", "rollouts_per_example = -1"),
        ("train = 100", "train = -5"),
        ('required_keys = ["OPENAI_API_KEY"]', 'required_keys = ["OPENAI_API_KEY=secret"]'),
        ('tags = ["game"]', 'tags = ["a\\u202eb"]'),
        ('tags = ["game"]', "tags = [1]"),
        ('tags = ["game"]', f"tags = {[str(number) for number in range(101)]}"),
        ("[tool.verifiers]", "[tool.verifiers]\n" + "".join(f"k{number} = 1\n" for number in range(101))),
        ('revision = "abc"', 'revison = "abc"'),
        ("train = 100", f"train = {2**70}"),
        ("num_examples = 5", f"num_examples = {2**70}"),
        ("reference_reward = 1.0", f"reference_reward = {2**70}"),
        ("reference_reward = 1.0", f"reference_reward = 1{'0' * 400}"),
        ("reference_reward = 1.0", f"reference_reward = {'[' * 20}{']' * 20}"),
        ("reference_reward = 1.0", "reference_reward = nan"),
        ("reference_reward = 1.0", "reference_reward = 2024-01-01"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(old, new):
    refused_sdist(samples.sdist(pyproject=changed(PYPROJECT, old, new)), "declaration_invalid")


def test_a_misspelt_key_of_the_declaration_is_told():
    checked = check(samples.sdist(pyproject=changed(PYPROJECT, "task_type", "task_typ")), SDIST_NAME)
    assert checked.environment is not None
    assert checked.environment.unknown == ("task_typ (did you mean task_type?)",)


def test_splits_may_be_names_alone():
    plain = changed(PYPROJECT, "splits = { train = 100, eval = 10 }", 'splits = ["train", "eval"]')
    checked = check(samples.sdist(pyproject=plain), SDIST_NAME)
    assert checked.environment is not None and checked.environment.splits == {"train": None, "eval": None}


def test_a_file_is_checked_by_path_or_as_an_open_file(tmp_path):
    path = tmp_path / WHEEL_NAME
    path.write_bytes(samples.wheel())
    with path.open("rb") as opened:
        opened.seek(7)
        from_open = archives.check_wheel(opened, WHEEL_NAME)
        assert not opened.closed
    assert archives.check_wheel(path) == archives.check(str(path)) == from_open
    with pytest.raises(ArchiveRefused, match="name"):
        archives.check(io.BytesIO(samples.wheel()))


def test_a_file_under_a_temporary_name_is_checked_under_its_own(tmp_path):
    path = tmp_path / "upload-1"
    path.write_bytes(samples.sdist())
    assert archives.check_sdist(path, SDIST_NAME).filename == SDIST_NAME
    with pytest.raises(ArchiveRefused, match="no name of a wheel"):
        archives.check_wheel(path, SDIST_NAME)


def test_a_refusal_is_an_error_of_the_configuration_and_pickles():
    error = ArchiveRefused("bomb", "too much")
    assert isinstance(error, ConfigError)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.detail, str(copy)) == ("bomb", "too much", "too much")


def test_zip64_where_it_is_needed_is_read():
    files = samples.with_record(samples.wheel_files())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as opened:
        for path, content in files.items():
            with opened.open(zipfile.ZipInfo(path), "w", force_zip64=True) as member:
                member.write(content)
    assert check(out.getvalue(), WHEEL_NAME).module == "zz_game"


def test_folders_in_a_wheel_are_not_files():
    members = [ZipMember(b"zz_game/", method=0, attributes=0o40755 << 16 | 0x10), *samples.good_members()]
    assert all(not member.path.endswith("/") for member in check(samples.raw_zip(members), WHEEL_NAME).members)


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_long_and_foreign_names_are_read_in_every_tar_format(format):
    path = f"{FOLDER}/zz_game/{'d' * 60}/{'e' * 60}.txt"
    foreign = [] if format == tarfile.USTAR_FORMAT else [TarMember(f"{FOLDER}/wörter.txt", b"x")]
    data = samples.tar_gz(samples.sdist_members(TarMember(path, b"y"), *foreign), format)
    there = {member.path for member in check(data, SDIST_NAME).members}
    assert path.partition("/")[2] in there
    assert not foreign or "wörter.txt" in there


# The page


PAGE = Path(__file__).parents[1] / "docs" / "archives.md"


def test_every_code_is_in_the_page_and_no_other():
    sources = Path(archives.__file__).parent.glob("*.py")
    source = "".join(path.read_text("utf-8") for path in sources)
    codes = set(re.findall(r'ArchiveRefused\(\s*"(\w+)"', source))
    codes |= set(re.findall(r'"(?:RECORD|WHEEL|METADATA)": "(\w+)"', source))
    table = PAGE.read_text("utf-8").partition("## Codes")[2]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.M)
    assert len(codes) > 40
    assert {code for cell in cells for code in re.findall(r"`(\w+)`", cell)} == codes


def test_the_declaration_in_the_page_is_one():
    toml = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    project = b'[project]\nname = "zz-game"\n' + toml.encode()
    declared = check(samples.sdist(pyproject=project), SDIST_NAME).environment
    assert declared is not None and declared.unknown == ()
    unsaid = {field for field in declared.__struct_fields__ if not getattr(declared, field)}
    assert unsaid == {"publish_answers", "validate", "unknown"}


# Publishing both files


def test_a_wheel_and_its_sdist_belong_together(wheel, sdist):
    archives.check_pair(wheel, sdist)


def test_sources_in_a_src_folder_belong_to_the_wheel(wheel):
    files = {path.replace("/zz_game/", "/src/zz_game/"): data for path, data in samples.sdist_files().items()}
    sdist = check(samples.sdist(files), SDIST_NAME)
    assert sdist.module == "zz_game"
    archives.check_pair(wheel, sdist)


def refused_pair(wheel: archives.Checked, sdist: archives.Checked) -> str:
    with pytest.raises(ArchiveRefused) as caught:
        archives.check_pair(wheel, sdist)
    assert caught.value.code == "pair_mismatch"
    return caught.value.detail


def test_a_wheel_with_other_code_than_its_sdist_is_refused(sdist):
    other = check(wheel_with("zz_game/__init__.py", samples.MODULE + b"import os\n"), WHEEL_NAME)
    assert "zz_game/__init__.py" in refused_pair(other, sdist)


@pytest.mark.parametrize("path", ["zz_game/more.py", "zz_game/more.pyc", "zz_game/more.so", "other/__init__.py"])
def test_a_wheel_with_code_that_its_sdist_does_not_show_is_refused(sdist, path):
    assert path in refused_pair(check(wheel_with(path, b"import os\n"), WHEEL_NAME), sdist)


def test_a_wheel_and_an_sdist_of_other_dependencies_are_refused(wheel):
    other = check(samples.sdist(PKG_INFO=metadata_with("numpy>=2", "numpy>=1")), SDIST_NAME)
    assert "numpy" in refused_pair(wheel, other)


def test_dependencies_that_the_sdist_leaves_open_may_differ(wheel):
    open_ones = metadata_with("Requires-Dist: numpy>=2", "Dynamic: Requires-Dist")
    archives.check_pair(wheel, check(samples.sdist(PKG_INFO=open_ones), SDIST_NAME))


def test_another_spelling_of_the_same_dependencies_is_the_same(wheel):
    spelt = metadata_with("Requires-Dist: verifiers>=1.0.0", "Requires-Dist: Verifiers (>=1.0.0)")
    archives.check_pair(wheel, check(samples.sdist(PKG_INFO=spelt), SDIST_NAME))


def test_two_wheels_are_no_pair(wheel):
    refused_pair(wheel, wheel)


# Content hash


def test_the_content_hash_has_its_published_values():
    vectors = json.loads((DATA / "content_hashes.json").read_text("utf-8"))
    assert len(vectors) >= 6
    for vector in vectors:
        members = [Member(**member) for member in vector["members"]]
        assert archives.content_hash(members) == vector["hash"], vector["about"]
        assert archives.content_hash(reversed(members)) == vector["hash"], "the order of the archive does not count"


def test_the_content_hash_of_the_vectors_follows_from_the_written_lines():
    """Computed as docs/archives.md says it, without our code."""
    for vector in json.loads((DATA / "content_hashes.json").read_text("utf-8")):
        text = "".join(line + "\n" for line in vector["lines"])
        assert "vfh1:" + hashlib.sha256(text.encode()).hexdigest() == vector["hash"], vector["about"]


def test_packing_and_times_do_not_change_the_content_hash(sdist):
    again = samples.tar_gz(list(reversed(samples.sdist_members())), tarfile.GNU_FORMAT)
    assert check(again, SDIST_NAME).content_hash == sdist.content_hash


def test_what_can_be_executed_changes_the_content_hash(sdist):
    members = samples.sdist_members()
    members[-1] = replace(members[-1], mode=0o755)
    checked = check(samples.tar_gz(members), SDIST_NAME)
    assert checked.members[-1].executable
    assert checked.content_hash != sdist.content_hash


# Reading a member


@pytest.mark.parametrize(("data", "name"), [(samples.wheel(), WHEEL_NAME), (samples.sdist(), SDIST_NAME)])
def test_a_member_is_read_whole_or_up_to_a_limit(data, name, tmp_path):
    path = tmp_path / "stored"
    path.write_bytes(data)
    member = next(member for member in archives.check(path, name).members if member.path == "zz_game/words.txt")
    assert archives.read_member(path, member, 1000) == b"apple\n" * 50
    assert archives.read_member(path, "zz_game/words.txt", 7) == b"apple\na"
    assert archives.read_member(io.BytesIO(data), member, 300) == b"apple\n" * 50
    with pytest.raises(ArchiveRefused) as caught:
        archives.read_member(path, "zz_game", 10)
    assert caught.value.code == "no_such_member"
    with pytest.raises(ArchiveRefused) as caught:
        archives.read_member(path, replace(member, sha256="0" * 64), 1000)
    assert caught.value.code == "member_changed"


MODULES = {
    "a module": {"zz_game.py": samples.MODULE},
    "async": {"zz_game.py": b"async def load_environment():\n    ...\n"},
    "a name": {"zz_game/__init__.py": b"load_environment = make(3)\n"},
    "imported": {"zz_game/__init__.py": b"from .core import (\n    other,\n    load_environment,\n)\n"},
    "in another file": {"zz_game/__init__.py": b"from .core import *\n", "zz_game/core.py": samples.MODULE},
}


@pytest.mark.parametrize("modules", MODULES.values(), ids=MODULES)
def test_the_module_with_load_environment_is_found_however_it_is_written(modules):
    files = {path: data for path, data in samples.wheel_files().items() if not path.startswith("zz_game/")}
    assert check(samples.wheel({**modules, **files}), WHEEL_NAME).module == "zz_game"
    sources = {path: data for path, data in samples.sdist_files().items() if "/zz_game/" not in path}
    for folder in (FOLDER, f"{FOLDER}/src"):
        both = {**sources, **{f"{folder}/{path}": data for path, data in modules.items()}}
        assert check(samples.sdist(both), SDIST_NAME).module == "zz_game"


def test_a_module_of_another_name_is_found_by_its_entry_point_or_alone():
    files = {path.replace("zz_game/", "words/"): data for path, data in samples.wheel_files().items()}
    assert check(samples.wheel(files), WHEEL_NAME).module == "words"
    with_tests = {**files, "tests/__init__.py": b"", "tests/test_it.py": b"from words import load_environment\n"}
    assert check(samples.wheel(with_tests), WHEEL_NAME).module == "words"
    both = {**files, "boards/__init__.py": samples.MODULE}
    assert check(samples.wheel(both), WHEEL_NAME).module == "boards"
    named = {**both, f"{INFO}/entry_points.txt": b"[verifiers.environments]\nzz-game = words:load_environment [fast]\n"}
    assert check(samples.wheel(named), WHEEL_NAME).module == "words"
