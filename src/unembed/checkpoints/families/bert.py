"""BERT, the masked model: both ways, a norm after each addition, positions and token types in the embedding, a head of its own.

The head turns each vector (dense, activation, norm) before the table that embeds scores it, with a bias. What belongs to
the other task it was trained on (pooler, next sentence) is excused. Source: transformers, models/bert. The next file to
read is roberta.py.
"""

from collections.abc import Iterator
from typing import Any

from unembed.checkpoints.families.base import ACTIVATION_NAMES, ACTIVATIONS, Family, d_head_of
from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.names import Renamed
from unembed.checkpoints.rules.tensors import Duplicate, Ignored, Rule, Same, with_bias
from unembed.model.presets.row import EVERY_BIAS, attention, embedding, head
from unembed.model.spec import (
    Activation,
    Bidirectional,
    Block,
    HeadTransform,
    LayerNorm,
    Learned,
    PlainMlp,
    Serial,
    TransformerSpec,
)

_TRAINING, _POOLER = "used in training alone", "belongs to the pooler, which the masked model does not use"
EXCUSES = {
    "hidden_dropout_prob": _TRAINING,
    "attention_probs_dropout_prob": _TRAINING,
    "directionality": "says that it sees both ways",
    **dict.fromkeys(
        ("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
        _POOLER,
    ),
}
RENAMED = (
    Renamed(r"(.*LayerNorm)\.gamma", r"\1.weight"),
    Renamed(r"(.*LayerNorm)\.beta", r"\1.bias"),
)
IGNORED = (
    Ignored(r"(bert\.)?embeddings\.(position|token_type)_ids", "counts 0, 1, 2, ... and holds no weights"),
    Ignored(r"(bert\.)?pooler\.dense\.(weight|bias)", _POOLER),
    Ignored(r"cls\.seq_relationship\.(weight|bias)", "scores whether two sentences follow each other, another task"),
)


def read(config: ConfigReader) -> TransformerSpec:
    """The spec of a BERT config. Raises: CheckpointError."""
    activation = config.one_of("hidden_act", ACTIVATIONS)
    return encoder(config, offset=0, activation=activation, head_activation=activation)


def encoder(
    config: ConfigReader, *, offset: int, activation: Activation, head_activation: Activation
) -> TransformerSpec:
    """The encoder that BERT and RoBERTa share; position p reads row p + offset of the position table."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    n_rows = config.integer("max_position_embeddings")
    if n_rows <= offset:
        raise config.error(f"max_position_embeddings is {n_rows}, and {offset} rows come before the first position")
    norm = LayerNorm(eps=config.number("layer_norm_eps"), has_bias=True)
    config.only("is_decoder", False, reason="a causal BERT is another model than the masked one")
    config.only("position_embedding_type", "absolute", reason="relative positions are another model")
    d_head = d_head_of(config, d_model, n_heads)
    block = Block(
        attention=attention(n_heads, d_head, sees=Bidirectional(), biases=EVERY_BIAS),
        mlp=PlainMlp(d_mlp=config.integer("intermediate_size"), activation=activation, has_bias=True),
        norm=norm,
        residual=Serial(norm_at="post"),
    )
    return TransformerSpec(
        context_length=n_rows - offset,
        embedding=embedding(
            config.integer("vocab_size"),
            d_model,
            position=Learned(n_rows=n_rows, offset=offset),
            n_token_types=config.integer("type_vocab_size"),
            norm=norm,
        ),
        blocks=(block,) * config.layers("num_hidden_layers"),
        final_norm=None,
        head=head(is_tied=False, transform=HeadTransform(activation=head_activation, norm=norm), has_bias=True),
    )


def write(spec: TransformerSpec) -> dict[str, Any]:
    """The config of a spec of BERT's shape."""
    first, position = spec.blocks[0], spec.embedding.position
    return {
        "vocab_size": spec.embedding.vocab_size,
        "hidden_size": spec.embedding.d_model,
        "intermediate_size": first.mlp.d_mlp,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": first.attention.n_heads,
        "hidden_act": ACTIVATION_NAMES[first.mlp.activation],
        "max_position_embeddings": position.n_rows if isinstance(position, Learned) else spec.context_length,
        "type_vocab_size": spec.embedding.n_token_types,
        "layer_norm_eps": first.norm.eps,
    }


def rules(spec: TransformerSpec) -> Iterator[Rule]:
    """bert.embeddings, bert.encoder.layer.N, cls.predictions."""
    yield from encoder_rules(spec, "bert.")
    yield from with_bias("cls.predictions.transform.dense", "head.transform.dense")
    yield from with_bias("cls.predictions.transform.LayerNorm", "head.transform.norm", weight="gain")
    yield Same("cls.predictions.bias", "head.bias")
    if not spec.ties_embeddings:
        yield Same("cls.predictions.decoder.weight", "head.table")


def encoder_rules(spec: TransformerSpec, prefix: str) -> Iterator[Rule]:
    """Embeddings and layers under a prefix."""
    for name, table in (("word", "table"), ("position", "pos_table"), ("token_type", "type_table")):
        yield Same(f"{prefix}embeddings.{name}_embeddings.weight", f"embed.{table}")
    yield from with_bias(prefix + "embeddings.LayerNorm", "embed.norm", weight="gain")
    for index in range(spec.n_layers):
        theirs, ours = f"{prefix}encoder.layer.{index}.", f"blocks.{index}."
        for name, letter in (("query", "q"), ("key", "k"), ("value", "v")):
            yield from with_bias(f"{theirs}attention.self.{name}", f"{ours}attn.{letter}_proj")
        yield from with_bias(theirs + "attention.output.dense", ours + "attn.o_proj")
        yield from with_bias(theirs + "attention.output.LayerNorm", ours + "attn_post_norm", weight="gain")
        yield from with_bias(theirs + "intermediate.dense", ours + "mlp.up")
        yield from with_bias(theirs + "output.dense", ours + "mlp.down")
        yield from with_bias(theirs + "output.LayerNorm", ours + "mlp_post_norm", weight="gain")


FAMILY = Family(
    name="bert",
    model_types=("bert",),
    architecture="BertForMaskedLM",
    ties_by_default=True,
    read=read,
    write=write,
    rules=rules,
    embed="bert.embeddings.word_embeddings.weight",
    head="cls.predictions.decoder.weight",
    prefix="bert.",
    excuses=EXCUSES,
    ignored=IGNORED,
    duplicates=(Duplicate("cls.predictions.decoder.bias", "cls.predictions.bias", is_written_if_untied=True),),
    renamed=RENAMED,
)
