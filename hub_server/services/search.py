"""Full text over environments: owner, name, summary, tags, README. FTS5 on SQLite, tsvector on PostgreSQL.

Both are handed words that were cut out of the text here, so that the two split text alike and no operator of theirs is
ever reached. Every word asked for must begin some word of the environment; names count more than READMEs.

A score depends on the query and on that one environment alone. One that weighs a word by how many others use it (bm25)
would let anybody with environments of their own see by their order, and by their scores, what hidden ones contain.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from sqlalchemy import CTE, Connection, Float, TextClause, column, delete, insert, text
from sqlalchemy.orm import Session
from sqlalchemy.types import BigInteger

from hub_server.models import Account, Facet, Project, Release

MAX_QUERY_LETTERS = 400
MAX_QUERY_WORDS = 12
MAX_WORD_LETTERS = 40
MIN_PREFIX_LETTERS = 3
MAX_README_LETTERS = 50_000
MAX_FACET_LETTERS = 100
COLUMNS = ("owner", "name", "summary", "tags", "readme")
_WORD = re.compile(r"[^\W_]+")

_SQLITE = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS project_search USING fts5({', '.join(COLUMNS)}, "
    "tokenize = 'unicode61 remove_diacritics 0', prefix = '3 4')",
)
_POSTGRESQL = (
    "CREATE TABLE IF NOT EXISTS project_search (project_id BIGINT PRIMARY KEY, document TSVECTOR NOT NULL)",
    "CREATE INDEX IF NOT EXISTS project_search_document ON project_search USING gin (document)",
)
_COUNTS = {"name": 10, "tags": 6, "summary": 4, "owner": 3}  # what a word adds to the score on SQLite; a README's is 0
_FOUND = 1_000_000.0  # what a row with all the words counts, so that no sum of the others comes near
MAX_RANKED_WORDS = 4  # of a query on SQLite: each costs four look-ups; all words are looked for
_TS_RANK = "-ts_rank(document, asked, 1)"  # knows nothing of other documents
_WEIGHTS = {"owner": "C", "name": "A", "summary": "B", "tags": "B", "readme": "D"}  # of PostgreSQL


def create_search(connection: Connection) -> None:
    """The tables that SQLAlchemy does not know; called by the migrations."""
    for statement in _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL:
        connection.execute(text(statement))


def drop_search(connection: Connection) -> None:
    connection.execute(text("DROP TABLE IF EXISTS project_search"))


# Writing


def index_project(session: Session, project: Project) -> None:
    """Brings search and facets up to date with a project. To be called in the transaction that changed its newest
    release, its owner or its name, or deleted it."""
    session.flush()
    remove_project(session, project.id)
    release = None if project.latest_release_id is None else session.get(Release, project.latest_release_id)
    if project.deleted_at is not None or release is None:
        return
    owner = session.get_one(Account, project.owner_id)
    texts = {
        "owner": f"{owner.name} {owner.display_name}",
        "name": project.name,
        "summary": project.summary,
        "tags": " ".join([*project.tags, project.task_type]),
        "readme": release.readme_text[:MAX_README_LETTERS],
    }
    _insert(session, project.id, {name: " ".join(words(value)) for name, value in texts.items()})
    facets = [("tag", tag) for tag in project.tags]
    facets += [("license", license_of(release)), ("task_type", project.task_type)]
    rows = dict.fromkeys((kind, value[:MAX_FACET_LETTERS]) for kind, value in facets if value)
    if rows:
        values = [{"kind": kind, "value": value, "project_id": project.id} for kind, value in rows]
        session.execute(insert(Facet), values)


def license_of(release: Release) -> str:
    """The licence's expression (SPDX); of an older package what it says in one line, if that is short."""
    said = release.metadata_json.get("license_expression") if release.metadata_json else None
    return str(said or release.license).strip().partition("\n")[0][:MAX_FACET_LETTERS]


def remove_project(session: Session, project_id: int) -> None:
    key = "rowid" if _is_sqlite(session) else "project_id"
    session.execute(text(f"DELETE FROM project_search WHERE {key} = :id"), {"id": project_id})
    session.execute(delete(Facet).where(Facet.project_id == project_id))


def _insert(session: Session, project_id: int, texts: dict[str, str]) -> None:
    if _is_sqlite(session):
        values = ", ".join(f":{name}" for name in COLUMNS)
        statement = f"INSERT INTO project_search (rowid, {', '.join(COLUMNS)}) VALUES (:id, {values})"
    else:
        vectors = " || ".join(f"setweight(to_tsvector('simple', :{name}), '{_WEIGHTS[name]}')" for name in COLUMNS)
        statement = f"INSERT INTO project_search (project_id, document) VALUES (:id, {vectors})"
    session.execute(text(statement), {"id": project_id, **texts})


# Asking


def words(value: str) -> list[str]:
    """Runs of letters and digits, in lower case and one Unicode form, without accents, cut off at 40 letters.

    >>> words("Math-Env, GSM8K & ünï_code")
    ['math', 'env', 'gsm8k', 'uni', 'code']
    """
    plain = unicodedata.normalize("NFKD", value.casefold())
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return [word[:MAX_WORD_LETTERS] for word in _WORD.findall(plain)]


@dataclass(frozen=True, slots=True)
class Matching:
    """The environments that a query fits: a table with `project_id` and `score`, of which lower is better."""

    table: CTE


def matching(session: Session, query: str, *, is_ranked: bool = True) -> Matching | None:
    """`None`: there is no word in the query. It is read up to 400 letters and 12 words: no text costs more. Without
    `is_ranked` all scores are 0, which costs a third."""
    asked = words(query[:MAX_QUERY_LETTERS])
    if len(query) > MAX_QUERY_LETTERS and len(asked) > 1:
        asked.pop()  # the cut may have gone through it
    wanted = list(dict.fromkeys(asked))[:MAX_QUERY_WORDS]
    if not wanted:
        return None
    if _is_sqlite(session):
        statement = _on_sqlite(wanted, wanted[:MAX_RANKED_WORDS] if is_ranked else [])
    else:
        statement = text(
            f"SELECT project_id, ({_TS_RANK if is_ranked else 0.0})::float8 AS score "
            "FROM project_search, to_tsquery('simple', :words) AS asked WHERE document @@ asked"
        ).bindparams(words=" & ".join(f"{word}{_star(word, ':*')}" for word in wanted))
    scored = statement.columns(column("project_id", BigInteger), column("score", Float)).cte("found")
    return Matching(scored.prefix_with("MATERIALIZED"))  # else a score is computed each time it is mentioned


def _on_sqlite(wanted: list[str], ranked: list[str]) -> TextClause:
    """One look-up for all words, and one for each that counts in each column where it does."""
    terms = [f'"{word}"{_star(word)}' for word in wanted]
    bound = {"words": " AND ".join(terms)}
    rows = [f"SELECT rowid AS id, {_FOUND} AS counts FROM project_search WHERE project_search MATCH :words"]
    for number, term in enumerate(terms[: len(ranked)]):
        for name, counts in _COUNTS.items():
            bound[f"{name}_{number}"] = f"{name} : {term}"
            rows.append(f"SELECT rowid, {counts} FROM project_search WHERE project_search MATCH :{name}_{number}")
    together = f"SELECT id AS project_id, {_FOUND} - sum(counts) AS score FROM ({' UNION ALL '.join(rows)}) GROUP BY id"
    return text(f"{together} HAVING sum(counts) >= {_FOUND}").bindparams(**bound)


def _star(word: str, star: str = "*") -> str:
    """Words of one or two letters begin too many others: they are looked for as they are."""
    return star if len(word) >= MIN_PREFIX_LETTERS else ""


def _is_sqlite(session: Session) -> bool:
    return session.get_bind().dialect.name == "sqlite"
