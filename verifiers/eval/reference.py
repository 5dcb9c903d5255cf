"""`-m reference`: no model, but the right answers, as the package's author declares them or as the rows have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from verifiers.clients.scripted import ScriptedClient
from verifiers.errors import ConfigError
from verifiers.eval import replies, row_checks
from verifiers.eval.declared import declared_of
from verifiers.eval.validate import Checker
from verifiers.run import Job, Run

if TYPE_CHECKING:
    from verifiers.envs.environment import Environment

Policy = Callable[[list[Any], Any], Any]  # messages so far, row → a reply


async def reference_policy(env: Environment, env_id: str) -> Policy:
    """`[tool.verifiers.validate] reference`; without one, each row's answer in the form that is paid best.

    Raises ConfigError where there is neither.
    """
    declared = declared_of(env_id)
    policy = declared.policy()
    if policy is not None:
        return policy
    rows = next(filter(None, row_checks.rows_of(env).values()), [])
    answered = [row for row in rows if replies.answer_text(row)]
    if not answered:
        raise ConfigError(
            f"-m reference: the rows of {env_id} have no answers, and it declares no policy. Its author can, by "
            'reference = "module:function" in [tool.verifiers.validate]'
        )
    _, form = await Checker(env, declared, None, replies.ROWS_TO_CHOOSE).best_form(answered)
    return lambda messages, row: form(replies.answer_text(row))


class ReferenceRun(Run):
    """A `Run` in which every reply is what `policy` says for the row."""

    def __init__(self, *arguments: Any, policy: Policy, **options: Any) -> None:
        self._policy = policy
        super().__init__(*arguments, **options)

    def _client_for(self, job: Job) -> ScriptedClient:
        return ScriptedClient(
            lambda request: self._policy(list(request.messages), job.row), message_type=self.env.message_type
        )
