"""Half-split and interleaved rows of q and k: A10 of the bug reports. Shapes agree, the first tokens look fine, and then.

The layout of a file is undone by a rule, rules.Interleaved; the model can also turn interleaved pairs as they are.
"""

import msgspec
import torch

from parity import BY_NAME
from parity.tiny import logits, model_of, spec_of
from unembed.checkpoints.rules.tensors import Interleaved, Same, to_ours, to_theirs
from unembed.model.spec import Rotary
from unembed.model.transformer import Transformer

LLAMA = BY_NAME["llama"]


def in_the_other_layout(spec):
    """Llama's rules with q and k stored for interleaved pairs."""
    for rule in LLAMA.ours().rules(spec):
        n_heads = {
            "q_proj.weight": spec.blocks[0].attention.n_heads,
            "k_proj.weight": spec.blocks[0].attention.n_kv_heads,
        }
        biases = {name.replace("weight", "bias"): n for name, n in n_heads.items()}
        found = [n for name, n in (n_heads | biases).items() if rule.theirs.endswith(name)]
        yield Interleaved(rule.theirs, rule.ours[0], found[0]) if found else rule


def interleaved(spec):
    def changed(block):
        position = msgspec.structs.replace(block.attention.position, pairing="interleaved")
        return msgspec.structs.replace(block, attention=msgspec.structs.replace(block.attention, position=position))

    return msgspec.structs.replace(spec, blocks=tuple(map(changed, spec.blocks)))


def test_a10b_from_one_layout_to_the_other_and_back_is_bit_identical():
    model = model_of(LLAMA, tied=False)
    ours = {name: parameter.detach() for name, parameter in model.named_parameters()}
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    stored = to_theirs(in_the_other_layout(model.spec), ours)
    back, _ = to_ours(in_the_other_layout(model.spec), shapes, stored, family="llama", where="file")
    for name in ours:
        assert torch.equal(back[name], ours[name]), name
    again = to_theirs(in_the_other_layout(model.spec), back)
    assert all(torch.equal(again[name], stored[name]) for name in stored)


def test_a10b_each_layout_with_its_own_rotation_gives_the_same_logits():
    half = model_of(LLAMA, tied=False).double()
    spec = interleaved(half.spec)
    weights = {name: parameter.detach() for name, parameter in half.named_parameters()}
    stored = to_theirs(in_the_other_layout(half.spec), weights)
    by_name = {rule.theirs: rule.ours[0] for rule in LLAMA.ours().rules(spec)}
    other = Transformer(spec).double()
    other.load_state_dict({by_name[name]: tensor for name, tensor in stored.items()})
    ids = torch.randint(4, 41, (2, 64), generator=torch.Generator().manual_seed(0))
    assert isinstance(other.spec.blocks[0].attention.position, Rotary)
    assert (logits(half, ids) - logits(other, ids)).abs().max() < 1e-10
    # the fault itself: rows left in the other layout agree at position 0 and drift apart after it
    confused = Transformer(half.spec).double()
    confused.load_state_dict({by_name[name]: tensor for name, tensor in stored.items()})
    differences = (logits(half, ids) - logits(confused, ids)).abs().amax(dim=(0, 2))
    assert differences[0] < 1e-10
    assert differences[20:].min() > 1e-2


def test_a10_the_rules_differ_only_where_rows_are_reordered():
    spec = spec_of(LLAMA, tied=False)
    reordered = [rule.theirs for rule in in_the_other_layout(spec) if not isinstance(rule, Same)]
    assert len(reordered) == 4 * spec.n_layers  # q and k, weights and biases
