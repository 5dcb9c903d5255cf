"""The hub's own wheel: complete, the same every time, and installable."""

import base64
import csv
import hashlib
import importlib
import io
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from verifiers.archives import check_wheel
from verifiers.archives.limits import Limits
from verifiers.archives.own_wheel import PACKAGES, assembled, own_wheel, package_folder
from verifiers.errors import SetupError


def archive(wheel):
    return zipfile.ZipFile(io.BytesIO(wheel.content))


def folders():
    return {name: package_folder(name) for name in PACKAGES}


def test_the_wheel_is_what_environments_ask_for():
    wheel = own_wheel()
    name, version, _, tags = parse_wheel_filename(wheel.filename)
    assert name == "verifiers"
    assert str(version) == wheel.version == metadata.version("verifiers")
    assert version in SpecifierSet(">=0.1.9")
    assert [str(tag) for tag in tags] == ["py3-none-any"]
    assert wheel.requires_python == ">=3.11"


def test_the_wheel_passes_what_the_hub_asks_of_uploads():
    wheel = own_wheel()
    checked = check_wheel(io.BytesIO(wheel.content), wheel.filename, Limits(environments_only=False))
    assert checked.metadata.raw == wheel.metadata
    assert checked.version == wheel.version


def test_every_source_file_is_in_it_with_its_digest():
    wheel = assembled(metadata.distribution("verifiers"), folders())  # as the sources are now
    with archive(wheel) as files:
        assert files.testzip() is None
        names = files.namelist()
        assert len(names) == len(set(names))
        record = f"verifiers-{wheel.version}.dist-info/RECORD"
        rows = list(csv.reader(io.StringIO(files.read(record).decode())))
        assert {row[0] for row in rows} == set(names)
        for path, digest, size in rows:
            if path == record:
                assert (digest, size) == ("", "")
                continue
            data = files.read(path)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(data))
    for package in PACKAGES:
        root = Path(importlib.import_module(package).__file__ or "").parent
        sources = {f"{package}/{path.relative_to(root).as_posix()}" for path in root.rglob("*.py")}
        assert sources <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert f"{names[-1]}" == record, "installers like it last"


def test_two_assemblies_are_one_file():
    distribution = metadata.distribution("verifiers")
    assert assembled(distribution, folders()).content == assembled(distribution, folders()).content
    with archive(own_wheel()) as files:
        assert {member.date_time for member in files.infolist()} == {(2020, 2, 2, 0, 0, 0)}
        assert {member.compress_type for member in files.infolist()} == {zipfile.ZIP_STORED}


def test_metadata_licence_and_commands_are_those_of_the_installation():
    wheel = own_wheel()
    info = f"verifiers-{wheel.version}.dist-info"
    distribution = metadata.distribution("verifiers")
    with archive(wheel) as files:
        assert files.read(f"{info}/METADATA").decode() == distribution.read_text("METADATA")
        assert b"vf-eval = " in files.read(f"{info}/entry_points.txt")
        assert b"Apache License" in files.read(f"{info}/licenses/LICENSE")
    about = Parser().parsestr(wheel.metadata.decode())
    assert about["Version"] == wheel.version
    assert wheel.metadata_sha256 == hashlib.sha256(wheel.metadata).hexdigest()


def test_an_editable_checkout_and_a_normal_installation_give_the_same_wheel(tmp_path):
    """The wheel, unpacked where an installer would put it, gives itself again."""
    wheel = own_wheel()
    with archive(wheel) as files:
        files.extractall(tmp_path)
    (tmp_path / "verifiers" / "__pycache__").mkdir()
    (tmp_path / "verifiers" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    (distribution,) = metadata.distributions(path=[str(tmp_path)])
    again = assembled(distribution, {name: tmp_path / name for name in PACKAGES})
    assert again.content == wheel.content


def test_an_installer_takes_it_without_network_and_it_runs(tmp_path):
    wheel = own_wheel()
    (tmp_path / wheel.filename).write_bytes(wheel.content)
    target = tmp_path / "site"
    command = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--no-index", "--target", target]
    done = subprocess.run([*command, tmp_path / wheel.filename], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = "import verifiers, hub_server; print(verifiers.__file__, verifiers.__version__)"
    # -I -S: nothing of this checkout is on the path
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(target)!r}); {code}"],
        capture_output=True,
        text=True,
    )
    assert ran.stdout.split() == [str(target / "verifiers" / "__init__.py"), wheel.version], ran.stderr


def test_a_missing_package_is_named():
    with pytest.raises(SetupError, match="no_such_package"):
        package_folder("no_such_package")
