"""`UploadForm`: the fields that an upload tool sends along with a file. It must agree with it."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from verifiers.archives.checked import Checked
from verifiers.archives.metadata import canonical_python, canonical_requirements
from verifiers.archives.refusal import ArchiveRefused, shown

_FILE_TYPES = {"wheel": "bdist_wheel", "sdist": "sdist"}
_ONCE = ("protocol_version", "metadata_version", "name", "version", "filetype", "pyversion", "requires_python")
_DIGESTS = ("sha256_digest", "blake2_256_digest", "md5_digest")


def check_form(checked: Checked, form: Mapping[str, Sequence[str]]) -> None:
    """`form` has every value of each field, in order. Raises ArchiveRefused with `form_invalid`, `form_mismatch`,
    `digest_missing` or `digest_mismatch`.

    Looked at: `protocol_version`, `metadata_version`, `name`, `version`, `filetype`, `pyversion`, `requires_dist`,
    `requires_python` and the digests. Other fields repeat what the file says and are not read.
    """
    for field in (*_ONCE, *_DIGESTS):
        if len(form.get(field, ())) > 1:
            raise ArchiveRefused("form_invalid", f"the field {field} is there {len(form[field])} times")
    _check_digests(checked, form)
    if _one(form, "protocol_version") not in (None, "1"):
        raise ArchiveRefused("form_invalid", f"protocol_version is 1, not {shown(_one(form, 'protocol_version'))}")
    _refuse_unlike("filetype", _needed(form, "filetype"), _FILE_TYPES[checked.kind])
    _refuse_unlike("metadata_version", _needed(form, "metadata_version"), checked.metadata.metadata_version)
    name = _needed(form, "name")
    if canonicalize_name(name) != checked.normalized:
        raise _mismatch("name", name, checked.project)
    _check_version(_needed(form, "version"), checked.version)
    if checked.kind == "wheel":
        _refuse_unlike("pyversion", _needed(form, "pyversion"), checked.name.python_tag)
    elif _one(form, "pyversion") not in (None, "source"):
        raise _mismatch("pyversion", _one(form, "pyversion"), "source")
    _check_bounds(checked, form)


def _check_digests(checked: Checked, form: Mapping[str, Sequence[str]]) -> None:
    true = {"sha256_digest": checked.sha256, "blake2_256_digest": checked.blake2_256, "md5_digest": checked.md5}
    given = {field: _one(form, field) for field in _DIGESTS}
    if not any(given.values()):
        raise ArchiveRefused("digest_missing", f"one of the fields {', '.join(_DIGESTS)} is needed")
    for field, value in given.items():
        if value and not hmac.compare_digest(value.strip().lower().encode(), true[field].encode()):
            raise ArchiveRefused(
                "digest_mismatch", f"{field} is {shown(value)}; the file that arrived has {true[field]}. Send it again"
            )


def _check_version(given: str, true: str) -> None:
    try:
        same = len(given) <= 100 and Version(given) == Version(true)
    except InvalidVersion:
        same = False
    if not same:
        raise _mismatch("version", given, true)


def _check_bounds(checked: Checked, form: Mapping[str, Sequence[str]]) -> None:
    given = canonical_requirements(value for value in form.get("requires_dist", ()) if value.strip())
    true = canonical_requirements(checked.metadata.requires_dist)
    if given != true:
        odd = sorted(given ^ true)[0]
        raise ArchiveRefused(
            "form_mismatch", f"requires_dist of the form and of the file differ, for one in {shown(odd)}"
        )
    python = _one(form, "requires_python")
    if canonical_python(python or None) != canonical_python(checked.metadata.requires_python):
        raise _mismatch("requires_python", python, checked.metadata.requires_python)


def _one(form: Mapping[str, Sequence[str]], field: str) -> str | None:
    """The field's value; `None` when it is absent or empty."""
    values = form.get(field, ())
    return values[0].strip() or None if values else None


def _needed(form: Mapping[str, Sequence[str]], field: str) -> str:
    value = _one(form, field)
    if value is None:
        raise ArchiveRefused("form_invalid", f"the field {field} is missing")
    return value


def _refuse_unlike(field: str, given: str, true: str) -> None:
    if given != true:
        raise _mismatch(field, given, true)


def _mismatch(field: str, given: object, true: object) -> ArchiveRefused:
    return ArchiveRefused("form_mismatch", f"{field} is {shown(given)} in the form and {shown(true)} in the file")
