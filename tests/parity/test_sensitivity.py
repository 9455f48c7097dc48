"""The parity tests would see it: whatever number or kind of a description is changed a little, the logits move.

A field that could be wrong without a trace in these models would make test_forward.py blind to it. Each family's base
model is run with the same weights and one field of its spec changed.
"""

import msgspec
import pytest
import torch

from parity import PARITIES
from parity.harness import N_TOKENS, TOLERANCE, token_ids
from unembed.checkpoints.load import load
from unembed.model.spec import Spec
from unembed.model.transformer import Transformer

OTHER = {
    "activation": {"gelu": "gelu_tanh", "gelu_tanh": "gelu", "silu": "gelu", "relu": "silu", "relu_squared": "relu"},
    "pairing": {"half": "interleaved"},
    "gain": {"plain": "one_plus", "one_plus": "plain"},
}
# They say how much room there is, and change no number of a sequence that fits.
ROOM = {"context_length", "n_rows", "original_context"}


def changed(value, name=""):
    """Every description that differs from `value` in one field of the tree, with the field's path."""
    for field in value.__struct_fields__:
        old, path = getattr(value, field), f"{name}.{field}".lstrip(".")
        if isinstance(old, Spec):
            for where, new in changed(old, path):
                yield where, msgspec.structs.replace(value, **{field: new})
        elif field == "blocks":
            for where, new in changed(old[1], f"{path}.1"):
                yield where, msgspec.structs.replace(value, blocks=(old[0], new, *old[2:]))
        elif isinstance(old, float):
            yield path, msgspec.structs.replace(value, **{field: old * (0.5 if field == "fraction" else 0.98)})
        elif field == "window" and old is not None:
            yield path, msgspec.structs.replace(value, window=old + 1)
        elif field == "offset" and old:
            yield path, msgspec.structs.replace(value, offset=old - 1)
        elif field in OTHER:
            yield path, msgspec.structs.replace(value, **{field: OTHER[field][old]})


@pytest.mark.parametrize("parity", PARITIES, ids=lambda parity: parity.family)
def test_seeded_every_number_of_the_description_shows(parity, reference, unchecked):
    model = load(reference(parity, "base").folder, dtype="file")
    ids = token_ids(41, 1, N_TOKENS)
    seen = set()
    with torch.no_grad():
        expected = model(ids)
        for path, spec in changed(model.spec):
            if path.split(".")[-1] in ROOM:
                continue
            with torch.device("meta"):
                other = Transformer(spec)
            other.load_state_dict(dict(model.named_parameters()), assign=True)
            assert float((other(ids) - expected).abs().max()) > 1e3 * TOLERANCE, path
            seen.add(path.split(".")[-1])
    assert {"eps", "score_scale", "activation"} <= seen
    assert "theta" in seen or parity.family in ("gpt2", "bert", "roberta")
    assert "window" in seen or parity.family not in ("mistral", "qwen", "qwen3", "gemma2", "gemma3")
