"""The options by which a command is told its model, and how to sample from it."""

from typing import Annotated

import typer

Model = Annotated[str | None, typer.Option("--model", "-m", help="Model name, a name from endpoints.toml, or 'local'.")]
ApiBaseUrl = Annotated[
    str | None, typer.Option("--api-base-url", "-b", help="Server's address (else OPENAI_BASE_URL).")
]
ApiKeyVar = Annotated[
    str | None, typer.Option("--api-key-var", "-k", help="Variable that holds the key (else OPENAI_API_KEY).")
]
Provider = Annotated[
    str | None, typer.Option("--provider", "-p", help="openai, openrouter, anthropic, deepseek, vllm or local.")
]
EndpointsPath = Annotated[
    str | None, typer.Option("--endpoints-path", "-e", help="Endpoints file (default ./configs/endpoints.toml).")
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", "-t", help="Longest reply, in tokens.")]
Temperature = Annotated[float | None, typer.Option("--temperature", "-T", help="Sampling temperature.")]
SamplingArgs = Annotated[
    str | None, typer.Option("--sampling-args", "-S", help="""More sampling settings, JSON: '{"top_p": 0.9}'.""")
]
OutputDir = Annotated[str | None, typer.Option("--output-dir", "-o", help="Folder for results (default ./outputs).")]
