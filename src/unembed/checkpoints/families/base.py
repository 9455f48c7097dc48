"""What a checkpoint family is: a translation between another program's files and a spec, never a model class.

A family reads a config into a spec and writes it back, and lists the rules between the tensors' names. Loading, export,
accounting, tying and their tests come from that for all of them. To add one: docs/add/family.md. Read llama.py next.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from unembed.checkpoints.rules.accounting import ConfigReader
from unembed.checkpoints.rules.names import Renamed
from unembed.checkpoints.rules.tensors import Duplicate, Ignored, Rule
from unembed.model.spec import Activation, TransformerSpec

# transformers' names of activations; `gelu_fast` is the tanh form computed another way
ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
}
ACTIVATION_NAMES: Mapping[Activation, str] = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "relu_squared": "relu2",
    "silu": "silu",
}

_TRAINING = "used in training alone"
_SAMPLING = "the tokenizer's and the sampler's business"
_OUTPUT = "what transformers returns, not what the model computes"
_CLASSIFIER = "belongs to heads for other tasks"

# Keys that any config.json may have and that change no number of the model.
COMMON_EXCUSES: Mapping[str, str] = {
    "architectures": "names transformers' class; the tensors say what is there",
    "model_type": "chose the family",
    "transformers_version": "tells which program wrote the file",
    "_name_or_path": "tells where the file came from",
    "torch_dtype": "the tensors have their own types",
    "dtype": "the tensors have their own types",
    "initializer_range": _TRAINING,
    "attention_dropout": _TRAINING,
    "hidden_dropout": _TRAINING,
    "use_cache": _OUTPUT,
    "output_attentions": _OUTPUT,
    "output_hidden_states": _OUTPUT,
    "return_dict": _OUTPUT,
    "bos_token_id": _SAMPLING,
    "eos_token_id": _SAMPLING,
    "pad_token_id": _SAMPLING,
    "id2label": _CLASSIFIER,
    "label2id": _CLASSIFIER,
    "problem_type": _CLASSIFIER,
    "classifier_dropout": _CLASSIFIER,
    "task_specific_params": _SAMPLING,
    "gradient_checkpointing": "trades speed for memory in training",
    "chunk_size_feed_forward": "trades speed for memory; the result is the same",
}


class Family(NamedTuple):
    """One family.

    model_types     the values of `model_type` in config.json that mean it; () for families of other formats
    ties_by_default what an absent `tie_word_embeddings` means
    read            config -> spec with an untied head; the tie is decided later, by ../foreign/tie.py
    write           spec -> config without the keys common to all; need not check that the spec is of this family
    rules           the rules for a spec; a tied one has none for the head's table
    prefix          what whole models put before the names of a base model
    embed, head     the file's names of the two tables
    excuses         config keys that change no number of this family's models, beside those common to all
    ignored         stored tensors that are no parameters
    duplicates      stored tensors that repeat another one
    renamed         older spellings of tensor names
    tie_rule        what says whether the head is tied, as messages put it
    """

    name: str
    model_types: tuple[str, ...]
    architecture: str
    ties_by_default: bool
    read: Callable[[ConfigReader], TransformerSpec]
    write: Callable[[TransformerSpec], dict[str, Any]]
    rules: Callable[[TransformerSpec], Iterator[Rule]]
    embed: str
    head: str
    prefix: str = ""
    excuses: Mapping[str, str] = {}
    ignored: tuple[Ignored, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    renamed: tuple[Renamed, ...] = ()
    tie_rule: str = "the config"

    @property
    def file(self) -> str:
        """The file that a missing key or tensor is to be written into."""
        return f"{self.read.__module__.rpartition('.')[2]}.py"


def read_spec(family: Family, config: ConfigReader) -> TransformerSpec:
    """The spec of a config, with the keys settled that any config.json may have. The account is not closed yet.

    Raises: CheckpointError where a key that most configs lack would mean another function.
    """
    spec = family.read(config)
    config.only("is_encoder_decoder", False, reason="a decoder that reads an encoder is another model")
    config.only("add_cross_attention", False, reason="a decoder that reads an encoder is another model")
    config.only("quantization_config", reason="quantised weights of this kind are not read; ask for the plain ones")
    config.only("pruned_heads", {}, reason="heads were cut out of the tensors")
    config.only("tie_encoder_decoder", False, reason="there is no encoder")
    config.excuse({**COMMON_EXCUSES, **family.excuses})
    return spec


def d_head_of(config: ConfigReader, d_model: int, n_heads: int) -> int:
    """The width of a head where heads share the stream's width. Raises: CheckpointError if they cannot."""
    if d_model % n_heads:
        raise config.error(
            f"hidden_size is {d_model}, which {n_heads} heads (num_attention_heads) cannot share equally. "
            "One of the two is wrong: mend config.json, or download it again."
        )
    return d_model // n_heads
