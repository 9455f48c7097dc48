"""The training loop: batch, loss, gradient, clip, step; then log, evaluate, save.

    windows of ids ── model ── logits ── loss ── gradient ── clip ── step ── new weights
       f(seed, step)                                                 rate(step)

Everything random is a function of (seed, step, micro-step), so a run that was killed goes on with the same numbers.
Observers are called after each record, a watch around each update; the loop knows none of them. The next file to read is
watching.py.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.native import retained
from unembed.checkpoints.run.state import restore_model, restore_optimizer
from unembed.corpora.windows import TokenSplit
from unembed.errors import Interrupted, NotFiniteError, UsageError
from unembed.model.factor import retract
from unembed.model.transformer import Transformer
from unembed.objectives import LossSum
from unembed.optim.make import make_optimizer
from unembed.optim.schedules import learning_rate
from unembed.training.config import RunConfig, TyingConfig
from unembed.training.finite import advice, bad_weights, not_finite_step, not_finite_validation
from unembed.training.forward import Batch, dropout_seed, own_batch
from unembed.training.parallel import Parallel, check_shares
from unembed.training.profile import Parts, no_profile
from unembed.training.samples import Sampler
from unembed.training.signals import farewell, named_by_any, noted_signals
from unembed.training.validation import Validation, evaluate
from unembed.training.watching import Observer, StepWatch, no_watch

logger = logging.getLogger(__name__)


class Trainer:
    """One run in progress. `step()` does a single optimizer step, `run()` all that are left.

    `step_number` counts the steps done. `seconds` is the time of the steps alone; evaluation and saving do not count.
    `validation` holds the last validation loss and the best. `why_not_compiled` is known after `prepare`.
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
        sampler: Sampler | None = None,
        watch: StepWatch | None = None,
        profile: Parts = no_profile,
        parallel: Parallel | None = None,
    ) -> None:
        if watch is None and config.training.tying != TyingConfig():
            raise UsageError(
                "training.tying is set, but the trainer has no watch; give one (tying/watch.py), or use train"
            )
        self.model, self.config, self.train, self.val = model, config, train, val
        self.parallel = parallel or Parallel()
        self.processes = self.parallel.processes
        check_shares(config.training, self.processes.n, config.model)
        self.run_folder, self.observers, self.sampler = run, tuple(observers), sampler
        self._logs = run if self.processes.is_first else None  # one process writes them
        self.watch: StepWatch = no_watch if watch is None else watch
        self.profile = profile
        self.optimizer, self.group_sizes = make_optimizer(model, config.training)
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.step_number = self.tokens = 0
        self.seconds, self._has_start = 0.0, False
        self.last_loss: float | None = None
        self.validation = Validation()
        self.why_not_compiled: str | None = None
        self._micro_loss: Callable[..., LossSum] | None = None

    def prepare(self) -> None:
        """Compiles the blocks and lets them be run again, as the settings say; the first step calls it if nobody has.

        The weights are where they are to stay by then. Its time counts as that of steps.
        """
        if self._micro_loss is None:
            started = time.perf_counter()
            with self.profile.part("compiling"):
                self._micro_loss, self.why_not_compiled = self.parallel.prepared(self.model, self.config)
            self.seconds += time.perf_counter() - started

    def step(self) -> tuple[float, float]:
        """Does one optimizer step and returns the loss (nats per counted token) and the gradient's norm before clipping.

        The loss is the mean over all counted tokens of all micro-batches and processes: a short one weighs as its tokens do.
        A step without a counted token changes nothing, and a warning says so. Raises: NotFiniteError, the weights being
        as before the step.
        """
        self.prepare()
        training, started = self.config.training, time.perf_counter()
        with self.profile.part("data"):
            batches = [self._batch(micro) for micro in range(training.accumulate)]
        n_tokens = round(self.processes.sums(sum(count for _, _, count in batches))[0])
        rate = learning_rate(training.schedule, self.step_number, training.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        local_total = sum(self._learn_from(batches, n_tokens))
        (total,) = self.processes.sums(local_total)
        loss_nats = total / n_tokens if n_tokens else 0.0
        with self.profile.part("optimizer"):
            norm = self.parallel.norm(self._parameters)
            self._refuse_not_finite(loss_nats, norm, rate)
            norm_before_clipping = norm.item()
            record = self._update(norm, n_tokens)
        self.step_number, self.tokens = self.step_number + 1, self.tokens + n_tokens
        self.last_loss = loss_nats
        self.seconds += time.perf_counter() - started
        if record is not None and self._logs is not None:
            self._logs.append_tying(record)
        return loss_nats, norm_before_clipping

    def _learn_from(self, batches: Sequence[Batch], n_tokens: int) -> Iterator[float]:
        """Adds the gradients of each micro-batch up, sends them with the last one, and gives each loss as a sum."""
        training, number = self.config.training, self.step_number
        assert self._micro_loss is not None, "prepare comes first"
        for micro, (ids, targets, _) in enumerate(batches):
            seed = dropout_seed(self.config.seed, number, micro, rank=self.processes.rank)
            tap = self.watch.tap(number + 1, ids)
            with self.parallel.micro_step(self.model, is_last=micro == len(batches) - 1):
                loss = self._micro_loss(training, ids, targets, tap=tap, seed=seed, profile=self.profile)
                with self.profile.part("backward"):
                    # processes average their gradients, and the sum is wanted
                    torch.autograd.backward(loss.total / (max(1, n_tokens) / self.processes.n))
            yield loss.total.item()

    def _update(self, norm: Tensor, n_tokens: int) -> Mapping[str, Any] | None:
        """Clips, steps, and lets the watch see the gradients before and what became of them."""
        number, limit = self.step_number + 1, self.config.training.clip_norm
        with self.profile.part("table"):
            self.watch.before_update(number)
        factor = 1.0 if limit is None else min(1.0, limit / (norm.item() + 1e-6))  # as clip_grads_with_norm_ has it
        if n_tokens:
            if limit is not None and factor < 1:  # all gradients are scaled down together; by 1 would change no bit
                torch.nn.utils.clip_grads_with_norm_(self._parameters, limit, norm, foreach=True)
            self.optimizer.step()
            retract(self.model)
        else:
            logger.warning("step %d: every label is ignored, so the step changes nothing", number)
        with self.profile.part("table"):
            return self.watch.after_update(number, factor)

    @property
    def stops_early(self) -> bool:
        """Whether `early_stop` evaluations in a row were no better than the best."""
        return 0 < self.config.training.early_stop <= self.validation.n_worse

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done, or the run has stopped early."""
        return self.step_number >= self.config.training.steps or self.stops_early

    def run(self, on_signal: Callable[[str], None] = lambda name: None) -> None:
        """Does the steps that are left, logging, evaluating, sampling and saving on the way.

        `on_signal` is handed the name of a SIGINT or SIGTERM as it comes (signals.py). Raises: Interrupted after one, the
        checkpoint of the last finished step being written; NotFiniteError when a loss, a gradient or a weight is not finite;
        nothing is saved then.
        """
        with noted_signals(on_signal) as stop:
            if not self._has_start:  # a resumed run has it in its log and its folder already
                if self.config.training.eval_at_start:
                    self._evaluate_and_log()
                self._sample()
                self._save()
            while not self.is_finished:
                is_best = self._step_and_log()
                # asked once, of all processes: a signal after the question belongs to the next step
                stops_by = named_by_any(stop, self.processes)
                if is_best or stops_by or self._is_due(self.config.training.checkpoint_every) or self.is_finished:
                    self._save()
                if stops_by and not self.is_finished:
                    folder = None if self.run_folder is None else self.run_folder.path
                    raise Interrupted(farewell(stops_by, self.step_number, folder, self.processes.program))

    def _step_and_log(self) -> bool:
        """One step with its records. Says whether its validation loss is the best so far: the best is always saved."""
        training, best_before = self.config.training, self.validation.best_step
        loss_nats, norm = self.step()
        is_last = self.step_number == training.steps
        if is_last or self._is_due(training.log_every):
            self._record("train", loss_nats, norm)
        if is_last or self._is_due(training.eval_every):
            self._evaluate_and_log()
        every = training.eval_every if training.sample_every is None else training.sample_every
        if every and (self.is_finished or self._is_due(every)):
            self._sample()
        return self.validation.best_step != best_before

    def _is_due(self, every: int) -> bool:
        return self.step_number % every == 0

    def evaluate(self) -> float:
        """Nats per token over the whole validation split (validation.py). Gradients make room for its scores."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.parallel.looking(self.model):
            return evaluate(self.model, self.val, self.config.model.context_length, self.processes)

    def resume(
        self, weights: dict[str, Tensor], optimizer: dict[str, Tensor], state: dict[str, Any], where: str
    ) -> None:
        """Takes up a saved state. Raises: CheckpointError when it belongs to another model."""
        restore_model(self.model, weights, where=where)
        restore_optimizer(self.model, self.optimizer, optimizer, where=where)
        self.step_number, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]
        self.validation, self.last_loss = Validation.of_state(state), state["train_loss_nats"]
        self._has_start = True

    def _batch(self, micro: int) -> Batch:
        device = self.model.embed.table.device
        return own_batch(self.train, self.config, self.step_number, micro, self.processes, device)

    def _refuse_not_finite(self, loss_nats: float, norm: Tensor, rate: float) -> None:
        """Before clipping, which would spread one tensor's NaN over all of them and hide where it came from."""
        if np.isfinite(loss_nats) and norm.isfinite():
            return
        self.last_loss = loss_nats
        self._hand_on(self._line("train", self.step_number + 1, loss_nats, rate, norm.item()))
        raise not_finite_step(self.model, self.config, self.step_number, loss_nats, norm.item(), rate, self.processes)

    def _record(self, split: str, loss_nats: float, norm: float | None) -> None:
        self._hand_on(self._line(split, self.step_number, loss_nats, self._last_rate(), norm))

    def _hand_on(self, record: dict[str, Any]) -> None:
        for observer in self.observers:
            observer(self, record)
        if self._logs is not None:
            self._logs.append_metrics(record)

    def _last_rate(self) -> float:
        """The learning rate of the last step done; of the first one before it."""
        return learning_rate(self.config.training.schedule, max(0, self.step_number - 1), self.config.training.steps)

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
        with self.profile.part("evaluation"):
            loss_nats = self.evaluate()
        self.validation = self.validation.after(self.step_number, loss_nats)
        self._record("val", loss_nats, None)
        if not np.isfinite(loss_nats):
            raise not_finite_validation(
                self.model, self.config, self.step_number, loss_nats, self._last_rate(), self.processes
            )

    def _sample(self) -> None:
        """Lets the model write, and notes it down. No number of the training depends on it."""
        if self.sampler is None or self.config.training.sample_every == 0:
            return
        self._refuse_bad_weights()  # nothing can be drawn from them
        with self.profile.part("sampling"), self.parallel.looking(self.model):
            record = self.sampler(self.model, self.step_number)
        for observer in self.observers:
            observer(self, record)
        if self._logs is not None:
            self._logs.append_sample({name: value for name, value in record.items() if name != "split"})

    def _refuse_bad_weights(self) -> None:
        if bad := bad_weights(self.model, self.processes):
            why = f"step {self.step_number}: not finite: {bad}. Nothing was saved and the last checkpoint is as it was."
            raise NotFiniteError(f"{why} {advice(self.config, self.step_number, self._last_rate())}")

    def _save(self) -> None:
        if self.run_folder is None:
            return
        self._refuse_bad_weights()  # a checkpoint that cannot be gone on from would push out one that can
        state = {
            "step": self.step_number,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "train_loss_nats": self.last_loss,
            **self.validation.to_state(),
        }
        with self.profile.part("saving"):
            keep = partial(retained, best=self.validation.best_step, keep_every=self.config.training.keep_every)
            self.parallel.save(self.run_folder, self.step_number, self.model, self.optimizer, state, keep=keep)
