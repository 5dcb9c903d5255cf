"""`deep-research`: questions whose answers lie several pages apart; the model searches, opens, finds and finishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import verifiers as vf
from deep_research.arguments import check_arguments
from deep_research.own_questions import own_rows
from deep_research.provider import Document, Hit, PageError, ProviderFault, SearchProvider
from deep_research.questions import made_rows, world_named
from deep_research.reference import reference_reply
from deep_research.research_env import ResearchEnv
from deep_research.rubric import ResearchRubric

__all__ = [
    "Document", "Hit", "PageError", "ProviderFault", "SearchProvider", "load_environment", "reference_reply",
]  # fmt: skip

DATASET = "zai-org/DeepDive"
COLUMNS = ("question", "answer")
BLOCKED = ("huggingface.co", "hf.co", "hf-mirror.com")  # where the questions stand with their answers
SYSTEM_PROMPT = """\
Answer the question by research. Search for pages, open them, find passages in them, and follow what they say from one \
to the next; do not answer from memory what you can look up. A tool may fail: then try again or go another way.
When you know the answer, call finish with the answer alone: a name, a number or a few words."""


def load_environment(
    dataset: str = "worlds",
    data: str | None = None,
    train_data: str | None = None,
    pages: str | None = None,
    split: str = "qa_rl",
    eval_split: str = "qa_sft",
    num_train_examples: int = 1000,
    num_eval_examples: int = 100,
    seed: int | None = 0,
    min_hops: int = 2,
    max_hops: int = 4,
    max_turns: int = 32,
    page_chars: int = 6000,
    results: int = 10,
    provider: Callable[[dict[str, Any]], SearchProvider] | None = None,
    search_key_var: str = "SERPER_API_KEY",
    search_url: str | None = None,
    blocked_hosts: Sequence[str] = BLOCKED,
    allow_internal: bool = False,
    judge_model: str | None = None,
    judge_base_url: str | None = None,
    judge_key_var: str = "OPENAI_API_KEY",
    judge_client: Any = None,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One question, as many calls of the tools as it takes, one answer. See the README for the arguments."""
    check_arguments(dict(locals()))
    if dataset == "worlds" and data is None:
        hops = min_hops, max_hops
        train = lambda: made_rows("train", num_train_examples, seed or 0, hops)  # noqa: E731
        evaluation = lambda: made_rows("eval", num_eval_examples, seed or 0, hops)  # noqa: E731
        connect = provider or world_search(results)
    else:
        train = cache(lambda: public_rows(split, train_data or data, num_train_examples, seed))
        evaluation = cache(lambda: public_rows(eval_split, data, num_eval_examples, seed))
        if provider is None and pages is None:
            vf.ensure_keys([search_key_var])
        connect = provider or (
            pages_search(pages, results)
            if pages is not None
            else web_search(search_key_var, search_url, results, blocked_hosts, allow_internal)
        )
    judge: dict[str, Any] = {}
    if judge_model is not None:
        at = vf.ClientConfig(api_base_url=judge_base_url, api_key_var=judge_key_var)
        judge = {"judge_model": judge_model, "judge_client": judge_client or at}
        judge["judge_sampling_args"] = {"temperature": 0}
    return ResearchEnv(
        connect=connect,
        page_chars=page_chars,
        dataset=train,
        eval_dataset=evaluation,
        system_prompt=system_prompt,
        rubric=ResearchRubric(asks_judge=judge_model is not None, **judge),
        max_turns=max_turns,
    )


def public_rows(split: str, data: str | None, count: int, seed: int | None) -> list[dict[str, Any]]:
    """Rows of DeepDive, or of a file in its schema; a column `aliases` (texts that are as right) may be there too."""
    source = vf.DataSource(DATASET, split=split, columns=COLUMNS)
    rows = source.rows(data=data, own=own_rows(), num=count, seed=seed)
    return [_public_row(row, number) for number, row in enumerate(rows, 1)]


def _public_row(row: dict[str, Any], number: int) -> dict[str, Any]:
    question, answer = row["question"], row["answer"]
    aliases: Any = row.get("aliases") or []
    if not all(isinstance(text, str) and text.strip() for text in (question, answer)):
        raise vf.DatasetError(f"{row['source']}, row {number}: question and answer are texts that are not empty")
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in cast("list[Any]", aliases)):
        raise vf.DatasetError(f"{row['source']}, row {number}: aliases is a list of texts, got {aliases!r:.60}")
    return {"question": question, "answer": answer, "info": {"source": row["source"], "aliases": aliases}}


def world_search(results: int) -> Callable[[dict[str, Any]], SearchProvider]:
    """The pages of each row's own world; an index is built when the first row of its world is asked."""

    @lru_cache(maxsize=256)
    def index(world: str) -> SearchProvider:
        from deep_research.local_index import LocalIndex
        from deep_research.pages import pages_of

        return LocalIndex(pages_of(world_named(world)), results)

    return lambda info: index(info["world"])


def pages_search(path: str, results: int) -> Callable[[dict[str, Any]], SearchProvider]:
    """The pages of a file with `title`, `text` and, if wanted, `url`."""

    @cache
    def index() -> SearchProvider:
        from deep_research.local_index import LocalIndex

        rows = vf.DataSource(Path(path).name, columns=("title", "text")).rows(data=path)
        found = [Document(str(r.get("url") or r["title"]), str(r["title"]), str(r["text"])) for r in rows]
        if len({page.url for page in found}) < len(found) or not found:
            raise vf.DatasetError(f"{path} holds {len(found)} pages; there must be some, each with an url of its own")
        return LocalIndex(found, results)

    return lambda info: index()


def web_search(
    key_var: str, url: str | None, results: int, blocked: Sequence[str], allow_internal: bool
) -> Callable[[dict[str, Any]], SearchProvider]:
    """Serper, or what speaks its language at `url`; pages are fetched from here."""
    import os

    from deep_research.addresses import AddressGuard
    from deep_research.serper import SERPER_URL, SearchService, Serper
    from deep_research.web_pages import WebPages

    service = SearchService(os.environ.get(key_var, ""), url or SERPER_URL, results)
    guard = AddressGuard(lambda address: True, ports=None) if allow_internal else AddressGuard()
    return lambda info: Serper(service, WebPages(guard, blocked))
