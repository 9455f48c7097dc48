"""The functions behind `import unembed` that hold a model against text it has not read: how far each layer may be believed.

Each takes a model and a text: the folder of a run, whose held-out tenth is read, or files and folders of text, of which the
last tenth is held out. None has logic of its own; the commands call the same pieces. Before it: lenses.py. The next
file to read is views/held_out.py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unembed.arguments import refuse_below, refuse_no_flag, refuse_no_model, refuse_no_path, refuse_types
from unembed.errors import InputError, UsageError
from unembed.results import Result

if TYPE_CHECKING:
    from unembed.corpora.windows import TokenSplit
    from unembed.model.transformer import Transformer

Data = str | Path | Sequence[str | Path]


def calibration(
    model: "Transformer",
    data: Data,
    *,
    tuned: str | Path | None = None,
    tokens: int = 2048,
    column: str | None = None,
) -> Result:
    """How often each layer's best guess is right on held-out text, and how sure it was: `unembed calibration`.

    Table `layers`, a row a lens and layer: `kl_to_final_nats`, `loss_nats`, and the shares, from 0 to 1, `right_share`,
    `confidence_share`, `calibration_error` and `agreement_share`; table `reliability`, a row a bin of confidence. At least
    `tokens` held-out tokens are read, in whole windows. `tuned` names a lens of `tune_lens`, measured beside the logit lens;
    `column` the one that holds the text of a table. Source: Guo et al. 2017, arXiv:1706.04599, section 2, for the error.
    Raises: UsageError for a model that sees both ways, and for a run of other tokens; CheckpointError for another model's
    lens; InputError without a tokenizer; CorpusError as reading does.
    """
    refuse_no_model("calibration", model)
    refuse_types("calibration", column=column)
    refuse_below("calibration", "tokens", tokens, least=1)
    refuse_no_path("calibration", "tuned", tuned, "a lens that unembed tune-lens wrote")
    from unembed.lenses.tuned_file import load_lens
    from unembed.views.held_out import calibration_on

    translators = None if tuned is None else load_lens(tuned, model)
    _, val = _splits("calibration", model, data, column)
    return calibration_on(val, model, tokens, tuned=translators)


def gradient_flow(model: "Transformer", data: Data) -> Result:
    """How much of the gradient reaches each depth on held-out text, nothing being stepped: `unembed flow`.

    Table `flow`, a row a depth from 0, the embedding: `stream_grad_norm` |dL/dx| of the stream x there, its
    `stream_grad_log10`, and `grad_norm` |dL/dw| of that layer's parameters w; L is the mean loss in nats per token. Values:
    `loss_nats` and `reaches_first`, a ratio. For ids of your own: lenses/gradient_flow.py. Source: He et al. 2016,
    arXiv:1603.05027, section 2. Raises: as `calibration`; InputError where the loss is no number.
    """
    refuse_no_model("gradient_flow", model)
    from unembed.views.held_out import flow_on

    _, val = _splits("gradient_flow", model, data, None)
    return flow_on(val, model)


def truth(model: "Transformer", run: str | Path, *, tuned: str | Path | None = None) -> Result:
    """From which layer on a model knows each feature of the grammar that wrote a tour's text: `unembed truth`.

    `model` is that of the run or of any of its steps; `tuned` names a lens of `tune_lens`, put to the same questions. The
    tables are those of lenses/truth.py: shares of right answers, and distances in nats. Raises: InputError for a run whose
    text no grammar of ours wrote; UsageError where the model's tokens are not the run's; RunError for what is no run;
    CheckpointError for another model's lens.
    """
    refuse_no_model("truth", model)
    refuse_no_path("truth", "tuned", tuned, "a lens that unembed tune-lens wrote")
    if not isinstance(run, str | Path) or not str(run):
        raise UsageError(f"truth: run is {repr(run)[:60]}, expected the path of a run's folder")
    from unembed.lenses.tuned_file import load_lens
    from unembed.views.truth import open_grammar_run, truth_of

    view = open_grammar_run(run)
    _refuse_other_tokens("truth", model, Path(run))
    return truth_of(view, model, tuned=None if tuned is None else load_lens(tuned, model))


def tune_lens(
    model: "Transformer",
    data: Data,
    *,
    out: str | Path,
    resume: bool = False,
    steps: int | None = None,
    rows: int | None = None,
    window: int | None = None,
    start_tokens: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    held_out_tokens: int = 1024,
    column: str | None = None,
) -> Result:
    """Trains a translator for each layer, [layer, d_model, d_model], and writes them to `out`: `unembed tune-lens`.

    `lens`, `calibration` and `truth` read through it with `tuned=out`; the model is not changed. Settings that are None suit
    the model's size, see `settings_for` in lenses/tuned_lens.py. Table `layers` as `calibration` has it, on
    `held_out_tokens`; values: `written`, `steps`, `seconds`, and the middle layers' divergence from the end by either lens,
    in nats, with its ratio. Source: Belrose et al. 2023, arXiv:2303.08112, section 3.
    Raises: RunError when a lens or a training is in the way, or `resume` finds another one; Interrupted after Ctrl-C, the
    state being saved; NotFiniteError; UsageError for settings that cannot be; else as `calibration`.
    """
    refuse_no_model("tune_lens", model)
    numbers = {"steps": steps, "rows": rows, "window": window, "start_tokens": start_tokens}
    refuse_types("tune_lens", **numbers, learning_rate=learning_rate, column=column)
    refuse_no_flag("tune_lens", "resume", resume)
    if not isinstance(out, str | Path) or not str(out):
        raise UsageError(f"tune_lens: out is {repr(out)[:60]}, expected the path of the file to write")
    refuse_below("tune_lens", "held_out_tokens", held_out_tokens, least=1)
    refuse_below("tune_lens", "seed", seed, least=0)
    from unembed.lenses.tuned_lens import settings_for
    from unembed.recipes.tuning import Tuning, tune

    settings = settings_for(model, **numbers, learning_rate=learning_rate, seed=seed)
    train, val = _splits("tune_lens", model, data, column)
    return tune(Tuning(model, train, val, settings, Path(out)), resume=resume, held_out_tokens=held_out_tokens)


def _splits(what: str, model: "Transformer", data: Data, column: str | None) -> "tuple[TokenSplit, TokenSplit]":
    """What may be learnt from and what is held out, of a run or of files. Raises: UsageError, InputError, CorpusError."""
    from unembed.places import check_path
    from unembed.views.texts import run_of, splits_of

    given: list[Any] = [data] if isinstance(data, str | Path) else list(data) if isinstance(data, list | tuple) else []
    places = [Path(place) for place in given if isinstance(place, str | Path) and str(place)]
    if not places or len(places) < len(given):
        raise UsageError(
            f"{what}: data is {repr(data)[:60]}, expected the folder of a run, or paths of files or folders of text"
        )
    for place in places:
        check_path(place, UsageError)
    if len(places) == 1 and run_of(places[0]) == places[0]:
        _refuse_other_tokens(what, model, places[0])
        return splits_of(places[0], model, ())
    if model.tokenizer is None:
        raise InputError(
            f"{what}: this model has no tokenizer, so a text has no ids. Open it with one: "
            "unembed.load(MODEL, tokenizer=FILE)"
        )
    return splits_of(what, model, places, column=column)


def _refuse_other_tokens(what: str, model: "Transformer", run: Path) -> None:
    """A run keeps ids, not text: to a model of another vocabulary they would mean other tokens. Raises: UsageError."""
    from unembed.checkpoints.load import TOKENIZER
    from unembed.tokenizers.files import fingerprint, load

    there = run / TOKENIZER
    theirs = fingerprint(load(there)) if there.is_file() else ""
    if theirs != ("" if model.tokenizer is None else fingerprint(model.tokenizer)):
        raise UsageError(
            f"{what}: the ids of {run} were made by another tokenizer than this model's, so they mean other tokens. Give "
            "the files of its text instead, or a model of that run"
        )
