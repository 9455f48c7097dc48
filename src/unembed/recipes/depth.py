"""One deep, narrow model trained three times: with the shortcut, without it, and with its norms after the additions.

    pre_norm     x + F(norm x)      what most models of today do
    no_shortcut  F(norm x)          the stream is thrown away at every layer
    post_norm    norm(x + F(x))     the original Transformer's way, which needs a warm-up

Nothing else differs: the same start, the same windows in the same order, the same rate from the first step on, no warm-up.
Matrices start at N(0, 1/width read), as in the original, without GPT-2's 1/sqrt(2L) for what writes into the stream: that
factor makes each block almost the identity at first, and hides what is to be seen. The text is that of the tour's grammar,
so the loss of a model that knows nothing but how often each word occurs is known too. The gradient by depth is measured
before the first step and after the last (../lenses/gradient_flow.py).
Source: Xiong et al. 2020, arXiv:2002.04745, sections 3.2 and 3.3. The next file to read is start.py.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from unembed.corpora.grammar import grammar
from unembed.corpora.windows import TokenSplit
from unembed.errors import NotFiniteError, UsageError
from unembed.lenses.gradient_flow import gradient_flow
from unembed.model.init import AndreaInit, build
from unembed.model.presets import preset
from unembed.model.spec import NoShortcut, PlainMlp, Serial, TransformerSpec
from unembed.model.transformer import Transformer
from unembed.optim.adamw import AdamWConfig
from unembed.optim.schedules import Plateau
from unembed.results import Picture, Result, Table
from unembed.training.config import RunConfig, TrainingConfig, with_context_length
from unembed.training.loop import Trainer

RESIDUALS = {"pre_norm": Serial(norm_at="pre"), "no_shortcut": NoShortcut(), "post_norm": Serial(norm_at="post")}
N_LAYERS, N_STEPS = 48, 200
D_MODEL, N_HEADS, D_MLP, CONTEXT, BATCH = 32, 2, 64, 16, 8
LEARNING_RATE = 3e-3
N_WORDS, N_HELD_OUT = 40_000, 2_000
LOG_EVERY = 5
Notice = Callable[[str, int, float], None]


def deep_spec(variant: str, vocab_size: int, n_layers: int = N_LAYERS) -> TransformerSpec:
    """Mini-GPT made narrow and deep, its blocks meeting the stream in the way of a variant. Raises: UsageError."""
    if variant not in RESIDUALS:
        raise UsageError(f"depth: no variant is named {variant!r}; there are {', '.join(RESIDUALS)}")
    mini = with_context_length(preset("mini-gpt").spec, CONTEXT)
    attention = msgspec.structs.replace(mini.blocks[0].attention, n_heads=N_HEADS, n_kv_heads=N_HEADS)
    block = msgspec.structs.replace(
        mini.blocks[0],
        attention=attention,
        mlp=PlainMlp(d_mlp=D_MLP, activation="gelu", has_bias=True),
        residual=RESIDUALS[variant],
    )
    embedding = msgspec.structs.replace(mini.embedding, d_model=D_MODEL, vocab_size=vocab_size)
    return msgspec.structs.replace(mini, embedding=embedding, blocks=(block,) * n_layers)


def compare_depth(
    variants: Sequence[str] = tuple(RESIDUALS),
    *,
    n_layers: int = N_LAYERS,
    n_steps: int = N_STEPS,
    seed: int = 0,
    notice: Notice = lambda variant, step, loss_nats: None,
) -> Result:
    """Trains each variant for `n_steps` and measures the gradient by depth before and after. `notice` hears each step.

    Table `by_depth`: `variant`, `moment` (`before`, `after`), `layer`, and the columns of gradient_flow. Table `training`:
    `variant`, `step` and `loss_nats` before that step; a variant whose numbers stop being finite ends there, and has no
    `after`. Table `variants`: `variant`, held-out `val_loss_nats` and `reaches_first` at both moments.
    Raises: UsageError for a variant or a number that does not exist.
    """
    if n_layers < 1 or n_steps < 1:
        raise UsageError(f"depth: {n_layers} layers and {n_steps} steps; both must be at least 1")
    rules = grammar("en", "mini")
    id_of = {word: index for index, word in enumerate(rules.words)}
    ids = np.array([id_of[word] for word in rules.stream(seed + 1, N_WORDS + N_HELD_OUT)], dtype=np.uint16)
    train, val = TokenSplit("train", ids[:N_WORDS]), TokenSplit("val", ids[N_WORDS:])
    depth: dict[str, list[Any]] = {}
    training: dict[str, list[Any]] = {"variant": [], "step": [], "loss_nats": []}
    whole: dict[str, list[Any]] = {}
    for variant in variants:
        spec = deep_spec(variant, len(rules.words), n_layers)
        trainer = Trainer(_start(spec, seed), _config(spec, n_steps, seed), train, val)
        before = _measure(trainer, depth, variant, "before")
        is_finite = _train(trainer, variant, n_steps, training, notice)
        after = _measure(trainer, depth, variant, "after") if is_finite else None
        row = {
            "variant": variant,
            "val_loss_nats": trainer.evaluate() if is_finite else None,
            "reaches_first_before": before,
            "reaches_first_after": after,
        }
        for name, value in row.items():
            whole.setdefault(name, []).append(value)
    return Result(
        name="flow",
        tables={
            "variants": Table(columns=whole, units={"val_loss_nats": "nats"}),
            "by_depth": Table(columns=depth),
            "training": Table(columns=training, units={"loss_nats": "nats"}),
        },
        values={
            "n_layers": n_layers,
            "steps": n_steps,
            "no_knowledge_nats": rules.ngram_nats(rules.stream(1, 20_000), 1),
        },
        notes=("depth_is_one_seed",),
        pictures=(
            Picture(
                key="by_depth",
                kind="lines",
                table="by_depth",
                x="layer",
                y="stream_grad_log10",
                color="variant",
                facet="moment",
                tooltip=("variant", "moment", "layer", "stream_grad_norm", "grad_norm"),
            ),
            Picture(key="depth_loss", kind="lines", table="training", x="step", y="loss_nats", color="variant"),
        ),
    )


@torch.no_grad()
def _start(spec: TransformerSpec, seed: int) -> Transformer:
    """The same draws for every variant, what writes into the stream being as large as all other matrices."""
    model = build(spec, AndreaInit(), seed=seed)
    for name, parameter in model.named_parameters():
        if name.endswith(("attn.o_proj.weight", "mlp.down.weight")):
            parameter.mul_(math.sqrt(2 * spec.n_layers))
    return model


def _train(trainer: Trainer, variant: str, n_steps: int, training: dict[str, list[Any]], notice: Notice) -> bool:
    """Does the steps and notes the loss; whether all its numbers stayed finite."""
    for step in range(n_steps):
        try:
            loss_nats, _ = trainer.step()
        except NotFiniteError:
            return False
        notice(variant, step + 1, loss_nats)
        if step % LOG_EVERY == 0 or step == n_steps - 1:
            for name, value in (("variant", variant), ("step", step), ("loss_nats", loss_nats)):
                training[name].append(value)
    return True


def _measure(trainer: Trainer, depth: dict[str, list[Any]], variant: str, moment: str) -> float | None:
    """The gradient by depth on held-out windows, added to the table; gives the share that reaches the first layer."""
    inputs, targets = next(trainer.val.windows(CONTEXT, 16))
    found = gradient_flow(trainer.model, torch.from_numpy(inputs), torch.from_numpy(targets))
    flow = found.tables["flow"]
    columns = {"variant": [variant] * flow.n_rows, "moment": [moment] * flow.n_rows, **flow.to_dict()}
    for name, values in columns.items():
        assert isinstance(values, list)
        depth.setdefault(name, []).extend(values)
    share = found.values["reaches_first"]
    return None if share is None else float(share)


def _config(spec: TransformerSpec, n_steps: int, seed: int) -> RunConfig:
    """The full rate from the first step to the last: a warm-up is what post-norm would need."""
    return RunConfig(
        recipe="depth",
        seed=seed,
        model=spec,
        init=AndreaInit(),
        training=TrainingConfig(
            steps=n_steps,
            batch_size=BATCH,
            accumulate=1,
            optimizer=AdamWConfig(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0),
            schedule=Plateau(peak=LEARNING_RATE, floor=0.0, warmup_steps=0, decay_steps=0),
            clip_norm=None,
            dropout=0.0,
            log_every=1,
            eval_every=n_steps,
            checkpoint_every=n_steps,
            keep_every=None,
            compile=False,
        ),
    )
