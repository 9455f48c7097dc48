"""A run as those who look at it see it: its description, its log, its data, and its kept checkpoints as models.

Whatever is read is read once. The next file to read is progress.py, what came of the training.
"""

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from unembed.checkpoints.load import CONFIG_KEY, load_checkpoint, open_run, spec_of
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.metrics import MetricsLog
from unembed.checkpoints.run.native import Checkpoint
from unembed.corpora.grammar import Grammar, grammar
from unembed.corpora.shards import TokenShards
from unembed.errors import DamageWarning, InputError, RunError
from unembed.generation.texts import prompt_ids, tokenizer_of
from unembed.model.spec import TransformerSpec
from unembed.model.transformer import Transformer
from unembed.tokenizers.base import Tokenizer

DATA = "data"
SAMPLES = "samples.jsonl"

# What training writes into each record of the log.
_RECORD: dict[str, tuple[type, ...]] = {
    "split": (str,),
    "loss_nats": (int, float, type(None)),
    "tokens": (int,),
    "seconds": (int, float),
}


@dataclass
class RunView:
    """A run as the analyses see it: its description, its log, and its kept checkpoints as models, loaded once each."""

    folder: RunFolder
    _models: dict[int, Transformer] = field(default_factory=dict)

    @staticmethod
    def open(path: str | Path) -> "RunView":
        """Opens a run that has at least one complete checkpoint. Warns: DamageWarning. Raises: RunError."""
        view = RunView(open_run(path))
        if not view.checkpoints:
            why = "has no complete checkpoint, so there is nothing to look at. Train on with --resume."
            raise RunError("\n".join([f"{path}: {why}", *view.folder.latest()[1][:3]]))
        if damaged := view.folder.damaged():
            warnings.warn(f"{path}: {'; '.join(damaged)}", DamageWarning, stacklevel=3)
        return view

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints by step."""
        return self.folder.checkpoints()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The log, each record with what training writes. Raises: RunError when a record lacks some of it."""
        records = self.folder.metrics()
        for number, record in enumerate(records, start=1):
            where = f"{self.folder.path}/metrics.jsonl: record {number}"
            if absent := set(_RECORD) - set(record):
                raise RunError(f"{where} has no {', '.join(sorted(absent))}; was it edited?")
            if wrong := [name for name, kinds in _RECORD.items() if type(record[name]) not in kinds]:
                raise RunError(f"{where}: {wrong[0]} is {record[wrong[0]]!r}; was it edited?")
        return records

    @cached_property
    def noted_samples(self) -> list[dict[str, Any]]:
        """What the model wrote while it was trained, as far as it was noted: records with `step` and `text`."""
        records = MetricsLog(self.folder.path / SAMPLES).records()
        return [record for record in records if isinstance(record.get("text"), str)]

    @cached_property
    def noted_gradients(self) -> list[dict[str, Any]]:
        """What its steps taught the token table, as far as it was noted (tying/watch.py): records with both norms."""
        norms = ("lookup_norm", "projection_norm")
        return [one for one in self.folder.tying() if all(type(one.get(name)) in (int, float) for name in norms)]

    @property
    def spec(self) -> TransformerSpec:
        """The model's description."""
        return spec_of(self.folder)

    @property
    def training(self) -> dict[str, Any]:
        """The settings of the training, as run.json has them."""
        found = self.folder.description.get(CONFIG_KEY, {}).get("training", {})
        return dict(found) if isinstance(found, dict) else {}

    def model(self, index: int = -1) -> Transformer:
        """The model of one kept checkpoint: the newest, unless another index is given."""
        checkpoint = self.checkpoints[index]
        if checkpoint.step not in self._models:
            self._models[checkpoint.step] = load_checkpoint(self.folder, checkpoint)
        return self._models[checkpoint.step]

    @property
    def has_data(self) -> bool:
        """Whether the ids that it learnt from are still there; a run that was sent to somebody may lack them."""
        return (self.folder.path / DATA).is_dir()

    @cached_property
    def shards(self) -> TokenShards:
        """The ids that it learnt from and was measured on."""
        return TokenShards.open(self.folder.path / DATA, verifies=False)

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

    def opening(self) -> str:
        """What a sample begins with: nothing, or for the grammar the end of the sentence before.

        A text without breaks or spaces, such as a DNA sequence, has no token that nothing could be read as: it begins as
        the text that was learnt does.
        """
        if self.learns_grammar:
            return "."
        try:
            prompt_ids(self.tokenizer, "")
        except InputError:
            return self.tokenizer.decode([int(self.shards.train.ids[0])])
        return ""
