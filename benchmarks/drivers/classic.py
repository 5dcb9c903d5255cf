"""Driver for any library that imports as `verifiers` with the classic environment API.

Uses only: vf.SingleTurnEnv / MultiTurnEnv / ToolEnv / MathRubric / Rubric and
`await env.evaluate(client, model, ...)`. Keyword arguments that a version doesn't name in
its signature are left out, and results are read in either shape (a list of outputs, or
columns), so the same file drives upstream's releases and ours.
"""

import asyncio
import inspect
import os
import time

import measure
from measure import role_of, text_of

os.environ.setdefault("VF_LOG_LEVEL", "CRITICAL")
os.environ["BENCH_KEY"] = "none"

import verifiers as vf


def lookup(name, *modules):
    value = getattr(vf, name, None)
    for m in modules:
        if value is None:
            try:
                value = getattr(__import__(m, fromlist=[name]), name, None)
            except ImportError:
                pass
    return value


def named(func):
    """Parameter names, or None when any keyword is taken and none is named."""
    return set(inspect.signature(func).parameters)


def make_client(a):
    cls = lookup("ClientConfig", "verifiers.types")
    if cls is not None and a.options.get("client") != "openai":
        known = set(
            getattr(cls, "model_fields", None)
            or getattr(cls, "__dataclass_fields__", None)
            or getattr(cls, "__struct_fields__", None)
            or named(cls)
        )
        want = {"api_base_url": a.base_url, "api_key_var": "BENCH_KEY", "base_url": a.base_url}
        if a.timeout:
            want["timeout"] = a.timeout
        if a.retries >= 0:
            want["max_retries"] = a.retries
        return cls(**{k: v for k, v in want.items() if k in known})
    from openai import AsyncOpenAI

    kw = {}
    if a.timeout:
        kw["timeout"] = a.timeout
    if a.retries >= 0:
        kw["max_retries"] = a.retries
    client = AsyncOpenAI(base_url=a.base_url, api_key="none", **kw)
    wrap = getattr(vf, "OpenAIChatCompletionsClient", None)
    return wrap(client) if wrap is not None else client


def exact(completion, answer, **kwargs):
    last = completion if isinstance(completion, str) else completion[-1] if completion else ""
    return 1.0 if text_of(last) == answer else 0.0


def starts(completion, answer, **kwargs):
    last = completion if isinstance(completion, str) else completion[-1] if completion else ""
    return 1.0 if role_of(last) == "assistant" and text_of(last).startswith(answer) else 0.0


def exact_slowly(completion, answer, **kwargs):
    """A synchronous reward that takes 10 ms of waiting, as one that reads a file or asks a local service does."""
    time.sleep(0.010)
    return exact(completion, answer)


class Turns(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "Good. " + measure.FILL * 2 + "Now say it once more."}]


def make_env(a):
    data = measure.rows(a.n, a.scenario)
    try:
        from datasets import Dataset, disable_progress_bars

        disable_progress_bars()
        data = Dataset.from_list(data)
    except ImportError:
        pass
    if a.scenario == "S3":
        return Turns(dataset=data, rubric=vf.Rubric(funcs=[starts], weights=[1.0]), max_turns=10)
    if a.scenario in ("S4", "S10"):
        reward = exact_slowly if a.scenario == "S10" else exact
        return vf.ToolEnv(
            dataset=data, tools=[measure.add], max_turns=11, rubric=vf.Rubric(funcs=[reward], weights=[1.0])
        )
    if a.scenario == "S5":
        return vf.SingleTurnEnv(dataset=data, rubric=vf.MathRubric())
    return vf.SingleTurnEnv(dataset=data, rubric=vf.Rubric(funcs=[exact], weights=[1.0]))


def read(results):
    """(rewards of good rollouts, number of failed ones, outputs)"""
    get = results.get if hasattr(results, "get") else lambda k, d=None: getattr(results, k, d)
    outputs = get("outputs")
    if outputs is None:
        rewards, states = get("reward", get("rewards")), get("state", get("states"))
        states = states or [{} for _ in rewards]
        good = [r for r, s in zip(rewards, states) if s.get("error") is None]
        return good, len(rewards) - len(good), states
    field = lambda o, k: o.get(k) if hasattr(o, "get") else getattr(o, k, None)
    good = [float(field(o, "reward") or 0.0) for o in outputs if field(o, "error") is None]
    return good, len(outputs) - len(good), outputs


def tokens_seen(outputs):
    """Completion token ids and log-probabilities that reached the caller."""
    ids = lps = 0
    for o in outputs:
        for step in (o.get("trajectory") if hasattr(o, "get") else getattr(o, "trajectory", None)) or []:
            t = step.get("tokens") if hasattr(step, "get") else getattr(step, "tokens", None)
            if t is not None:
                field = t.get if hasattr(t, "get") else lambda k: getattr(t, k, None)
                ids += len(field("completion_ids") or ())
                lps += len(field("completion_logprobs") or ())
    return {"token_ids_seen": ids, "logprobs_seen": lps}


async def main():
    a = measure.arguments()
    env = make_env(a)
    kw = {
        "client": make_client(a),
        "model": "fake",
        "num_examples": a.n,
        "rollouts_per_example": 1,
        "max_concurrent": a.concurrency if a.concurrency < a.n else -1,
        "sampling_args": {"max_tokens": 64},
    }
    if a.scenario == "S7":
        kw["sampling_args"] = {"max_tokens": 2048, "logprobs": True, "extra_body": {"return_token_ids": True}}
        kw["state_columns"] = ["trajectory"]
    if a.options.get("progress", "off") == "off":
        kw["on_progress"] = lambda *args, **kwargs: None
    if a.options.get("independent") == "1":
        kw["independent_scoring"] = True
    if a.options.get("save") == "1":
        import pathlib
        import tempfile

        kw["save_results"] = True
        kw["results_path"] = pathlib.Path(tempfile.mkdtemp(prefix="bench-save-"))
    if "env_retries" in a.options:
        kw["max_retries"] = int(a.options["env_retries"])
    known = named(env.evaluate)
    dropped = sorted(k for k in kw if k not in known)
    kw = {k: v for k, v in kw.items() if k in known}
    await asyncio.sleep(0)
    meter = measure.Meter()
    meter.start()
    results = await env.evaluate(**kw)
    measured = meter.stop()
    rewards, lost, outputs = read(results)
    extra = {"not_taken": dropped} if dropped else {}
    if a.scenario == "S7":
        extra.update(tokens_seen(outputs))
    if "save" in a.options and kw.get("results_path"):
        extra["saved_bytes"] = sum(f.stat().st_size for f in kw["results_path"].rglob("*") if f.is_file())
    measure.finish(a, measured, version=getattr(vf, "__version__", "?"), rewards=rewards, lost=lost, extra=extra)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)  # the run is over; don't time interpreter shut-down
