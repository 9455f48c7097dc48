"""How large a model, and how many steps, a time budget and a text allow: the arithmetic behind the recipe small.

It depends on its arguments alone, never on a clock: the speed that turns minutes into tokens is a constant, so another
machine needs more or less time, not another model. The numbers below were measured (docs/decisions/0005-small.md).
Before it: small.py.
"""

from dataclasses import dataclass
from typing import Literal

from unembed.model.counts import count
from unembed.model.presets.row import attention, embedding, head
from unembed.model.spec import Block, Causal, PlainMlp, RmsNorm, Rotary, Serial, TransformerSpec
from unembed.planning.flops import flops

# What two cores of 2024 sustain: products at this rate, and for everything between them so much per token.
FLOPS_PER_SECOND = 80e9
SECONDS_PER_TOKEN = 20e-6
D_HEAD = 32
# d_model and layers; sizes grow about twofold from one to the next.
LADDER = ((64, 2), (96, 3), (128, 4), (192, 4), (256, 4), (320, 6), (448, 6), (512, 8), (768, 12))
# Tokens seen per parameter: below this a smaller model learns as much in the same time (arXiv:2203.15556 finds about 20
# best; a few less leave room for going on).
TOKENS_PER_PARAMETER = 4
# Reading one text more often than this teaches little new (arXiv:2305.16264, section 4).
MOST_EPOCHS = 24
# Tokens a step: as many as leave a short run enough steps to learn by.
BATCH_TOKENS, FEWEST_STEPS = (2048, 1024, 512), 300
# Evaluations take at most about this share of the time, the one at the start and the one at the end aside.
EVALUATION_SHARE = 0.2
MOST_EVALUATIONS = 10


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What there is to spend: a text of so many tokens to learn from, minutes, and what the user has fixed already."""

    n_train_tokens: int
    minutes: float
    steps: int | None = None
    batch_size: int | None = None
    context_length: int | None = None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A model and its steps; `bound` is what ended them: the minutes, the text (read often enough), or the steps asked."""

    spec: TransformerSpec
    steps: int
    batch_size: int
    bound: Literal["minutes", "text", "steps"]
    is_smallest: bool

    @property
    def n_tokens(self) -> int:
        """The tokens that the run sees, repeated ones included."""
        return self.steps * self.batch_size * self.spec.context_length

    @property
    def minutes(self) -> float:
        """About how long the steps take on two cores."""
        return self.n_tokens * seconds_per_token(self.spec) / 60

    def evaluation_minutes(self, n_val_tokens: int) -> float:
        """About how long one evaluation takes: a forward pass, a third of a step's work."""
        return n_val_tokens * seconds_per_token(self.spec) / 3 / 60

    def eval_every(self, n_val_tokens: int) -> int:
        """The steps between evaluations: a tenth of the run, or more where the held-out part is large."""
        affordable = EVALUATION_SHARE * self.minutes / max(1e-9, self.evaluation_minutes(n_val_tokens))
        return max(50, self.steps // max(1, min(MOST_EVALUATIONS, int(affordable))))


def choose(vocab_size: int, budget: Budget) -> Choice:
    """The largest model of the ladder that sees enough tokens in the budget, and the steps that fill it."""
    context_length = budget.context_length or _context_length(budget.n_train_tokens)
    best: Choice | None = None
    for d_model, n_layers in LADDER:
        spec = spec_of(vocab_size, context_length, d_model, n_layers)
        batch_size = budget.batch_size or _batch_size(spec, budget)
        steps, bound = _steps(spec, batch_size, budget)
        choice = Choice(spec=spec, steps=steps, batch_size=batch_size, bound=bound, is_smallest=best is None)
        if best is None or choice.n_tokens >= TOKENS_PER_PARAMETER * count(spec).parameters:
            best = choice
    assert best is not None
    return best


def seconds_per_token(spec: TransformerSpec) -> float:
    """About how long a token of a training step takes on two cores."""
    return flops(spec).training / FLOPS_PER_SECOND + SECONDS_PER_TOKEN


def spec_of(vocab_size: int, context_length: int, d_model: int, n_layers: int) -> TransformerSpec:
    """Rotary positions, RMSNorm, normed queries and keys, squared ReLU, a tied head."""
    norm = RmsNorm(eps=1e-6, gain="plain")
    rotary = Rotary(theta=10_000.0, pairing="half", fraction=1.0, scaling=None)
    block = Block(
        attention=attention(d_model // D_HEAD, D_HEAD, position=rotary, sees=Causal(window=None), qk_norm=norm),
        mlp=PlainMlp(d_mlp=4 * d_model, activation="relu_squared", has_bias=False),
        norm=norm,
        residual=Serial(norm_at="pre"),
    )
    return TransformerSpec(
        context_length=context_length,
        embedding=embedding(vocab_size, d_model),
        blocks=(block,) * n_layers,
        final_norm=norm,
        head=head(is_tied=True),
    )


def _batch_size(spec: TransformerSpec, budget: Budget) -> int:
    """The largest batch that leaves enough steps; where their number is given, that does not read the text too often."""
    most = MOST_EPOCHS * budget.n_train_tokens
    free = min(most, _affordable(spec, budget)) // FEWEST_STEPS
    fitting = free if budget.steps is None else most // budget.steps
    per_step = next((size for size in BATCH_TOKENS if size <= fitting), BATCH_TOKENS[-1])
    return max(1, per_step // spec.context_length)


def _affordable(spec: TransformerSpec, budget: Budget) -> int:
    return int(60 * budget.minutes / seconds_per_token(spec))


def _steps(spec: TransformerSpec, batch_size: int, budget: Budget) -> tuple[int, Literal["minutes", "text", "steps"]]:
    if budget.steps is not None:
        return budget.steps, "steps"
    per_step = batch_size * spec.context_length
    affordable = _affordable(spec, budget)
    most = MOST_EPOCHS * budget.n_train_tokens
    return max(1, min(affordable, most) // per_step), "minutes" if affordable <= most else "text"


def _context_length(n_train_tokens: int) -> int:
    """128, or less where the text would hold few windows of it: the largest power of two that fits 150 times, from 8."""
    fitting = max(8, n_train_tokens // 150)
    return min(128, 1 << (fitting.bit_length() - 1))
