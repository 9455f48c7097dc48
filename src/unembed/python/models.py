"""The functions behind `import unembed`: one call for each thing that a notebook wants, and no logic of their own.

What goes on with texts stands in texts.py. The next file to read is recipes/start.py or analyses.py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unembed.arguments import names_of, refuse_no_flag, refuse_no_model, refuse_no_path, refuse_types
from unembed.errors import UsageError
from unembed.model.counts import Counts
from unembed.results import Result

if TYPE_CHECKING:
    from torch import Tensor

    from unembed.checkpoints.convert import Converted
    from unembed.model.transformer import Transformer
    from unembed.recipes.outcome import Outcome
    from unembed.verify.claim import Claim


def load(
    model: str | Path,
    *,
    step: int | None = None,
    tokenizer: str | Path | None = None,
    like: str | None = None,
    dtype: Any = None,
    ignore_tensors: Sequence[str] = (),
) -> "Transformer":
    """Opens any MODEL: a run or a checkpoint in it, a Hugging Face folder, a .gguf, .safetensors, .pt or .bin, or a preset.

    `step` chooses a run's checkpoint; `tokenizer` names a tokenizer's file; `like` the preset whose shape a microGPT .bin
    has. `dtype` None widens half-precision files to float32, which is exact; "file" keeps the file's types; float32,
    float16, bfloat16 and float64 may be given as words or as torch's types. `ignore_tensors` names tensors of another
    program's file that no rule knows and the model does without (`*` for any part of a name). What was decided stands in
    `.load_report`.
    Raises: CheckpointError, UsageError, UnsafeError.
    """
    from unembed.checkpoints import load as loading

    return loading.load(model, step=step, tokenizer=tokenizer, like=like, dtype=dtype, ignore_tensors=ignore_tensors)


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    to: str = "hf",
    dtype: Any = "file",
    tokenizer: str | Path | None = None,
    like: str | None = None,
    ignore_tensors: Sequence[str] = (),
) -> "Converted":
    """Writes a MODEL in another format, bit for bit: "hf" (a folder for transformers), "gguf" (llama.cpp), "native" (a run).

    `tokenizer`, `like` and `ignore_tensors` are as for `load`.
    Raises: UsageError for another format, or where something is at the destination; SpecError where the format cannot say
    what the model is.
    """
    from unembed.checkpoints import convert as converting

    if not isinstance(to, str) or to not in converting.FORMATS:
        raise UsageError(f"convert: to is {to!r}; it must be one of {', '.join(converting.FORMATS)}")
    return converting.convert(
        source, destination, to=to, dtype=dtype, tokenizer=tokenizer, like=like, ignore_tensors=ignore_tensors
    )


def resize_vocabulary(model: "Transformer", vocab_size: int, *, seed: int = 0) -> "Transformer":
    """A new model with another number of rows: old rows keep their bits, the tie is kept. See model/resize.py.

    Raises: UsageError for a size that is none.
    """
    from unembed.model import resize

    refuse_no_model("resize_vocabulary", model)
    return resize.resize_vocabulary(model, vocab_size, seed=seed)


def verify_model(
    model: str | Path,
    *,
    claims: Sequence[str] | None = None,
    tokenizer: str | Path | None = None,
    like: str | None = None,
    ignore_tensors: Sequence[str] = (),
) -> "list[Claim]":
    """Tries on a MODEL what is claimed of every model: each claim with its status, worst difference, tolerance and detail.

    Raises: as `load`; UsageError for a claim that does not exist.
    """
    from unembed.verify import subject_of, verify

    chosen = names_of("verify_model", "claims", claims)
    subject = subject_of(model, tokenizer=tokenizer, like=like, ignore_tensors=ignore_tensors)
    return verify(subject, chosen)


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

    sources: list[Any] = (
        [data] if isinstance(data, str | Path) else list(data) if isinstance(data, list | tuple) else [data]
    )
    if wrong := [one for one in sources if not isinstance(one, str | Path)]:
        found = type(wrong[0]).__name__
        raise UsageError(f"train: data is a {found}, expected paths of files or folders. Save the text to a file first")
    if not isinstance(out, str | Path):
        raise UsageError(f"train: out is {out!r}, expected the path of the run's folder")
    if not isinstance(resume, bool):
        raise UsageError(f"train: resume is {repr(resume)[:60]}, expected True or False; the run's folder is `out`")
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return start.train(sources, recipe_name=recipe, out=out, resume=resume, settings=named)


def lens(
    model: "Transformer",
    text: str | None = None,
    *,
    ids: "Sequence[int] | Sequence[Sequence[int]] | Tensor | None" = None,
    statistics: Sequence[str] | None = None,
    top: int = 5,
    layers: Sequence[float] | None = None,
    after_attention: bool = False,
    target: str | int | None = None,
    tuned: str | Path | None = None,
    vectors: "Tensor | None" = None,
    normalises: bool = True,
    parse_specials: bool = False,
) -> Result:
    """Reads every layer of the stream through the model's own head. Give a text, or ids, [pos] or [batch, pos].

    `statistics` chooses among `top`, `entropy`, `logsumexp`, `kl_to_final`, `js_to_final`, `tv_to_final`, `target`,
    `cross_entropy`, `agreement`; None computes them all. See lenses/logit_lens.py for what each gives. `layers` chooses
    layers, `after_attention` adds those inside the blocks, `target` is a token to follow everywhere, as a text or an id.
    Instead of either, `vectors`, [d_model] or [n, d_model], are read as they are, see lenses/vectors.py; with
    `normalises=False` they go to the head without the final norm.
    `tuned` names the file of a lens that `unembed tune-lens` made for this model. Texts are null without a tokenizer.
    `parse_specials` reads the names of special tokens in the text (`[MASK]`) as those tokens, not as letters.
    Raises: CheckpointError for a tuned lens of another model; InputError when a text is given and the model has no
    tokenizer, or where its scores are no numbers; UsageError when neither or both are given, a statistic or layer is unknown,
    or the target is not one token; ShapeError when ids have no row in the table.
    """
    refuse_no_model("lens", model)
    refuse_types("lens", text=text, top=top)
    refuse_no_flag("lens", "after_attention", after_attention)
    refuse_no_flag("lens", "normalises", normalises)
    refuse_no_flag("lens", "parse_specials", parse_specials)
    refuse_no_path("lens", "tuned", tuned, "a lens that unembed tune-lens wrote")
    chosen = names_of("lens", "statistics", statistics)
    from unembed.lenses.logit_lens import STATISTICS, logit_lens
    from unembed.lenses.prompts import layers_of, target_of, text_ids, token_texts
    from unembed.lenses.tuned_file import load_lens

    if [text is None, ids is None, vectors is None].count(False) != 1:
        raise UsageError("lens: give either a text or ids, or vectors alone")
    if vectors is not None:
        from unembed.lenses.vectors import read_vectors

        return read_vectors(model, vectors, texts=token_texts(model), n_top=top, normalises=normalises)
    if text is not None:
        ids = text_ids(model, text, parse_specials=parse_specials)
    assert ids is not None
    return logit_lens(
        model,
        ids,
        texts=token_texts(model),
        n_top=top,
        statistics=chosen or STATISTICS,
        layers=layers_of(layers),
        after_attention=after_attention,
        target=target_of(model, target),
        tuned=None if tuned is None else load_lens(tuned, model),
    )


def count(model: str | Path, *, ignore_tensors: Sequence[str] = ()) -> Counts:
    """Counts the parameters of a preset or of any MODEL from its description alone, without torch for a preset.

    `ignore_tensors` names tensors of another program's file that the model does without, as for `load`.
    """
    from unembed.counting import spec_of_model
    from unembed.model import counts

    return counts.count(spec_of_model(model, ignore_tensors=ignore_tensors))


def write_report(run: str | Path, out: str | Path | None = None, *, lang: str | None = None) -> Path:
    """Writes the report of a run as one HTML file (report.html in the run, unless `out` is given). Raises: RunError."""
    from unembed.report import write

    if not isinstance(run, str | Path) or not str(run):
        raise UsageError(f"write_report: run is {repr(run)[:60]}, expected the path of a run's folder")
    if out is not None and not isinstance(out, str | Path):
        raise UsageError(f"write_report: out is {repr(out)[:60]}, expected the path of the file to write")
    return write.write_report(run, out, lang=lang)
