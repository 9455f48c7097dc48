"""The visible list of everything that can be asked of a run: each entry is a function from a run to a Result.

Adding a line here gives an analysis its section in the report. The order is the order of the page: what came of the run,
then what it says, then what is inside. The next file to read is report/write.py.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from unembed.checkpoints.load import load_checkpoint, open_run, spec_of
from unembed.checkpoints.native import Checkpoint
from unembed.checkpoints.run_folder import RunFolder
from unembed.corpora.grammar import Grammar, grammar
from unembed.corpora.grammar.agreement import sentences
from unembed.corpora.shards import TokenShards
from unembed.errors import InputError, RunError
from unembed.generation.sampling import GREEDY, Sampling
from unembed.generation.texts import continue_text, prompt_ids, tokenizer_of
from unembed.geometry.projections import token_map
from unembed.lenses.agreement import score_agreements
from unembed.lenses.logit_lens import logit_lens
from unembed.model.counts import count
from unembed.model.transformer import Transformer
from unembed.results import Picture, Result, Table
from unembed.tokenizers.base import Tokenizer


@dataclass
class RunView:
    """A run as the analyses see it: its description, its log, and its kept checkpoints as models, loaded once each."""

    folder: RunFolder
    _models: dict[int, Transformer] = field(default_factory=dict)

    @staticmethod
    def open(path: str | Path) -> "RunView":
        """Opens a run that has at least one complete checkpoint. Raises: RunError."""
        view = RunView(open_run(path))
        if not view.checkpoints:
            raise RunError(f"{path}: has no complete checkpoint yet, so there is nothing to look at")
        return view

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints by step."""
        return self.folder.checkpoints()

    def model(self, index: int = -1) -> Transformer:
        """The model of one kept checkpoint: the newest, unless another index is given."""
        checkpoint = self.checkpoints[index]
        if checkpoint.step not in self._models:
            self._models[checkpoint.step] = load_checkpoint(self.folder, checkpoint)
        return self._models[checkpoint.step]

    @property
    def tokenizer(self) -> Tokenizer:
        """The run's tokenizer."""
        return tokenizer_of(self.model())

    @cached_property
    def token_texts(self) -> list[str]:
        """How each id of the vocabulary is shown."""
        return [self.tokenizer.token_text(i) for i in range(self.tokenizer.vocab_size)]

    @property
    def learns_grammar(self) -> bool:
        """Whether the run's text came from a grammar of ours."""
        return "grammar" in self.folder.description.get("data", {})

    def grammar(self) -> Grammar:
        """The grammar that wrote the run's text."""
        source = self.folder.description["data"]["grammar"]
        return grammar(source["language"], source["size"])


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One entry: its name (the report's section), its function, and for which runs it makes sense."""

    name: str
    make: Callable[[RunView], Result]
    applies: Callable[[RunView], bool] = lambda run: True


def loss(run: RunView) -> Result:
    """The loss over the steps, training and validation, beside the floor where it is known."""
    records = run.folder.metrics()
    for number, record in enumerate(records, start=1):
        if absent := {"split", "loss_nats", "tokens", "seconds"} - set(record):
            raise RunError(
                f"{run.folder.path}/metrics.jsonl: record {number} has no {', '.join(sorted(absent))}; was it edited?"
            )
    floors = dict(run.folder.description.get("floors", {}))
    steps = [record for record in records if record["loss_nats"] is not None]
    last = next((r for r in reversed(steps) if r["split"] == "val"), None)
    values: dict[str, Any] = {"val_loss_nats": None if last is None else last["loss_nats"]}
    if last is not None:
        values |= {"steps": last["step"], "tokens": last["tokens"], "seconds": last["seconds"]}
    if last is not None and "entropy_floor" in floors:
        values |= {
            "entropy_floor_nats": floors["entropy_floor"],
            "ratio": last["loss_nats"] / floors["entropy_floor"],
        }
    table = Table(
        columns={name: [record[name] for record in steps] for name in ("step", "split", "loss_nats")},
        units={"loss_nats": "nats"},
    )
    tables = {"loss": table}
    if floors:
        tables["floors"] = Table(columns={"name": list(floors), "y": list(floors.values())}, units={"y": "nats"})
    picture = Picture(
        key="loss",
        kind="lines",
        table="loss",
        x="step",
        y="loss_nats",
        color="split",
        tooltip=("step", "split", "loss_nats"),
        rules_table="floors" if floors else None,
    )
    return Result(name="loss", tables=tables, values=values, pictures=(picture,))


def samples(run: RunView) -> Result:
    """What the model wrote at each kept checkpoint, from the same seed, and several texts of the newest."""
    steps, texts = [], []
    tokens = min(40, run.model().spec.context_length)
    for index, checkpoint in enumerate(run.checkpoints):
        is_last = index == len(run.checkpoints) - 1
        for seed in range(3 if is_last else 1):
            result = continue_text(
                run.model(index), _opening(run), n_tokens=tokens, sampling=Sampling(temperature=0.8), seed=seed
            )
            steps.append(checkpoint.step)
            texts.append(result.values["text"])
    return Result(name="samples", tables={"samples": Table(columns={"step": steps, "text": texts})})


def parameters(run: RunView) -> Result:
    """The accounts of the model, part by part, and what sharing the table saves."""
    counted = count(spec_of(run.folder))
    parts = {part: n for part, n in counted.by_part.items() if n}
    table = Table(
        columns={
            "part": list(parts),
            "parameters": list(parts.values()),
            "share": [n / counted.parameters for n in parts.values()],
        }
    )
    return Result(
        name="parameters",
        tables={"by_part": table},
        values={
            "parameters": counted.parameters,
            "parameters_untied": counted.parameters_untied,
            "table_parameters": counted.table_parameters,
            "tied": counted.tied,
            "tying_saves": counted.tying_saves if counted.tied else 0,
        },
        pictures=(
            Picture(
                key="parameters",
                kind="bars",
                table="by_part",
                x="parameters",
                y="part",
                tooltip=("part", "parameters", "share"),
            ),
        ),
    )


def lens(run: RunView) -> Result:
    """The logit lens on a short text that the model itself wrote, greedily."""
    model, tokenizer = run.model(), run.tokenizer
    n = min(14, model.spec.context_length - 1)
    written = continue_text(model, _opening(run), n_tokens=n, sampling=GREEDY, seed=0).values
    start, is_text = prompt_ids(tokenizer, _opening(run))
    ids = [*start, *written["ids"]][-n:] if is_text else list(written["ids"])[:n] or start
    found = logit_lens(model, ids, texts=run.token_texts)
    # the page shows single numbers and the picture; the arrays stand in its table
    single = {"n_layers": model.spec.n_layers, "identity_error": found.values["identity_error"]}
    return replace(found, tables={"lens": found.tables["lens"]}, values=single)


def token_space(run: RunView) -> Result:
    """The token table before training and after, as planes, with the neighbours of the tokens that moved the most."""
    texts = run.token_texts[:400]  # more points than this hide each other
    tables = [("before", run.model(0).embed.table), ("after", run.model().embed.table)]
    groups = None
    if run.learns_grammar:
        parts = _parts_of_speech(run.grammar())
        groups = [parts.get(text, "special") for text in texts]
    return token_map(tables, texts, groups=groups)


def agreement(run: RunView) -> Result:
    """How many long agreements of the grammar the model gets right, on sentences that it has not read."""
    shards = TokenShards.open(run.folder.path / "data", verifies=False)
    read = sentences(run.token_texts[i] for i in shards.train.ids.tolist())
    return score_agreements(run.model(), run.tokenizer, run.grammar(), exclude=read)


ANALYSES: tuple[Analysis, ...] = (
    Analysis(name="loss", make=loss),
    Analysis(name="agreement", make=agreement, applies=lambda run: run.learns_grammar),
    Analysis(name="samples", make=samples),
    Analysis(name="parameters", make=parameters),
    Analysis(name="lens", make=lens),
    Analysis(name="token_map", make=token_space, applies=lambda run: _has_a_plane(run)),
)


def _has_a_plane(run: RunView) -> bool:
    """Whether the table is large enough to be seen as a plane; a text of one letter makes a table of one row."""
    return min(run.tokenizer.vocab_size, run.model().spec.embedding.d_model) >= 2


def _parts_of_speech(rules: Grammar) -> dict[str, str]:
    """The part of speech that each word has most often in a stretch of the grammar's text."""
    words, states = rules.sample(seed=0, n_words=20_000)
    labels = rules.state_labels("part")
    counts: dict[str, Counter[str]] = {}
    for word, state in zip(words, states, strict=True):
        counts.setdefault(word, Counter())[labels[int(state)]] += 1
    return {word: found.most_common(1)[0][0] for word, found in counts.items()}


def _opening(run: RunView) -> str:
    """What a sample begins with: nothing, or for the grammar the end of the sentence before.

    A text without breaks or spaces, such as a DNA sequence, has no token that nothing could be read as: it begins as the
    text that was learnt does.
    """
    if run.learns_grammar:
        return "."
    try:
        prompt_ids(run.tokenizer, "")
    except InputError:
        shards = TokenShards.open(run.folder.path / "data", verifies=False)
        return run.tokenizer.decode([int(shards.train.ids[0])])
    return ""
