"""What a profile says in words: where the time went, which share of the machine's peak that is, and what to change.

Advice is given where a part takes more than it usually does, names the setting as it stands, and says nothing that was not
measured in this very run. The next file to read is ../training/profile.py, which measures.
"""

from collections.abc import Callable, Iterator, Sequence

from unembed.model.product import measure_flops
from unembed.planning.flops import flops
from unembed.results import Table
from unembed.training.loop import Trainer
from unembed.training.profile import OF_STEPS, Profile
from unembed.visible import counted

BETWEEN = "between"
# Above these shares something can be gained: of the steps' time, or of all the time.
MUCH = {
    "loss": 0.35,
    "optimizer": 0.25,
    "data": 0.05,
    "table": 0.05,
    "compiling": 0.2,
    "evaluation": 0.2,
    "sampling": 0.1,
    "saving": 0.1,
}
LOW_SHARE_OF_PEAK = 0.3
MOST_ADVICE = 3


def profile_table(profile: Profile) -> Table:
    """Part, seconds and share of all the time, the longest part first; parts that never came are left out."""
    seconds = {**profile.seconds, BETWEEN: profile.between}
    found = sorted(((one, name) for name, one in seconds.items() if one > 0), reverse=True)
    total = sum(one for one, _ in found) or 1.0
    columns = {
        "part": [name for _, name in found],
        "seconds": [one for one, _ in found],
        "share": [one / total for one, _ in found],
    }
    return Table(columns=columns, units={"seconds": "s"})


def in_milliseconds(table: Table) -> Table:
    """The same table for people: a part may take minutes or a few microseconds, which in seconds reads as 8.9e-05."""
    columns = {
        "part": table["part"].tolist(),
        "milliseconds": [round(1000 * float(one), 3) for one in table["seconds"]],
        "share": [round(float(one), 4) for one in table["share"]],
    }
    return Table(columns=columns, units={"milliseconds": "ms"})


def tell(trainer: Trainer, profile: Profile, say: Callable[[str], None]) -> None:
    """Says the sentences of `in_words`."""
    for sentence in in_words(trainer, profile):
        say(sentence)


def in_words(trainer: Trainer, profile: Profile, *, peak_flops: float | None = None) -> Iterator[str]:
    """The sentences after a run. `peak_flops` is what the machine can do; it is measured now unless it is given."""
    n_steps, n_tokens = trainer.step_number - profile.n_steps_before, trainer.tokens - profile.n_tokens_before
    table = profile_table(profile)
    total = float(table["seconds"].sum())
    of_steps = sum(profile.seconds[name] for name in OF_STEPS if name != "compiling")
    if n_steps == 0 or of_steps == 0:
        yield "profile: no step was done, so there is nothing to tell"
        return
    shares = [(part, share) for part, share in zip(table["part"], table["share"], strict=True) if share >= 0.005]
    told = ", ".join(f"{str(part).replace('_', ' ')} {share:.0%}" for part, share in shares)
    yield f"profile: {total:,.1f} s for {counted(n_steps, 'step')} and all around them: {told}"
    reached = flops(trainer.config.model).training * n_tokens / of_steps
    peak = measure_flops(trainer.model.embed.table.device.type) if peak_flops is None else peak_flops
    yield (
        f"profile: a step takes {1000 * of_steps / n_steps:,.1f} ms; its products of matrices make "
        f"{reached / 1e9:,.1f} GFLOP/s, {reached / peak:.0%} of the {peak / 1e9:,.1f} that one large float32 product reaches "
        "here, measured now"
    )
    given = _advice(trainer, profile, of_steps, total, reached / peak)
    yield from [f"advice: {sentence}" for sentence in given[:MOST_ADVICE]] or [
        "advice: nothing stands out; the time goes into the model's own products"
    ]


def _advice(trainer: Trainer, profile: Profile, of_steps: float, total: float, of_peak: float) -> Sequence[str]:
    """What can be gained, the most first."""
    training, spec, seconds = trainer.config.training, trainer.config.model, profile.seconds
    loss = seconds["loss"] + seconds["loss_backward"]
    per_step = training.batch_size * training.accumulate * spec.context_length
    saves = (
        "its scores are made in pieces already"
        if training.chunked_loss
        else "--set chunked_loss=true makes the scores in pieces, which saves memory and costs little time"
    )
    shares = {
        "loss": (
            loss / of_steps,
            f"the loss and the scores take {{share}} of the steps, because every token is scored against "
            f"{spec.embedding.vocab_size:,} entries; a smaller vocabulary costs less, and {saves}",
        ),
        "optimizer": (
            seconds["optimizer"] / of_steps,
            f"the optimizer takes {{share}} of the steps, and works once a step however many tokens it has (now {per_step:,}); "
            f"a larger batch_size (now {training.batch_size}) gives it less to do per token",
        ),
        "data": (
            seconds["data"] / of_steps,
            "reading windows takes {share} of the steps; is the run's folder on a slow or distant disk?",
        ),
        "table": (
            seconds["table"] / of_steps,
            "noting the table's two gradients takes {share} of the steps; a larger tying.gradient_every (now "
            f"{training.tying.gradient_every}) notes fewer of them",
        ),
        "compiling": (
            seconds["compiling"] / total,
            "compiling takes {share} of all the time, which only a longer run pays back; --set compile=false spares it",
        ),
        "evaluation": (
            seconds["evaluation"] / total,
            f"evaluation takes {{share}} of all the time; a larger eval_every (now {training.eval_every}) evaluates less often",
        ),
        "sampling": (
            seconds["sampling"] / total,
            "writing samples takes {share} of all the time; a larger sample_every, or sample_every=0, spares it",
        ),
        "saving": (
            seconds["saving"] / total,
            f"saving takes {{share}} of all the time; a larger checkpoint_every (now {training.checkpoint_every}) saves less "
            "often",
        ),
    }
    found = sorted(
        ((share, text) for name, (share, text) in shares.items() if share >= MUCH[name]),
        key=lambda one: one[0],
        reverse=True,
    )
    sentences = [text.format(share=f"{share:.0%}") for share, text in found]
    if training.checkpoint_activations:
        sentences.append(
            f"each block is run a second time in the backward pass, about {seconds['forward'] / of_steps:.0%} of the steps; "
            "where memory allows, checkpoint_activations=false spares it"
        )
    if of_peak < LOW_SHARE_OF_PEAK:
        joins = "" if training.compile else ", and --set compile=true joins the small operations between the products"
        sentences.append(
            f"the steps reach {of_peak:.0%} of the peak, because their products are small; a larger batch_size (now "
            f"{training.batch_size}) makes them larger{joins}"
        )
    return sentences
