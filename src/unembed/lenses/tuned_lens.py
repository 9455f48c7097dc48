"""Training the tuned lens: each layer's translator is fitted so that the head says what it will say at the end.

    loss of layer l = mean over positions of KL(p_final || softmax(head(translated x_l)))

The model stays as it is; its own final answer is the only teacher, and no text is needed but what it reads. All layers are
trained side by side on the same positions, each by its own loss. What is learnt is a correction D, e in whitened
coordinates to the closed-form start (tuned_start.py), by Adam at a rate that falls to 0:

    translated x = x + x W0^T + b0 + scale (D P (x - mean) + e)

Everything random is a function of (seed, step), so a training that was killed goes on with the same numbers.
Source: Belrose et al. 2023, arXiv:2303.08112, section 3. The next file to read is tuned_file.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from unembed.corpora.windows import TokenSplit
from unembed.errors import UsageError
from unembed.lenses.states import take_states
from unembed.lenses.translators import Translators
from unembed.lenses.tuned_start import RIDGE, Start, closed_form
from unembed.model.transformer import Transformer
from unembed.tokenizers.base import with_start

BETA1, BETA2, EPS = 0.9, 0.99, 1e-8
# Scores of one layer in one step: rows x vocabulary. A large vocabulary gets fewer rows, not more memory.
SCORES_AT_ONCE = 2**22
MOST_ROWS, FEWEST_ROWS = 1024, 48
BATCH_TOKENS = 1024


class TunedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a lens is tuned: what decides its bits, but for the model and the text.

    `start_tokens` are read for the closed-form start, `rows` positions are trained on in each of `steps`, drawn from
    windows of `window` tokens. The first step moves each number of a translated stream by about `learning_rate` of its
    usual size, at most.
    """

    seed: int
    steps: int
    rows: int
    window: int
    start_tokens: int
    learning_rate: float
    ridge: float


def settings_for(
    model: Transformer,
    *,
    steps: int | None = None,
    rows: int | None = None,
    window: int | None = None,
    start_tokens: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
) -> TunedSettings:
    """Settings that suit a model's size, unless they are given. Raises: UsageError for numbers that cannot be.

    A large vocabulary allows few rows and few steps in minutes: they are then shorter, since few rows tell less of the way.
    """
    spec = model.spec
    affordable = max(FEWEST_ROWS, min(MOST_ROWS, SCORES_AT_ONCE // spec.embedding.vocab_size))
    is_small = affordable >= MOST_ROWS // 4
    chosen = TunedSettings(
        seed=seed,
        steps=(200 if is_small else 40) if steps is None else steps,
        rows=affordable if rows is None else rows,
        window=min(128, spec.context_length) if window is None else window,
        start_tokens=max(8192, 16 * spec.embedding.d_model) if start_tokens is None else start_tokens,
        learning_rate=(0.2 if is_small else 0.03) if learning_rate is None else learning_rate,
        ridge=RIDGE,
    )
    for name, least in (("steps", 0), ("rows", 1), ("window", 2), ("start_tokens", 2), ("seed", 0)):
        if getattr(chosen, name) < least:
            raise UsageError(f"tune-lens: {name} is {getattr(chosen, name)}; it must be at least {least}")
    if not 0 < chosen.learning_rate < 1:
        raise UsageError(f"tune-lens: learning_rate is {learning_rate}; it must lie between 0 and 1")
    if chosen.window > spec.context_length:
        raise UsageError(f"tune-lens: window is {window}, but the model's context has {spec.context_length} tokens")
    if not spec.n_layers:
        raise UsageError("tune-lens: this model has no layers, so there is nothing to translate")
    return chosen


class TunedTrainer:
    """One lens in training. `step()` does a single step on all layers; `tensors()` and `restore()` are its whole state."""

    def __init__(self, model: Transformer, split: TokenSplit, settings: TunedSettings) -> None:
        self.model, self.split, self.settings = model, split, settings
        self.n_known = known_rows(model)
        self.step_number = 0
        self.last_kl: list[float] = []
        self._start: Start | None = None
        self._learnt: dict[str, Tensor] = {}

    def begin(self) -> None:
        """Reads the first tokens and computes the closed-form start. A restored trainer has it already."""
        if self._start is None:
            settings = self.settings
            per_batch = max(1, BATCH_TOKENS // settings.window)
            n_batches = -(-settings.start_tokens // (per_batch * settings.window))
            states = (self._states(index, per_batch) for index in range(n_batches))
            start = closed_form(states, has_final_norm=self.model.spec.final_norm is not None, ridge=settings.ridge)
            self._start = start
            zeros = {"matrix": torch.zeros_like(start.weight), "vector": torch.zeros_like(start.bias)}
            self._learnt = {f"{kind}.{name}": one.clone() for name, one in zeros.items() for kind in KINDS}

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done."""
        return self._start is not None and self.step_number >= self.settings.steps

    def step(self) -> float:
        """Does one step and returns the mean over layers of the divergence before it, in nats."""
        assert self._start is not None, "begin() comes first"
        settings, number = self.settings, self.step_number
        states = self._rows(number)
        with torch.no_grad():
            final = self._log_probs(states[-1])
        # a matrix of d_model columns moves its output by up to so many times its rate
        rate = settings.learning_rate * (1 - number / settings.steps) / states.shape[-1]
        losses = []
        for layer in range(len(states) - 1):
            values = [self._learnt[f"value.{name}"][layer].clone().requires_grad_(True) for name in NAMES]
            with torch.enable_grad():
                found = self._log_probs(self._translated(layer, states[layer], *values))
                kl = F.kl_div(found, final, log_target=True, reduction="sum") / len(final)
                gradients = torch.autograd.grad(kl, values)
            losses.append(float(kl.detach()))
            for name, gradient in zip(NAMES, gradients, strict=True):
                self._adam(name, layer, gradient, rate, number + 1)
        self.step_number += 1
        self.last_kl = losses
        return sum(losses) / len(losses)

    @torch.no_grad()
    def translators(self, about: dict[str, Any] | None = None) -> Translators:
        """What has been learnt so far, as one matrix and one vector a layer."""
        assert self._start is not None, "begin() comes first"
        start, matrix, vector = self._start, self._learnt["value.matrix"], self._learnt["value.vector"]
        moved = start.scale[:, None, None] * (matrix @ start.whiten)
        bias = start.bias + start.scale[:, None] * vector - (moved @ start.mean[:, :, None])[:, :, 0]
        return Translators(start.weight + moved, bias, about or {})

    def tensors(self) -> dict[str, Tensor]:
        """All that a training needs to go on, but for `step_number`."""
        assert self._start is not None, "begin() comes first"
        return {f"start.{name}": one for name, one in self._start._asdict().items()} | self._learnt

    def restore(self, tensors: Mapping[str, Tensor], step_number: int) -> None:
        """Takes up what `tensors` gave. The shapes are the caller's to check (tuned_file.py does)."""
        self._start = Start(**{name: tensors[f"start.{name}"].clone() for name in Start._fields})
        self._learnt = {f"{kind}.{name}": tensors[f"{kind}.{name}"].clone() for kind in KINDS for name in NAMES}
        self.step_number = step_number

    def _translated(
        self, layer: int, x: Float[Tensor, "pos d_model"], matrix: Tensor, vector: Tensor
    ) -> Float[Tensor, "pos d_model"]:
        start = self._start
        assert start is not None
        base = x + (x @ start.weight[layer].T + start.bias[layer])
        return base + start.scale[layer] * ((x - start.mean[layer]) @ start.whiten[layer].T @ matrix.T + vector)

    def _log_probs(self, states: Float[Tensor, "pos d_model"]) -> Float[Tensor, "pos vocab"]:
        table = self.model.embed.table
        scores = self.model.unembed(states[None].to(table.device, table.dtype))[0, :, : self.n_known]
        return scores.float().cpu().log_softmax(-1)

    def _adam(self, name: str, layer: int, gradient: Tensor, rate: float, count: int) -> None:
        first, second = self._learnt[f"first.{name}"][layer], self._learnt[f"second.{name}"][layer]
        first.mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        size = (second / (1 - BETA2**count)).sqrt_().add_(EPS)
        self._learnt[f"value.{name}"][layer].sub_(rate * (first / (1 - BETA1**count)) / size)

    def _rows(self, number: int) -> Float[Tensor, "layer pos d_model"]:
        """The states of this step's positions: a seeded choice among those of some windows, twice as many."""
        settings = self.settings
        n_windows = max(1, -(-2 * settings.rows // settings.window))
        states = self._states(number, n_windows, training=True)
        chosen = np.random.default_rng([settings.seed, number]).permutation(states.shape[1])[: settings.rows]
        return states[:, torch.from_numpy(chosen)]

    def _states(self, index: int, n_windows: int, *, training: bool = False) -> Float[Tensor, "layer pos d_model"]:
        """All layers of some windows in float32, sequences one after the other. The start and the steps draw apart."""
        seed = 2 * self.settings.seed + training
        ids = windows(self.model, self.split.batch(seed, index, n_windows, self.settings.window - 1)[0])
        return take_states(self.model, ids).values.flatten(1, 2).float().cpu()


NAMES = ("matrix", "vector")
KINDS = ("value", "first", "second")


def known_rows(model: Transformer) -> int:
    """How many rows of the table mean something: those that the tokenizer knows, or all without one."""
    vocab_size = model.spec.embedding.vocab_size
    return vocab_size if model.tokenizer is None else min(model.tokenizer.vocab_size, vocab_size)


def windows(model: Transformer, ids: Int[np.ndarray, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """Windows of a text as the model reads them: the start token before each where it was trained with one."""
    tokenizer = model.tokenizer
    if tokenizer is not None and tokenizer.adds_start:
        return torch.tensor([with_start(tokenizer, row) for row in ids.tolist()])
    return torch.from_numpy(ids)


def held_out(
    split: TokenSplit, window: int, n_tokens: int
) -> Iterator[tuple[Int[np.ndarray, "batch pos"], Int[np.ndarray, "batch pos"]]]:
    """Windows side by side, each token a target once, until so many tokens have been read."""
    read = 0
    for inputs, targets in split.windows(window, max(1, BATCH_TOKENS // window)):
        if read >= n_tokens:
            return
        rows = max(1, -(-(n_tokens - read) // inputs.shape[1]))
        yield inputs[:rows], targets[:rows]
        read += inputs[:rows].size
