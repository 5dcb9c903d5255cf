"""Unpacking keeps to its folder, on a Python with tar filters and on one without."""

import io
import tarfile

import pytest

from verifiers.unpacking import unpack_member


@pytest.fixture(params=["with filters", "without"], autouse=True)
def python(request, monkeypatch):
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        monkeypatch.setattr(
            tarfile.TarFile, "extraction_filter", staticmethod(lambda member, path: member), raising=False
        )


def tar(name, content=b"", **fields):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        for field, value in fields.items():
            setattr(member, field, value)
        archive.addfile(member, io.BytesIO(content))
    return tarfile.open(fileobj=io.BytesIO(data.getvalue()))


def unpack(archive, folder):
    with archive:
        for member in archive:
            unpack_member(archive, member, folder)


def test_a_file_comes_out_as_ours_without_special_modes(tmp_path):
    unpack(tar("a/b.txt", b"text", mode=0o4777, uid=12345), tmp_path)
    file = tmp_path / "a" / "b.txt"
    assert file.read_bytes() == b"text"
    assert file.stat().st_mode & 0o7022 == 0
    assert file.stat().st_uid == tmp_path.stat().st_uid


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../out.txt"},
        {"name": "a/../../out.txt"},
        {"name": "link", "type": tarfile.SYMTYPE, "linkname": "../out.txt"},
        {"name": "link", "type": tarfile.LNKTYPE, "linkname": "../out.txt"},
        {"name": "device", "type": tarfile.CHRTYPE},
        {"name": "pipe", "type": tarfile.FIFOTYPE},
    ],
    ids=lambda fields: f"{fields['name']} {fields.get('linkname', '')}",
)
def test_what_leads_out_or_is_no_file_is_refused(tmp_path, fields):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(tarfile.TarError):
        unpack(tar(**fields), folder)
    assert list(tmp_path.iterdir()) == [folder] and list(folder.iterdir()) == []
