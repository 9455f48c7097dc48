"""The functions behind `import unembed`: one call for each thing that a notebook wants, and no logic of their own.

The command line calls the same pieces. The next file to read is recipes/start.py or analyses.py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unembed.errors import InputError, UsageError
from unembed.model.counts import Counts
from unembed.results import Result

if TYPE_CHECKING:
    from torch import Tensor

    from unembed.model.transformer import Transformer
    from unembed.recipes.start import Outcome


def load(model: str | Path, *, step: int | None = None) -> "Transformer":
    """Opens any MODEL: a run folder, a checkpoint folder, or a preset's name. Raises: CheckpointError."""
    from unembed.checkpoints import load as loading

    return loading.load(model, step=step)


def train(
    data: str | Path | Sequence[str | Path] = (),
    *,
    recipe: str = "small",
    out: str | Path,
    resume: bool = False,
    **settings: Any,
) -> "Outcome":
    """Trains a run into the folder `out`; settings are those of `--set`, with `.` written as `__`.

    Raises: UsageError for an unknown recipe or setting, RunError when a run is in the way, NotFiniteError.
    """
    from unembed.recipes import start

    sources = [data] if isinstance(data, str | Path) else list(data)
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return start.train(sources, recipe_name=recipe, out=out, resume=resume, settings=named)


def generate(
    model: "Transformer",
    prompt: str = "",
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    seed: int = 0,
    past_context: str = "slide",
) -> Result:
    """Continues a text. Values: `prompt_ids`, `ids`, `text`, `logprobs` (nats, unfiltered), `stopped`, `n_slides`.

    temperature 0 is greedy. Raises: InputError when the model has no tokenizer; UsageError for impossible options.
    """
    from unembed.generation.sampling import Sampling
    from unembed.generation.texts import continue_text

    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
    )
    if not 0 <= seed < 2**63:
        raise UsageError(f"seed is {seed}; it must lie between 0 and 2**63 - 1")
    if past_context not in ("slide", "stop"):
        raise UsageError(f"past_context is {past_context!r}; it must be 'slide' or 'stop'")
    return continue_text(
        model,
        prompt,
        n_tokens=tokens,
        sampling=sampling,
        seed=seed,
        past_context="slide" if past_context == "slide" else "stop",
    )


def lens(
    model: "Transformer",
    text: str | None = None,
    *,
    ids: "Sequence[int] | Sequence[Sequence[int]] | Tensor | None" = None,
    statistics: Sequence[str] | None = None,
    top: int = 5,
) -> Result:
    """Reads every layer of the stream through the model's own head. Give a text, or ids, [pos] or [batch, pos].

    `statistics` chooses among `top`, `entropy`, `kl_to_final`, `target`, `logsumexp`; None computes them all. See
    lenses/logit_lens.py for what each gives. Texts are null without a tokenizer.
    Raises: InputError when a text is given and the model has no tokenizer; UsageError when neither or both are given, or
    a statistic is unknown; ShapeError when ids have no row in the table.
    """
    from unembed.lenses.logit_lens import STATISTICS, logit_lens

    if (text is None) == (ids is None):
        raise UsageError("lens: give either a text or ids")
    tokenizer = model.tokenizer
    if text is not None:
        if tokenizer is None:
            raise InputError("lens: this model has no tokenizer, so a text has no ids; give ids=[...] instead")
        ids = [int(i) for i in tokenizer.encode(text).ids]
        if not ids:
            raise UsageError(f"lens: the text {text!r} has no tokens; give at least one")
    assert ids is not None
    texts = None if tokenizer is None else [tokenizer.token_text(i) for i in range(tokenizer.vocab_size)]
    chosen = STATISTICS if statistics is None else statistics
    return logit_lens(model, ids, texts=texts, n_top=top, statistics=chosen)


def count(model: str | Path) -> Counts:
    """Counts the parameters of a preset or of any MODEL from its description alone, without torch for a preset."""
    from unembed.counting import spec_of_model
    from unembed.model import counts

    return counts.count(spec_of_model(model))


def write_report(run: str | Path, out: str | Path | None = None, *, lang: str | None = None) -> Path:
    """Writes the report of a run as one HTML file (report.html in the run, unless `out` is given). Raises: RunError."""
    from unembed.report import write

    return write.write_report(run, out, lang=lang)
