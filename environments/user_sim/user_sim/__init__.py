"""`user_sim`: an assistant with tools and a policy serves a simulated customer."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import verifiers as vf
from user_sim.desk import DeskEnv, database_right, everything_told, task_done, user_turns
from user_sim.flights import FLIGHTS
from user_sim.shop import SHOP
from user_sim.task import Domain

DOMAINS: dict[str, Domain] = {domain.name: domain for domain in (SHOP, FLIGHTS)}


def load_environment(
    domain: str = "all",
    num_train_examples: int = 500,
    num_eval_examples: int = 50,
    seed: int = 0,
    max_turns: int = 30,
    user_model: str | None = None,
    user_client: Any = None,
    user_sampling_args: Mapping[str, Any] | None = None,
) -> vf.Environment:
    """A conversation between the model, its tools and a customer. See the README for the arguments."""
    if domain != "all" and domain not in DOMAINS:
        raise ValueError(f"domain={domain!r}: give 'all' or one of {', '.join(DOMAINS)}")
    counts = {"num_train_examples": num_train_examples, "num_eval_examples": num_eval_examples, "max_turns": max_turns}
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed={seed!r}: give a whole number")
    if user_client is not None and user_model is None:
        raise ValueError("user_client is given without user_model: name the model that plays the customer")
    chosen = list(DOMAINS.values()) if domain == "all" else [DOMAINS[domain]]
    if min(num_train_examples, num_eval_examples) < len(chosen):
        raise ValueError(f"domain='all' needs at least {len(chosen)} examples of each split, one for each domain")

    def desk(number: int, one: Domain) -> vf.Environment:
        def rows(split: str, count: int) -> Callable[[], list[dict[str, Any]]]:
            share = count // len(chosen) + (number < count % len(chosen))
            return lambda: [make_row(one, split, seed, index) for index in range(share)]

        return DeskEnv(
            one,
            user_model=user_model,
            user_client=user_client,
            user_sampling_args=user_sampling_args,
            dataset=rows("train", num_train_examples),
            eval_dataset=rows("eval", num_eval_examples),
            system_prompt=one.policy,
            rubric=vf.Rubric([task_done, database_right, everything_told, user_turns], [1.0, 0.0, 0.0, 0.0]),
            max_turns=max_turns,
        )

    desks = [desk(number, one) for number, one in enumerate(chosen)]
    return desks[0] if len(desks) == 1 else vf.EnvGroup(desks, env_names=[one.name for one in chosen])


def make_row(domain: Domain, split: str, seed: int, index: int) -> dict[str, Any]:
    """One customer with a database of its own; the same for the same arguments, and no other row plays a part."""
    rng = random.Random(f"user-sim/{domain.name}/{split}/{seed}/{index}")
    database = domain.make_database(rng)
    task = domain.make_task(rng, database)
    after = domain.after(copy.deepcopy(database), task.actions)
    info = {
        "kind": task.kind,
        "opening": task.opening,
        "facts": task.facts,
        "actions": task.actions,
        "outputs": task.outputs,
        "database": database,
        "database_after": after,
        "source": "generated",
    }
    return {"question": task.opening, "info": json.dumps(info)}


def reference_reply(messages: vf.Messages, row: Mapping[str, Any]) -> Any:
    """The right calls one after the other, then what has to be told; `vf-validate` asks for it."""
    info = json.loads(row["info"]) if isinstance(row["info"], str) else row["info"]
    done = sum(message["role"] == "tool" for message in messages)
    if done < len(info["actions"]):
        call = info["actions"][done]
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        return {"content": None, "tool_calls": [{"id": f"call_{done}", "type": "function", "function": function}]}
    told = " and ".join(output["value"] for output in info["outputs"])
    return f"That is done. What you wanted to know: {told}." if told else "That is done, as you wished."
