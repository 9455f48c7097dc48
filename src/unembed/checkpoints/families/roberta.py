"""RoBERTa and ChemBERTa: BERT's encoder whose positions begin after the padding id, and a head with names of its own.

A table of 514 rows with padding id 1 serves 512 positions: position p reads row p + 2. The head bends with the exact GELU
whatever the layers use. Source: transformers, models/roberta. The next file to read is ../foreign/export.py.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families import bert
from unembed.checkpoints.families.base import ACTIVATIONS, Family
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.tensors import Duplicate, Ignored, Rule, Same, with_bias
from unembed.model.spec import Learned, TransformerSpec

IGNORED = tuple(
    Ignored(one.pattern.replace("(bert", "(roberta"), one.reason) for one in bert.IGNORED if "cls" not in one.pattern
)


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of a RoBERTa config. Raises: CheckpointError."""
    offset = config.integer("pad_token_id", least=0) + 1
    return bert.encoder(
        config, offset=offset, activation=config.one_of("hidden_act", ACTIVATIONS), head_activation="gelu"
    )


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of RoBERTa's shape."""
    position = spec.embedding.position
    return bert.write(spec) | {"pad_token_id": position.offset - 1 if isinstance(position, Learned) else None}


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """roberta.embeddings, roberta.encoder.layer.N, lm_head."""
    yield from bert.encoder_rules(spec, "roberta.")
    yield from with_bias("lm_head.dense", "head.transform.dense")
    yield from with_bias("lm_head.layer_norm", "head.transform.norm", weight="gain")
    yield Same("lm_head.bias", "head.bias")
    if not spec.ties_embeddings:
        yield Same("lm_head.decoder.weight", "head.table")


FAMILY = Family(
    name="roberta",
    model_types=("roberta",),
    architecture="RobertaForMaskedLM",
    ties_by_default=True,
    read=read,
    write=write,
    rules=rules,
    embed="roberta.embeddings.word_embeddings.weight",
    head="lm_head.decoder.weight",
    prefix="roberta.",
    excuses=bert.EXCUSES,
    ignored=IGNORED,
    duplicates=(Duplicate("lm_head.decoder.bias", "lm_head.bias", is_written_if_untied=True),),
    renamed=bert.RENAMED,
)
