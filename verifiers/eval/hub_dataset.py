"""Saving a run as a data set on the Hugging Face hub (`-H`): only when asked, with the user's own token."""

from __future__ import annotations

from pathlib import Path

from verifiers.errors import SetupError, one_line
from verifiers.eval.flat_rows import flat_row
from verifiers.results import load_results


def check_token() -> None:
    """Raises SetupError when there is no token to push with: better now than after the run."""
    from huggingface_hub import get_token

    if get_token() is None:
        raise SetupError("-H pushes to the Hugging Face hub, and there is no token. Try: export HF_TOKEN=…, or drop -H")


def push(folder: Path, name: str) -> None:
    """Pushes one row a rollout of the saved run in `folder` to the data set `name`, private when it is new.

    What is pushed is what was saved, so that nothing redacted there comes back here. Raises SetupError when the hub
    cannot be reached or refuses.
    """
    from datasets import Dataset

    rows = Dataset.from_list([flat_row(record) for record in load_results(folder)])
    try:
        rows.push_to_hub(name, private=True)
    except Exception as error:  # whatever the hub's client raises: network, rights, name
        raise SetupError(f"the run is saved, but was not pushed to '{name}': {one_line(error, 200)}") from error
