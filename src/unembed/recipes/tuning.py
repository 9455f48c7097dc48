"""Tuning a lens as a whole: begin or go on, save on the way, score it on held-out text, write the file.

A training that was killed goes on with the same bits: its whole state stands in FILE.training, replaced in one instant.
Before it: ../lenses/tuned_lens.py, where a step is done. The next file to read is ../cli/tune_lens.py.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unembed.checkpoints.files import discard
from unembed.corpora.windows import TokenSplit
from unembed.errors import CheckpointError, Interrupted, NotFiniteError, RunError
from unembed.lenses.calibration import gains, layer_table
from unembed.lenses.layer_scores import score_layers
from unembed.lenses.translators import Translators
from unembed.lenses.tuned_file import fingerprint_of, load_lens, load_training, save_lens, save_training, training_path
from unembed.lenses.tuned_lens import KINDS, NAMES, TunedSettings, TunedTrainer, held_out
from unembed.lenses.tuned_start import Start
from unembed.model.transformer import Transformer
from unembed.places import check_output
from unembed.results import Picture, Result
from unembed.training.signals import noted_signals

# Of a split's ids at either end, what is summed: enough to know a text, and no minutes for a large one.
SUMMED_IDS = 1_000_000
SAVES = 10
Say = Callable[[str], None]


@dataclass(frozen=True)
class Tuning:
    """What a lens is tuned for: the model, its text and what is held out of it, the settings, and where it is written."""

    model: Transformer
    train: TokenSplit
    val: TokenSplit
    settings: TunedSettings
    out: Path

    def about(self) -> dict[str, Any]:
        """What must be the same for a training to go on."""
        return {"settings": msgspec.to_builtins(self.settings), "text_sha256": _sum_of(self.train)}


def tune(
    tuning: Tuning,
    *,
    resume: bool = False,
    held_out_tokens: int = 1024,
    notice: Callable[[int, float], None] = lambda step, kl_nats: None,
    say: Say = lambda sentence: None,
    on_signal: Say = lambda name: None,
) -> Result:
    """Trains a lens, scores it beside the logit lens on held-out text, and writes it to `tuning.out`.

    Table `layers` as in lenses/calibration.py. Values: `written`, `steps`, `seconds` of this call, `held_out_tokens`, and
    the mean divergence of the middle layers by either lens with their ratio. `notice` hears the step and its mean
    divergence, `say` sentences for the user. Raises: RunError when a lens or a training is in the way, or `resume` finds
    a training of something else; NotFiniteError; Interrupted after a signal, the state being saved.
    """
    began = time.perf_counter()
    out, whose = tuning.out, fingerprint_of(tuning.model)
    check_output(out, CheckpointError)
    if out.exists():
        return _finished(tuning, resume, held_out_tokens, say)
    trainer = TunedTrainer(tuning.model, tuning.train, tuning.settings)
    _take_up(trainer, tuning, whose, resume, say)
    about, every = tuning.about(), max(1, tuning.settings.steps // SAVES)
    with noted_signals(on_signal) as stop:
        if trainer.step_number == 0:
            trainer.begin()
            _save(trainer, out, about, whose)
        while not trainer.is_finished:
            kl_nats = trainer.step()
            if not np.isfinite(kl_nats):
                raise NotFiniteError(
                    f"tune-lens: step {trainer.step_number}: the divergence is {kl_nats}. Nothing more was saved. Try a "
                    f"lower --learning-rate than {tuning.settings.learning_rate:g}; `unembed verify` tells whether the "
                    "model's own numbers are finite"
                )
            notice(trainer.step_number, kl_nats)
            if stop or trainer.step_number % every == 0:
                _save(trainer, out, about, whose)
            if stop and not trainer.is_finished:
                raise Interrupted(
                    f"stopped by {stop[0]} after step {trainer.step_number}, which is saved.\n"
                    "Go on with the same command and --resume"
                )
    found = _score(tuning, trainer.translators(), held_out_tokens)
    scores = {name: found.values[name] for name in found.values if name.startswith("middle")}
    save_lens(out, trainer.translators({**about, **scores}), whose)
    discard(training_path(out))
    values = {
        "written": str(out),
        "steps": trainer.step_number,
        "seconds": time.perf_counter() - began,
        **found.values,
    }
    return Result(name="tune_lens", tables=found.tables, values=values, notes=found.notes, pictures=found.pictures)


def _finished(tuning: Tuning, resume: bool, n_tokens: int, say: Say) -> Result:
    """What is said of a lens that is there already: its scores where it is the one that was asked for. Raises: RunError."""
    if not resume:
        raise RunError(f"{tuning.out}: is there already. Choose another file with --out, or move it away")
    there = load_lens(tuning.out, tuning.model)
    asked = tuning.about()
    if any(there.about.get(name) != value for name, value in asked.items()):
        raise RunError(
            f"{tuning.out}: {_difference(there.about, asked)}. Give what it was made with, or choose another --out"
        )
    say("the lens is finished already")
    found = _score(tuning, there, n_tokens)
    values = {"written": str(tuning.out), "steps": tuning.settings.steps, "seconds": 0.0, **found.values}
    return Result(name="tune_lens", tables=found.tables, values=values, notes=found.notes, pictures=found.pictures)


def _take_up(trainer: TunedTrainer, tuning: Tuning, whose: dict[str, str], resume: bool, say: Say) -> None:
    """Restores a training that was begun, or refuses what is in the way. Raises: RunError."""
    out, place = tuning.out, training_path(tuning.out)
    if not place.exists():
        return
    if not resume:
        raise RunError(
            f"{place}: a training of this lens was begun. Go on with it by --resume, or choose another --out"
        )
    spec = tuning.model.spec
    n, width = spec.n_layers, spec.embedding.d_model
    of_start = {
        "weight": (n, width, width),
        "bias": (n, width),
        "whiten": (n, width, width),
        "mean": (n, width),
        "scale": (n,),
    }
    shapes: dict[str, tuple[int, ...]] = {f"start.{name}": of_start[name] for name in Start._fields}
    of_learnt = {"matrix": (n, width, width), "vector": (n, width)}
    shapes |= {f"{kind}.{name}": of_learnt[name] for kind in KINDS for name in NAMES}
    tensors, about = load_training(out, whose, shapes)
    step = about.pop("step", None)
    if about != tuning.about() or type(step) is not int or not 0 <= step <= tuning.settings.steps:
        raise RunError(
            f"{place}: {_difference(about, tuning.about())}. Give what it was begun with, or choose another --out"
        )
    trainer.restore(tensors, step)
    say(f"going on after step {step} of {tuning.settings.steps}")


def _difference(there: dict[str, Any], asked: dict[str, Any]) -> str:
    before, now = ({**one.get("settings", {}), "text_sha256": one.get("text_sha256")} for one in (there, asked))
    for name, value in now.items():
        if before.get(name) != value:
            if name == "text_sha256":
                return "this training was begun on another text"
            return f"this training was begun with {name} {before.get(name)}, not {value}"
    return "this training's step is none of its own"


def _save(trainer: TunedTrainer, out: Path, about: dict[str, Any], whose: dict[str, str]) -> None:
    save_training(out, trainer.tensors(), {**about, "step": trainer.step_number}, whose)


def _score(tuning: Tuning, translators: Translators, n_tokens: int) -> Result:
    """Both lenses on the same held-out windows; a model that sees both ways is scored by its own answers alone."""
    batches = list(held_out(tuning.val, tuning.settings.window - 1, n_tokens))
    scores = {
        "logit": score_layers(tuning.model, batches),
        "tuned": score_layers(tuning.model, batches, translate=translators),
    }
    return Result(
        name="tune_lens",
        tables={"layers": layer_table(scores)},
        values={"held_out_tokens": scores["logit"].n_tokens, **gains(scores)},
        notes=("lens_is_a_clue",),
        pictures=(
            Picture(key="kl_by_layer", kind="lines", table="layers", x="layer", y="kl_to_final_nats", color="lens"),
        ),
    )


def _sum_of(split: TokenSplit) -> str:
    ids = split.ids
    ends = np.concatenate([ids[:SUMMED_IDS], ids[-SUMMED_IDS:]]).astype(np.int64)
    return hashlib.sha256(len(ids).to_bytes(8, "little") + ends.tobytes()).hexdigest()
