"""A run's lenses held against what is known: the text that was held out and, for the tour, the grammar itself.

Before it: inside.py. The next file to read is ../analyses.py, where all of them stand in order.
"""

from pathlib import Path

from unembed.corpora.grammar.agreement import sentences
from unembed.errors import InputError
from unembed.lenses.translators import Translators
from unembed.lenses.truth import N_WINDOWS, lens_truth
from unembed.model.transformer import Transformer
from unembed.results import Result
from unembed.views.held_out import calibration_on
from unembed.views.over_training import over_training
from unembed.views.run import RunView

TOKENS_EACH = 512  # held-out tokens of each checkpoint, of which there may be many


def calibration(run: RunView) -> Result:
    """The newest model's calibration; the page shows the curves and has every bin in a table."""
    return calibration_on(run.shards.val, run.model())


def layers_over_training(run: RunView) -> Result:
    """How far each layer had come at each kept step: the loss of its reading on held-out text."""
    val = run.shards.val
    return over_training(run, lambda model: calibration_on(val, model, TOKENS_EACH), table="layers", color="loss_nats")


def can_be_calibrated(run: RunView) -> bool:
    """Whether there is held-out text, and a model that cannot see what it is asked for."""
    return run.has_data and run.spec.is_causal


def open_grammar_run(path: str | Path) -> RunView:
    """Opens a run whose text a grammar of ours wrote. Raises: InputError for any other; RunError as `RunView.open` does."""
    view = RunView.open(path)
    if not view.learns_grammar or not view.has_data:
        raise InputError(
            f"{path}: was not trained on a grammar of ours, so nobody knows its truth; `unembed tour` makes such a run"
        )
    return view


def truth_of(run: RunView, model: Transformer, *, tuned: Translators | None = None) -> Result:
    """One model of the run on questions and windows of the run's grammar; what it has read is not asked."""
    read = sentences(run.token_texts[i] for i in run.shards.train.ids.tolist())
    words = [run.token_texts[i] for i in run.shards.val.ids[: N_WINDOWS * model.spec.context_length].tolist()]
    return lens_truth(model, run.tokenizer, run.grammar(), words, exclude=read, tuned=tuned)


def truth(run: RunView) -> Result:
    """From which layer on the newest model's lens knows each feature of the grammar."""
    return truth_of(run, run.model())
