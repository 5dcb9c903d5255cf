"""`Metadata`: what METADATA of a wheel and PKG-INFO of an sdist say, in the terms of the core metadata standard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from packaging import metadata as core
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from verifiers.archives.limits import KIB, Limits
from verifiers.archives.names import canonical_version, refuse_name
from verifiers.archives.refusal import ArchiveRefused, shown

MAX_SUMMARY = 512  # characters
MAX_VALUE = 4 * KIB  # characters of one header; not of the older free licence text
MAX_HEADERS = 2000
MAX_HEADER_BYTES = 128 * KIB  # all headers together, without the readme
MAX_REQUIREMENTS = 500

# may go over several lines; all others are one line, whatever a reader takes for the end of a line
_MAY_BE_FOLDED = {"description", "license", "keywords", "author", "maintainer"}
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9_-]*:|[ \t]")
_ADDRESS = re.compile(r'(?:"[^"]*"|[^,"])+')  # a name in quotes may have a comma in it
_CLASSIFIED_LICENSE = "License :: "


@dataclass(frozen=True, slots=True)
class Metadata:
    """Absent is `None` or an empty tuple; texts are as their author wrote them."""

    name: str
    version: str  # canonical, PEP 440
    metadata_version: str
    summary: str | None = None
    description: str | None = None  # the readme
    description_content_type: str | None = None
    requires_python: str | None = None  # canonical
    requires_dist: tuple[str, ...] = ()  # canonical, in the author's order
    license: str | None = None  # SPDX expression, or the older free text
    license_expression: str | None = None  # SPDX, canonical
    license_files: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    classifiers: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()  # "Ada <ada@example.com>", "Ada" or an address; maintainers after authors
    project_urls: tuple[tuple[str, str], ...] = ()  # (label, URL); the home page is among them
    provides_extra: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()  # fields that only a build settles, in lower case
    raw: bytes = field(default=b"", repr=False)  # the file, byte for byte

    @property
    def normalized(self) -> str:
        return canonicalize_name(self.name)


def parse_metadata(raw: bytes, limits: Limits) -> Metadata:
    """Raises ArchiveRefused with `metadata_too_large`, `metadata_invalid`, `direct_url`, or what a name or version is
    refused with."""
    _refuse_hidden_lines(raw)
    fields = _fields(raw)
    _refuse_long(fields)
    parsed = _validated(fields)
    refuse_name(parsed.name)
    urls = dict(parsed.project_urls or {})
    if parsed.home_page:
        urls.setdefault("Homepage", parsed.home_page)
    return Metadata(
        name=parsed.name,
        version=canonical_version(str(parsed.version)),
        metadata_version=parsed.metadata_version,
        summary=parsed.summary,
        description=parsed.description,
        description_content_type=parsed.description_content_type,
        requires_python=str(parsed.requires_python) if parsed.requires_python is not None else None,
        requires_dist=_requirements(parsed.requires_dist or [], limits),
        license=parsed.license_expression or parsed.license,
        license_expression=parsed.license_expression,
        license_files=tuple(parsed.license_files or ()),
        keywords=_keywords(parsed.keywords or []),
        classifiers=tuple(parsed.classifiers or ()),
        authors=(*_people(parsed.author, parsed.author_email), *_people(parsed.maintainer, parsed.maintainer_email)),
        project_urls=tuple(urls.items()),
        provides_extra=tuple(parsed.provides_extra or ()),
        dynamic=tuple(parsed.dynamic or ()),
        raw=raw,
    )


def _refuse_hidden_lines(raw: bytes) -> None:
    """A lone CR, NUL and the like end a line for some readers only: a header could hide behind one. A line that is no
    header ends the headers for some, and not for others."""
    headers = re.split(rb"\r?\n\r?\n", raw, maxsplit=1)[0].rstrip(b"\r\n")
    if _CONTROL.search(headers):
        raise ArchiveRefused("metadata_invalid", "the metadata has a control character in its headers")
    if len(headers) > MAX_HEADER_BYTES or headers.count(b"\n") > MAX_HEADERS:
        raise ArchiveRefused(
            "metadata_too_large",
            f"the headers of the metadata have more than {MAX_HEADERS:,} lines or {MAX_HEADER_BYTES:,} bytes",
        )
    if headers[:1] in (b" ", b"\t"):
        raise ArchiveRefused("metadata_invalid", "the metadata begins with the rest of a line")
    for line in headers.split(b"\n"):
        # Content-Type would make the mail parser take the readme apart
        if not _HEADER.match(line) or line[:8].lower() == b"content-":
            raise ArchiveRefused("metadata_invalid", f"the metadata has a line that is no field of it: {shown(line)}")
    if b"\0" in raw:
        raise ArchiveRefused("metadata_invalid", "the readme in the metadata has a NUL in it")


def _fields(raw: bytes) -> core.RawMetadata:
    try:
        fields, unknown = core.parse_email(raw)
    except Exception as error:  # the standard library's mail parser raises whatever it meets
        raise ArchiveRefused("metadata_invalid", f"the metadata cannot be read: {type(error).__name__}") from None
    if unknown:
        names = ", ".join(sorted(shown(name, 40) for name in unknown)[:5])
        raise ArchiveRefused(
            "metadata_invalid", f"the metadata has fields that are unknown, said twice or not in UTF-8: {names}"
        )
    # written by setuptools before 77 into versions that do not have it; installers ignore it there
    if fields.get("metadata_version") in ("2.1", "2.2", "2.3"):
        fields.pop("license_files", None)
        if "dynamic" in fields:
            fields["dynamic"] = [name for name in fields["dynamic"] if name.lower() != "license-file"]
    return fields


def _validated(fields: core.RawMetadata) -> core.Metadata:
    try:
        parsed = core.Metadata.from_raw(fields)
    except Exception as error:
        errors = getattr(error, "exceptions", [error])
        reasons = "; ".join(sorted(shown(str(one), 200)[1:-1] for one in errors)[:3]) or type(error).__name__
        raise ArchiveRefused("metadata_invalid", f"the metadata breaks its standard: {reasons}") from None
    if parsed.license is not None and parsed.license_expression is not None:
        raise ArchiveRefused("metadata_invalid", "License and License-Expression exclude each other. Keep the second")
    if parsed.license_expression is not None and any(
        classifier.startswith(_CLASSIFIED_LICENSE) for classifier in parsed.classifiers or ()
    ):
        raise ArchiveRefused("metadata_invalid", "License-Expression excludes classifiers that begin with 'License ::'")
    return parsed


def _refuse_long(fields: core.RawMetadata) -> None:
    if len(fields.get("summary", "")) > MAX_SUMMARY:
        raise ArchiveRefused("metadata_too_large", f"the summary has more than {MAX_SUMMARY} characters")
    if len(fields.get("requires_dist", [])) > MAX_REQUIREMENTS:
        raise ArchiveRefused("metadata_too_large", f"there are more than {MAX_REQUIREMENTS} requirements")
    for key, value in cast("Mapping[str, Any]", fields).items():
        for text in _texts(value):
            if key not in _MAY_BE_FOLDED and _LINE_END.search(text):
                raise ArchiveRefused("metadata_invalid", f"{shown(key)} goes over several lines: {shown(text)}")
            if key not in ("description", "license") and len(text) > MAX_VALUE:
                raise ArchiveRefused(
                    "metadata_too_large", f"a value of {shown(key)} has more than {MAX_VALUE:,} characters"
                )


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in cast("dict[str, str]", value).items() for text in pair]
    return cast("list[str]", value)


def _requirements(found: list[Requirement], limits: Limits) -> tuple[str, ...]:
    direct = [str(requirement) for requirement in found if requirement.url]
    if direct and not limits.direct_urls:
        raise ArchiveRefused(
            "direct_url",
            f"the requirement {shown(direct[0])} names an address instead of a version, past every index. "
            "Publish that package and require it by name",
        )
    return tuple(str(requirement) for requirement in found)


def _keywords(found: list[str]) -> tuple[str, ...]:
    """One a keyword. Older tools wrote them with spaces only."""
    words = found[0].split() if len(found) == 1 else found
    return tuple(" ".join(word.split()) for word in words if word.strip())


def _people(names: str | None, addresses: str | None) -> tuple[str, ...]:
    """Build tools write "Ada" and "ada@example.com" in two fields, or both in the second, or the name in both."""
    people = [" ".join(one.split()) for one in _ADDRESS.findall(addresses or "") if one.strip()]
    alone = [" ".join(one.split()) for one in (names or "").split(",") if one.strip()]
    if len(people) == len(alone) == 1 and "<" not in people[0]:
        return (f"{alone[0]} <{people[0]}>",)
    known = {one.partition(" <")[0] for one in people}
    return (*people, *(name for name in dict.fromkeys(alone) if name not in known))


def canonical_requirements(texts: Iterable[str]) -> frozenset[str]:
    """Requirements in one spelling each, so that two lists can be compared. Raises ArchiveRefused for what is none."""
    texts = list(texts)
    if len(texts) > MAX_REQUIREMENTS or any(len(text) > MAX_VALUE for text in texts):
        raise ArchiveRefused("metadata_too_large", "there are too many requirements, or too long ones")
    try:
        return frozenset(_canonical(Requirement(text)) for text in texts)
    except (InvalidRequirement, RecursionError) as error:
        raise ArchiveRefused("metadata_invalid", f"a requirement cannot be read: {shown(str(error))}") from None


def _canonical(requirement: Requirement) -> str:
    requirement.name = canonicalize_name(requirement.name)
    requirement.extras = {canonicalize_name(extra) for extra in requirement.extras}
    return str(requirement)


def canonical_python(text: str | None) -> str | None:
    """`Requires-Python` in one spelling; `None` when nothing is required. Raises ArchiveRefused for what is none."""
    try:
        if text is not None and len(text) > MAX_VALUE:
            raise InvalidSpecifier
        return (str(SpecifierSet(text)) or None) if text is not None else None
    except InvalidSpecifier:
        raise ArchiveRefused("metadata_invalid", f"{shown(text)} is no bound on Python's version") from None
