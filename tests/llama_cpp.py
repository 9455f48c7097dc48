"""llama.cpp as a second reader of GGUF files, through the package xllamacpp: its greedy texts, and what it gives each token.

llama.cpp ends the process where a file contradicts itself, and runs threads of its own, so it gets a process: this file is
that process, too. Keys and values stay in float32, as ours do: its defaults (a cache of 16 bits, flash attention) change
log-probabilities by 2e-3, and without them they are equal to 2e-6.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

PACKAGE = "xllamacpp"
GREEDY = {"temperature": 0.0, "top_k": 1, "samplers": ["top_k"]}


class Continued(NamedTuple):
    """The continuation alone, and of each of its tokens the id and natural log-probability."""

    text: str
    ids: list[int]
    logprobs: list[float]
    n_prompt: int


def continued(file: Path, prompt: str | list[int], n_tokens: int, *, rounds: bool = False) -> Continued:
    """Continues a text or ids greedily. An empty prompt is an error there; a character that is not whole is not shown."""
    [answer] = ask(file, [GREEDY | {"prompt": prompt, "n_predict": n_tokens, "logprobs": 1}], rounds=rounds)
    choice = answer["choices"][0]
    tokens = choice["logprobs"]["content"]
    return Continued(
        text=choice["text"],
        ids=[token["id"] for token in tokens],
        logprobs=[token["logprob"] for token in tokens],
        n_prompt=answer["usage"]["prompt_tokens"],
    )


def next_logprobs(file: Path, prompts: list[str | list[int]], vocab_size: int, *, shown: int) -> torch.Tensor:
    """The natural log-probability of every token after each of several prompts, [prompt, vocab].

    `shown` is the id of any whole character: it is made to win, because llama.cpp tells nothing of a token that it cannot
    show. The numbers are those from before such a preference.
    """
    request = GREEDY | {"n_predict": 1, "logprobs": vocab_size, "logit_bias": [[shown, 1000.0]]}
    found = torch.full((len(prompts), vocab_size), float("nan"), dtype=torch.float64)
    for row, answer in enumerate(ask(file, [request | {"prompt": prompt} for prompt in prompts])):
        for token in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            found[row, token["id"]] = token["logprob"]
    return found


def ask(file: Path, requests: list[dict[str, Any]], *, rounds: bool = False) -> list[dict[str, Any]]:
    """llama.cpp's answers, one by one, with its default settings if `rounds`. Skips without the package."""
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"{PACKAGE} is not installed: the extra `test` brings it where it has a wheel")
    command = [sys.executable, __file__, str(file), "rounds" if rounds else "exact"]
    done = subprocess.run(
        command, input=json.dumps(requests), capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
    )
    assert done.returncode == 0, f"llama.cpp ended with {done.returncode}: {done.stderr[-2000:]}"
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def main(file: str, arithmetic: str) -> None:
    """Opens the file, and prints the answers to the requests on stdin as one line of JSON."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = file
    parameters.n_ctx = 512
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1
    parameters.verbosity = -1
    if arithmetic == "exact":
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(parameters)
    answers = [server.handle_completions(request) for request in json.load(sys.stdin)]
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
