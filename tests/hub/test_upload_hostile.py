"""Uploads that are wrong in one way each, sent over HTTP: refused with a reason, nothing stored, nothing listed."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from archive_samples import (
    FOLDER,
    METADATA,
    SDIST_NAME,
    WHEEL_NAME,
    TarMember,
    ZipMember,
    changed_member,
    form_of,
    good_members,
    raw_zip,
    sdist,
    sdist_members,
    tar_gz,
    wheel,
    wheel_files,
    with_record,
    zip64_extra,
    zip_of,
)
from hub_packages import Package
from hub_uploads import multipart, upload_wheel
from sqlalchemy import func, select

from hub_server.models import File, Project, Release

MIB = 1 << 20


@dataclass(frozen=True)
class Bad:
    item: int  # of the list of bad inputs that the hub must refuse
    what: str
    code: str
    data: Callable[[], bytes]
    filename: str = WHEEL_NAME
    form: dict[str, list[str]] = field(default_factory=dict)
    status: int = 400


def good() -> bytes:
    return wheel()


def meta(old: bytes, new: bytes) -> Callable[[], bytes]:
    """A wheel whose METADATA differs from the good one's; the form stays."""
    assert old in METADATA
    return lambda: wheel(METADATA=METADATA.replace(old, new))


def more(path: str, content: bytes = b"x") -> Callable[[], bytes]:
    return lambda: wheel({**wheel_files(), path: content})


def member(**changes: object) -> Callable[[], bytes]:
    return lambda: raw_zip(changed_member(1, **changes))


def unrecorded(change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> Callable[[], bytes]:
    """A good wheel whose members were changed after RECORD was written."""
    return lambda: zip_of(change(with_record(wheel_files())))


def tar(*members: TarMember) -> Callable[[], bytes]:
    return lambda: tar_gz(sdist_members(*members))


def zeros() -> bytes:
    return wheel({**wheel_files(), "zz_game/zeros.bin": bytes(120 * MIB)})


def many_members() -> bytes:
    return wheel({**wheel_files(), **{f"zz_game/{number}.txt": b"" for number in range(10_001)}})


SPARSE = TarMember(f"{FOLDER}/sparse", type=tarfile.GNUTYPE_SPARSE)
ENTRY_POINT = b"[console_scripts]\n../../evil = zz_game:load_environment\n"

BAD = [
    Bad(1, "sha256-differs", "digest_mismatch", good, form={"sha256_digest": ["0" * 64]}),
    Bad(1, "md5-differs", "digest_mismatch", good, form={"md5_digest": ["0" * 32]}),
    Bad(1, "blake2-differs", "digest_mismatch", good, form={"blake2_256_digest": ["0" * 64]}),
    Bad(2, "no-digest", "digest_missing", good, form={"sha256_digest": [], "md5_digest": [], "blake2_256_digest": []}),
    Bad(2, "empty-file", "empty_file", lambda: b""),
    Bad(3, "text-as-wheel", "not_zip", lambda: b"this is no wheel\n" * 100),
    Bad(3, "truncated", "trailing_data", lambda: good()[:-40]),
    Bad(3, "zip-and-tar", "not_zip", lambda: tar_gz(sdist_members()) + good()),
    Bad(4, "data-before", "not_zip", lambda: b"#!/bin/sh\n" + good()),
    Bad(4, "data-after", "trailing_data", lambda: good() + b"trailing"),
    Bad(
        4,
        "data-between",
        "hidden_data",
        lambda: raw_zip([*good_members()[:-1], _with(good_members()[-1], before=b"hidden")]),
    ),
    Bad(4, "two-zips-glued", "hidden_data", lambda: good() + good()),
    Bad(4, "zip64-lies", "zip64", member(extra=zip64_extra(1 << 40, 1 << 40))),
    Bad(5, "duplicate-member", "duplicate_member", lambda: raw_zip([*good_members(), good_members()[0]])),
    Bad(5, "duplicate-by-case", "duplicate_member", more("ZZ_GAME/__init__.py")),
    Bad(6, "name-in-two-ways", "header_mismatch", member(local={"name": b"zz_game/other.txt"})),
    Bad(6, "size-in-two-ways", "header_mismatch", member(local={"size": 7})),
    Bad(6, "data-descriptor", "data_descriptor", member(flags=0x8)),
    Bad(7, "lzma", "compression", member(method=14)),
    Bad(7, "encrypted", "encrypted", member(flags=0x1)),
    Bad(8, "dot-dot", "member_path", more("../evil.py")),
    Bad(8, "absolute", "member_path", more("/etc/evil.py")),
    Bad(8, "backslash", "member_path", more("zz_game\\evil.py")),
    Bad(8, "drive", "member_path", more("C:/evil.py")),
    Bad(8, "control-character", "member_path", more("zz_game/a\nb.txt")),
    Bad(8, "long-path", "member_path", more("zz_game/" + "a" * 300)),
    Bad(9, "symlink-in-wheel", "member_type", member(attributes=0o120777 << 16)),
    Bad(9, "set-uid-in-wheel", "member_type", member(attributes=0o104755 << 16)),
    Bad(
        9,
        "symlink-in-sdist",
        "member_type",
        tar(TarMember(f"{FOLDER}/l", type=tarfile.SYMTYPE, link="/etc/passwd")),
        SDIST_NAME,
    ),
    Bad(
        9,
        "hard-link-in-sdist",
        "member_type",
        tar(TarMember(f"{FOLDER}/l", type=tarfile.LNKTYPE, link="PKG-INFO")),
        SDIST_NAME,
    ),
    Bad(9, "device-in-sdist", "member_type", tar(TarMember(f"{FOLDER}/d", type=tarfile.CHRTYPE)), SDIST_NAME),
    Bad(9, "fifo-in-sdist", "member_type", tar(TarMember(f"{FOLDER}/f", type=tarfile.FIFOTYPE)), SDIST_NAME),
    Bad(10, "zero-bomb", "bomb", zeros),
    Bad(10, "many-members", "too_many_members", many_members),
    Bad(10, "tar-bomb", "bomb", lambda: gzip.compress(bytes(700 * MIB), 1), SDIST_NAME),
    Bad(11, "no-record", "record_missing", lambda: zip_of(wheel_files())),
    Bad(
        11, "record-incomplete", "record_mismatch", unrecorded(lambda files: {**files, "zz_game/extra.py": b"x = 1\n"})
    ),
    Bad(
        11,
        "record-too-much",
        "record_mismatch",
        unrecorded(lambda files: {k: v for k, v in files.items() if "words" not in k}),
    ),
    Bad(
        11,
        "record-digest",
        "record_mismatch",
        unrecorded(lambda files: {**files, "zz_game/words.txt": b"other\n" * 50}),
    ),
    Bad(12, "no-wheel-file", "wheel_file_missing", lambda: wheel(WHEEL=None)),
    Bad(12, "no-metadata", "metadata_missing", lambda: wheel(METADATA=None)),
    Bad(12, "two-dist-infos", "dist_info", more("other-1.0.dist-info/METADATA")),
    Bad(13, "metadata-of-another-name", "metadata_mismatch", meta(b"Name: zz-game", b"Name: numpy")),
    Bad(13, "metadata-of-another-version", "metadata_mismatch", meta(b"Version: 0.1.0", b"Version: 0.2.0")),
    Bad(13, "other-dependencies", "form_mismatch", meta(b"numpy>=2", b"pandas")),
    Bad(13, "other-python", "form_mismatch", meta(b">=3.11", b">=3.8")),
    Bad(13, "form-of-another-name", "form_mismatch", good, form={"name": ["numpy"]}),
    Bad(13, "form-of-another-version", "form_mismatch", good, form={"version": ["9"]}),
    Bad(13, "filetype-lies", "form_mismatch", good, form={"filetype": ["sdist"]}),
    Bad(14, "metadata-version", "metadata_invalid", meta(b"Metadata-Version: 2.4", b"Metadata-Version: 9.0")),
    Bad(14, "bad-dependency", "metadata_invalid", meta(b"numpy>=2", b"numpy >>> 2")),
    Bad(14, "bad-license", "metadata_invalid", meta(b"Apache-2.0", b"Made-Up-1.0")),
    Bad(14, "bad-python", "metadata_invalid", meta(b">=3.11", b"three")),
    Bad(14, "hidden-header", "metadata_invalid", meta(b"A game", b"A game\rName: evil")),
    Bad(14, "protocol-version", "form_invalid", good, form={"protocol_version": ["7"]}),
    Bad(15, "path-in-filename", "filename_invalid", good, f"../{WHEEL_NAME}"),
    Bad(15, "executable", "filename_invalid", good, f"{FOLDER}.exe"),
    Bad(15, "unnormalised-filename", "filename_invalid", good, "Zz-Game-0.1.0-py3-none-any.whl"),
    Bad(15, "file-of-another-project", "dist_info", good, "numpy-0.1.0-py3-none-any.whl"),
    Bad(15, "file-of-another-version", "dist_info", good, "zz_game-9.9-py3-none-any.whl"),
    Bad(16, "local-version", "version_invalid", good, "zz_game-0.1.0+local-py3-none-any.whl"),
    Bad(16, "no-version", "version_invalid", good, "zz_game-one-py3-none-any.whl"),
    Bad(17, "name-with-dots", "filename_invalid", good, "..-0.1.0-py3-none-any.whl"),
    Bad(17, "homoglyph", "filename_invalid", good, "zz_gаme-0.1.0-py3-none-any.whl"),  # a Cyrillic letter
    Bad(21, "platform-wheel", "tags", good, f"{FOLDER}-cp311-cp311-linux_x86_64.whl"),
    Bad(22, "entry-point-with-a-path", "entry_points", lambda: wheel(entry_points=ENTRY_POINT)),
    Bad(22, "entry-points-unreadable", "entry_points", lambda: wheel(entry_points=b"[[[\nnot an ini")),
    Bad(10, "sdist-two-tops", "top_folder", tar(TarMember("elsewhere/file")), SDIST_NAME),
    Bad(9, "sparse-in-sdist", "member_type", tar(SPARSE), SDIST_NAME),
    Bad(8, "dot-dot-in-sdist", "member_path", tar(TarMember(f"{FOLDER}/../evil")), SDIST_NAME),
    Bad(12, "sdist-without-pkg-info", "metadata_missing", lambda: sdist(PKG_INFO=None), SDIST_NAME),
]


def _with(one: ZipMember, **changes: object) -> ZipMember:
    return replace(one, **changes)  # type: ignore[arg-type]


def send(client, headers, bad: Bad):
    data = bad.data()
    form = form_of(data, "sdist" if bad.filename.endswith(".gz") else "wheel", **bad.form)
    body, kind = multipart([(key, value) for key, values in form.items() for value in values], bad.filename, data)
    return client.post("/legacy/", content=body, headers={**headers, "Content-Type": kind})


def everything(hub) -> list[object]:
    """What a refused upload must not have changed."""
    with hub.database.read() as session:
        rows = [session.scalar(select(func.count()).select_from(table)) for table in (Project, Release, File)]
    stored = [found.key for prefix in ("files/", "metadata/") for found in hub.storage.list(prefix)]
    return [rows, stored, list(hub.settings.temporary.iterdir())]


def test_the_good_ones_are_taken(client, world):
    ada = world.user("ada")
    for filename, data in ((WHEEL_NAME, wheel), (SDIST_NAME, sdist)):
        assert send(client, ada.headers, Bad(0, "good", "", data, filename)).status_code == 200


def test_there_are_more_than_48():
    assert len({bad.what for bad in BAD}) == len(BAD) >= 48
    assert {bad.item for bad in BAD} >= {*range(1, 18), 21, 22}


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"item_{bad.item:02}_{bad.what}")
def test_hostile_upload_is_refused_with_a_reason_and_leaves_nothing(client, world, hub, bad):
    ada = world.user("ada")
    before = everything(hub)
    started = time.process_time()
    answer = send(client, ada.headers, bad)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (bad.status, bad.code), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(problem["detail"]) > 10
    assert everything(hub) == before
    assert time.process_time() - started < 20  # of which building the file takes most


@pytest.mark.parametrize("name", ["json", "verifiers", "aiohttp", "lambda"])
def test_item_17_a_name_that_python_or_the_library_has_is_refused(client, world, hub, name):
    ada, before = world.user("ada"), everything(hub)
    answer = upload_wheel(client, ada.headers, Package(name))
    assert (answer.status_code, answer.json()["code"]) == (400, "name_taken")
    assert everything(hub) == before


def test_item_01_the_reason_names_what_arrived(client, world):
    ada = world.user("ada")
    answer = send(client, ada.headers, BAD[0])
    assert hashlib.sha256(good()).hexdigest() in answer.json()["detail"]
