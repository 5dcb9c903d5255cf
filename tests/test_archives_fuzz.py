"""Whatever bytes arrive, the answer is an `ArchiveRefused` or a `Checked`, and soon; and what is taken holds the same
files for Python's own `zipfile` and `tarfile`."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import time
import zipfile

import archive_samples as samples
from archive_samples import FOLDER, INFO, METADATA, PYPROJECT, SDIST_NAME, WHEEL, WHEEL_NAME, TarMember, ZipMember
from hypothesis import given, settings
from hypothesis import strategies as st

from verifiers import archives
from verifiers.archives import ArchiveRefused, Checked, Limits

ALL = Limits(platform_wheels=True, direct_urls=True, environments_only=False)
ENTRY_POINTS = b"[console_scripts]\nzz-play = zz_game:load_environment\n\n[verifiers.environments]\nzz-game = zz_game\n"
WHEEL_BYTES = samples.wheel(entry_points=ENTRY_POINTS, pyproject=PYPROJECT)
SDIST_BYTES = samples.sdist()
TAR_BYTES = gzip.decompress(SDIST_BYTES)
GNU_TAR_BYTES = gzip.decompress(
    samples.tar_gz(samples.sdist_members(TarMember(f"{FOLDER}/{'d' * 90}/{'e' * 90}", b"x")), tarfile.GNU_FORMAT)
)
PAX_TAR_BYTES = gzip.decompress(samples.tar_gz(samples.sdist_members(TarMember(f"{FOLDER}/w\u00f6rter.txt", b"x"))))


def answer(data: bytes, filename: str, limits: Limits = ALL) -> Checked | None:
    """`None`: refused. Anything else than these two answers, or a slow one, fails the test."""
    started = time.process_time()
    try:
        return archives.check(io.BytesIO(data), filename, limits)
    except ArchiveRefused as error:
        assert error.code.replace("_", "").isalnum() and error.detail.isprintable()
        return None
    finally:
        assert time.process_time() - started < 2


def is_read_alike(data: bytes, checked: Checked) -> None:
    """The members that were checked are those that the standard library extracts."""
    found = {}
    if checked.kind == "wheel":
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            assert opened.testzip() is None
            found = {info.filename: opened.read(info) for info in opened.infolist() if not info.is_dir()}
    else:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as opened:
            for member in opened:
                assert member.isfile() or member.isdir()
                if member.isfile():
                    found[member.name.partition("/")[2]] = opened.extractfile(member).read()  # type: ignore[union-attr]
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in found.items()}
    assert {member.path: member.sha256 for member in checked.members} == digests


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """The bytes with a few changes: set, cut out, put in, doubled, swapped for what often means something."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.sampled_from([1, 1, 2, 4, 8, 30, 512]))
        kind = draw(st.sampled_from(["set", "set", "set", "cut", "put", "double", "end"]))
        if kind == "set":
            data[place : place + length] = draw(st.binary(min_size=length, max_size=length))
        elif kind == "cut":
            del data[place : place + length]
        elif kind == "put":
            words = [b"PK\x05\x06", b"PK\x01\x02", b"PK\x03\x04", b"\xff" * 4, bytes(512), b"\n", b"../", b"\r", b"\0"]
            data[place:place] = draw(st.sampled_from(words) | st.binary(max_size=16))
        elif kind == "double":
            data[place:place] = data[place : place + length]
        else:
            del data[place:]
    return bytes(data)


@settings(max_examples=300, deadline=None)
@given(damaged(WHEEL_BYTES))
def test_a_damaged_wheel_is_refused_or_read_alike(data):
    checked = answer(data, WHEEL_NAME)
    if checked is not None:
        is_read_alike(data, checked)


@settings(max_examples=150, deadline=None)
@given(damaged(SDIST_BYTES))
def test_a_damaged_sdist_is_refused_or_read_alike(data):
    checked = answer(data, SDIST_NAME)
    if checked is not None:
        is_read_alike(data, checked)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([TAR_BYTES, GNU_TAR_BYTES, PAX_TAR_BYTES]).flatmap(damaged))
def test_a_damaged_tar_inside_of_a_sound_gzip_is_refused_or_read_alike(tar):
    data = gzip.compress(tar, 1, mtime=0)
    checked = answer(data, SDIST_NAME)
    if checked is not None:
        is_read_alike(data, checked)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([WHEEL_BYTES, SDIST_BYTES]).flatmap(damaged))
def test_a_member_of_a_stored_file_that_was_damaged_is_whole_or_refused(data):
    checked = archives.check(io.BytesIO(WHEEL_BYTES), WHEEL_NAME)
    member = next(one for one in checked.members if one.path == "zz_game/__init__.py")
    try:
        assert archives.read_member(io.BytesIO(data), member, 1000) == samples.MODULE
    except ArchiveRefused as error:
        assert error.detail.isprintable()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_inside_of_a_sound_wheel_gets_an_answer(data):
    part, good = data.draw(
        st.sampled_from(
            [("METADATA", METADATA), ("WHEEL", WHEEL), ("entry_points", ENTRY_POINTS), ("pyproject", PYPROJECT)]
        )
    )
    answer(samples.wheel(**{part: data.draw(damaged(good))}), WHEEL_NAME)


@settings(max_examples=200, deadline=None)
@given(damaged(samples.record_of(samples.wheel_files())))
def test_a_damaged_record_is_refused(record):
    files = samples.wheel_files()
    checked = answer(samples.zip_of({**files, f"{INFO}/RECORD": record}), WHEEL_NAME)
    if checked is not None:  # an empty line more, or one row in another place
        assert sorted(record.split()) == sorted(samples.record_of(files).split())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_inside_of_a_sound_sdist_gets_an_answer(data):
    part, good = data.draw(st.sampled_from([("PKG_INFO", METADATA), ("pyproject", PYPROJECT)]))
    answer(samples.sdist(**{part: data.draw(damaged(good))}), SDIST_NAME)


numbers = st.sampled_from([0, 1, 0x10, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, 300]) | st.integers(0, 0xFFFF)
lies = st.dictionaries(st.sampled_from(["size", "packed", "crc"]), numbers, max_size=2) | st.dictionaries(
    st.sampled_from(["flags", "method"]), st.integers(0, 0xFFFF) | st.sampled_from([0, 8, 0x800]), max_size=2
)
paths = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["zz_game/x.py", "../x", "a/b", "a", "A", "zz_game/__init__.py", f"{INFO}/RECORD", "/x", "a\\b"]),
).map(lambda text: text.encode("utf-8", "surrogatepass"))
members = st.builds(
    ZipMember,
    name=paths,
    content=st.binary(max_size=64),
    method=st.sampled_from([0, 8]),
    attributes=st.sampled_from([0, 0o100644 << 16, 0o120777 << 16, 0o40755 << 16, 0o104755 << 16, 0x10]),
    packed=st.none() | st.binary(max_size=32),
    local=lies,
    central=lies,
    before=st.just(b"") | st.binary(max_size=4),
    extra=st.sampled_from(
        [b"", samples.zip64_extra(5, 5), samples.zip64_extra(5), b"UT\x01\x00x", b"up\x00\x00", b"x"]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(members, max_size=3), st.booleans(), st.sampled_from([b"", b"PK\x06\x07" + bytes(16), b"x"]))
def test_a_zip_of_odd_records_is_refused_or_read_alike(odd, with_good, before_end):
    data = samples.raw_zip([*(samples.good_members() if with_good else []), *odd], before_end=before_end)
    checked = answer(data, WHEEL_NAME)
    if checked is not None:
        is_read_alike(data, checked)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(paths, st.binary(max_size=32), st.sampled_from(list(b"0157xgLKS\0"))), max_size=3))
def test_a_tar_of_odd_blocks_is_refused_or_read_alike(odd):
    blocks = b"".join(
        samples.tar_member((f"{FOLDER}/".encode() + path)[:100], content, bytes([kind])) for path, content, kind in odd
    )
    data = samples.gz(samples.good_blocks() + blocks)
    checked = answer(data, SDIST_NAME)
    if checked is not None:
        is_read_alike(data, checked)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"[a-z_]{1,5}-[0-9a-z.!+]{1,8}(-[a-z0-9.]{1,6}){0,4}\.(whl|tar\.gz)"))
def test_any_text_as_a_file_name_gets_an_answer(text):
    answer(WHEEL_BYTES, text)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*samples.form_of(b""), "summary", "content"]), st.lists(st.text(max_size=20), max_size=3)
    )
)
def test_any_form_gets_an_answer(odd):
    checked = archives.check(io.BytesIO(SDIST_BYTES), SDIST_NAME)
    try:
        archives.check_form(checked, {**samples.form_of(SDIST_BYTES, "sdist"), **odd})
    except ArchiveRefused as error:
        assert error.detail.isprintable()


parts = st.from_regex(r"[a-z0-9_]([a-z0-9_. -]{0,8}[a-z0-9_])?", fullmatch=True) | st.sampled_from(
    ["w\u00f6rter", "\u8a9e"]
)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, bytes]:
    """Paths below a folder, no two of them one file anywhere and none a folder of another."""
    names = draw(st.lists(parts, unique_by=str.casefold, max_size=6))
    return {f"zz_game/{name}/file.txt": draw(st.binary(max_size=200)) for name in names}


@settings(max_examples=100, deadline=None)
@given(trees(), st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]), st.booleans(), st.booleans())
def test_good_archives_of_the_standard_library_are_taken(tree, method, zip64, executable):
    files = samples.with_record({**samples.wheel_files(), **tree})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as opened:
        for path, content in files.items():
            info = zipfile.ZipInfo(path)
            info.compress_type, info.external_attr = method, (0o100755 if executable else 0o100644) << 16
            with opened.open(info, "w", force_zip64=zip64) as member:
                member.write(content)
    wheel = archives.check(io.BytesIO(out.getvalue()), WHEEL_NAME)
    is_read_alike(out.getvalue(), wheel)
    sources = {**samples.sdist_files(), **{f"{FOLDER}/{path}": content for path, content in tree.items()}}
    data = samples.sdist(sources)
    sdist = archives.check(io.BytesIO(data), SDIST_NAME)
    is_read_alike(data, sdist)
    archives.check_pair(wheel, sdist)
