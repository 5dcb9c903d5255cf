"""What a wheel and an sdist of an environment must be: the rules that a publisher and a hub go by alike."""

from verifiers.archives.checked import Checked
from verifiers.archives.checking import check, check_sdist, check_wheel, read_member
from verifiers.archives.environment import DatasetDeclaration, EnvironmentDeclaration, EvalDeclaration
from verifiers.archives.form import check_form
from verifiers.archives.limits import Limits
from verifiers.archives.members import Member, content_hash
from verifiers.archives.metadata import Metadata
from verifiers.archives.names import FileName, Kind, canonical_version, file_name_of, refuse_name, ultra_normalised
from verifiers.archives.pair import check_pair
from verifiers.archives.refusal import ArchiveRefused

__all__ = [
    "ArchiveRefused", "Checked", "DatasetDeclaration", "EnvironmentDeclaration", "EvalDeclaration", "FileName", "Kind",
    "Limits", "Member", "Metadata", "canonical_version", "check", "check_form", "check_pair", "check_sdist",
    "check_wheel", "content_hash", "file_name_of", "read_member", "refuse_name", "ultra_normalised",
]  # fmt: skip
