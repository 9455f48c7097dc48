"""The training loop: batch, loss, gradient, clip, step; then log, evaluate, save.

    windows of ids ── model ── logits ── loss ── gradient ── clip ── AdamW ── new weights
       f(seed, step)                                                 rate(step)

Everything random is a function of (seed, step, micro-step), so a run that was killed goes on with the same numbers.
Observers are called after each record and may look at everything; the loop knows none of them. The next file to read is
signals.py.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from unembed.checkpoints.run_folder import RunFolder, retained
from unembed.checkpoints.state import model_tensors, optimizer_tensors, restore_model, restore_optimizer
from unembed.corpora.windows import TokenSplit
from unembed.errors import Interrupted, NotFiniteError
from unembed.model.transformer import Transformer
from unembed.objectives import IGNORED, LossSum, next_token_loss
from unembed.optim.adamw import make_adamw
from unembed.optim.schedules import learning_rate
from unembed.training.config import RunConfig
from unembed.training.signals import noted_signals

logger = logging.getLogger(__name__)

EVAL_TOKENS_AT_ONCE = 8192


class Observer(Protocol):
    """Somebody who watches a run: a progress line, a sampler, a recorder of gradients."""

    def __call__(self, trainer: "Trainer", record: dict[str, Any]) -> None:
        """Called after each record is made (split `train` or `val`), before it is written."""
        ...


class Trainer:
    """One run in progress. `step()` does a single optimizer step, `run()` all that are left.

    `step_number` counts the steps done. `seconds` is the time of the steps alone; evaluation and saving do not count.
    """

    def __init__(
        self,
        model: Transformer,
        config: RunConfig,
        train: TokenSplit,
        val: TokenSplit,
        *,
        run: RunFolder | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.model, self.config, self.train, self.val = model, config, train, val
        self.run_folder, self.observers = run, tuple(observers)
        self.optimizer, self.group_sizes = make_adamw(model, config.training.optimizer)
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.step_number = 0
        self.tokens = 0
        self.seconds = 0.0
        self.best: tuple[int, float] | None = None
        self.last_loss: float | None = None
        self.val_loss: float | None = None
        if config.training.compile:
            for block in model.blocks:
                block.compile()

    def step(self) -> tuple[float, float]:
        """Does one optimizer step and returns the loss (nats per counted token) and the gradient's norm before clipping.

        The loss is the mean over all counted tokens of all micro-batches, so a short one weighs no more than its tokens.
        A step without a counted token changes nothing, and a warning says so. Raises: NotFiniteError, the weights being
        as before the step.
        """
        training, started = self.config.training, time.perf_counter()
        batches = [self._batch(micro) for micro in range(training.accumulate)]
        n_tokens = sum(count for _, _, count in batches)
        rate = learning_rate(training.schedule, self.step_number, training.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for micro, (ids, targets, _) in enumerate(batches):
            loss = self._loss(ids, targets, micro)
            torch.autograd.backward(loss.total / max(1, n_tokens))
            total += loss.total.item()
        loss_nats = total / n_tokens if n_tokens else 0.0
        norm = self._gradient_norm()
        self._refuse_not_finite(loss_nats, norm, rate)
        if n_tokens:
            self._clip(norm)
            self.optimizer.step()
        else:
            logger.warning("step %d: every label is ignored, so the step changes nothing", self.step_number + 1)
        norm_before_clipping = norm.item()
        self.step_number += 1
        self.tokens += n_tokens
        self.last_loss = loss_nats
        self.seconds += time.perf_counter() - started
        return loss_nats, norm_before_clipping

    def run(self) -> None:
        """Does the steps that are left, logging, evaluating and saving on the way.

        Raises: Interrupted after a SIGINT or SIGTERM, the checkpoint of the last finished step being written;
        NotFiniteError when a loss, a gradient or a weight is not finite; nothing is saved then.
        """
        training = self.config.training
        with noted_signals() as stop:
            if self.step_number == 0 and self.val_loss is None:  # a resumed run has its start in the log already
                self._evaluate_and_log()
                self._save()
            while self.step_number < training.steps:
                loss_nats, norm = self.step()
                is_last = self.step_number == training.steps
                if self.step_number % training.log_every == 0 or is_last:
                    self._record("train", loss_nats, norm)
                if self.step_number % training.eval_every == 0 or is_last:
                    self._evaluate_and_log()
                stops_here = bool(stop)  # asked once: a signal after the question belongs to the next step
                if stops_here or self.step_number % training.checkpoint_every == 0 or is_last:
                    self._save()
                if stops_here and not is_last:
                    raise Interrupted(
                        f"stopped by {stop[0]} after step {self.step_number}, which is saved; go on with --resume"
                    )

    @torch.no_grad()
    def evaluate(self) -> float:
        """Nats per token over the whole validation split: each token once, in windows that do not overlap."""
        context_length = self.config.model.context_length
        batch = max(1, EVAL_TOKENS_AT_ONCE // context_length)
        total, n_tokens = 0.0, 0
        for inputs, targets in self.val.windows(context_length, batch):
            loss = next_token_loss(self.model(self._tensor(inputs)), self._tensor(targets))
            total += loss.total.item()
            n_tokens += int(loss.n_tokens)
        return total / n_tokens

    def resume(
        self, weights: dict[str, Tensor], optimizer: dict[str, Tensor], state: dict[str, Any], where: str
    ) -> None:
        """Takes up a saved state. Raises: CheckpointError when it belongs to another model."""
        restore_model(self.model, weights, where=where)
        restore_optimizer(self.model, self.optimizer, optimizer, where=where)
        self.step_number, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]
        self.best = None if state["best"] is None else (state["best"]["step"], state["best"]["val_loss_nats"])
        self.val_loss, self.last_loss = state["val_loss_nats"], state["train_loss_nats"]

    def _batch(self, micro: int) -> tuple[Tensor, Tensor, int]:
        training = self.config.training
        index = self.step_number * training.accumulate + micro
        inputs, targets = self.train.batch(
            self.config.seed, index, training.batch_size, self.config.model.context_length
        )
        return self._tensor(inputs), self._tensor(targets), int((targets != IGNORED).sum())

    def _loss(self, ids: Tensor, targets: Tensor, micro: int) -> LossSum:
        dropout = self.config.training.dropout
        if dropout == 0:
            return next_token_loss(self.model(ids), targets)
        devices = [] if ids.device.type == "cpu" else [ids.device]
        with torch.random.fork_rng(devices):
            torch.manual_seed(dropout_seed(self.config.seed, self.step_number, micro, rank=0))
            return next_token_loss(self.model(ids, dropout=dropout), targets)

    def _gradient_norm(self) -> Tensor:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return torch.nn.utils.get_total_norm(gradients, foreach=True)

    def _clip(self, norm: Tensor) -> None:
        """Scales all gradients down together where their norm exceeds the limit."""
        if (limit := self.config.training.clip_norm) is not None:
            torch.nn.utils.clip_grads_with_norm_(self._parameters, limit, norm, foreach=True)

    def _refuse_not_finite(self, loss_nats: float, norm: Tensor, rate: float) -> None:
        """Before clipping, which would spread one tensor's NaN over all of them and hide where it came from."""
        if np.isfinite(loss_nats) and norm.isfinite():
            return
        self.last_loss = loss_nats
        bad = [name for name, p in self.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
        where = self._bad_weights() or (f"gradients of {bad[:3]}" if bad else "")
        where = where or ("the loss" if np.isfinite(norm.item()) else "the norm, for its square overflows")
        step = self.step_number + 1
        if self.run_folder is not None:
            self.run_folder.append_metrics(self._line("train", step, loss_nats, rate, norm.item()))
        raise NotFiniteError(
            f"step {step}: loss {loss_nats} nats, gradient norm {norm.item()}; not finite: {where}. The step was not taken "
            f"and the last checkpoint is as it was. Try a lower learning_rate (now {rate:.3g}) or a longer warm-up."
        )

    def _bad_weights(self) -> str:
        names = [name for name, p in self.model.named_parameters() if not p.isfinite().all()]
        return f"weights {names[:3]}" if names else ""

    def _record(self, split: str, loss_nats: float, norm: float | None) -> None:
        rate = learning_rate(self.config.training.schedule, max(0, self.step_number - 1), self.config.training.steps)
        record = self._line(split, self.step_number, loss_nats, rate, norm)
        for observer in self.observers:
            observer(self, record)
        if self.run_folder is not None:
            self.run_folder.append_metrics(record)

    def _line(self, split: str, step: int, loss_nats: float, rate: float, norm: float | None) -> dict[str, Any]:
        return {
            "step": step,
            "split": split,
            "loss_nats": loss_nats,
            "learning_rate": rate,
            "grad_norm": norm,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }

    def _evaluate_and_log(self) -> None:
        self.val_loss = self.evaluate()
        is_finite = bool(np.isfinite(self.val_loss))
        if is_finite and (self.best is None or self.val_loss < self.best[1]):
            self.best = (self.step_number, self.val_loss)
        self._record("val", self.val_loss, None)
        if not is_finite:
            raise NotFiniteError(
                f"step {self.step_number}: validation loss {self.val_loss} nats; not finite: "
                f"{self._bad_weights() or 'the loss'}. The last checkpoint is as it was. Try a lower learning_rate."
            )

    def _save(self) -> None:
        if self.run_folder is None:
            return
        if bad := self._bad_weights():  # a checkpoint that cannot be gone on from would push out one that can
            raise NotFiniteError(
                f"step {self.step_number}: not finite: {bad}. Nothing was saved and the last checkpoint is as it was. "
                "Try a lower learning_rate."
            )
        best = None if self.best is None else {"step": self.best[0], "val_loss_nats": self.best[1]}
        state = {
            "step": self.step_number,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "best": best,
            "val_loss_nats": self.val_loss,
            "train_loss_nats": self.last_loss,
        }
        self.run_folder.save_checkpoint(
            self.step_number,
            weights=model_tensors(self.model),
            optimizer=optimizer_tensors(self.model, self.optimizer),
            state=state,
        )
        steps = [checkpoint.step for checkpoint in self.run_folder.checkpoints()]
        best_step = None if self.best is None else self.best[0]
        keep = retained(steps, best=best_step, keep_every=self.config.training.keep_every)
        self.run_folder.prune(keep=keep)

    def _tensor(self, ids: np.ndarray) -> Tensor:
        return torch.from_numpy(ids).to(self.model.embed.table.device)


def dropout_seed(seed: int, step: int, micro: int, *, rank: int) -> int:
    """One number for each place where a training step draws at random, different for every place."""
    return int(np.random.SeedSequence([seed, step, micro, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))
