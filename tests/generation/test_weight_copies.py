"""Models with other weights: the same ids and scores for float32, bounded errors for the others, and the tie kept."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from generation.test_any_spec import causal_spec
from generation.test_decode import DYNAMIC, SPECS
from oracles.specs import base, changed
from parity import PARITIES
from parity.tiny import model_of
from small import small_model
from unembed import tying
from unembed.errors import UsageError
from unembed.generation.decode import generate_ids
from unembed.generation.sampling import GREEDY, Sampling
from unembed.generation.weights import copies, packing
from unembed.generation.weights.copies import derived_bytes, is_rounded, with_weights
from unembed.generation.weights.packing import KINDS, unavailable
from unembed.generation.weights.rounding import rounding_error
from unembed.model.kv_cache import KvCache
from unembed.model.spec import HEADS, with_head, with_tying
from unembed.model.transformer import Transformer

CPU = torch.device("cpu")
ROUNDED = [kind for kind in KINDS if kind != "float32" and unavailable(kind, CPU) is None]
CAUSAL = [parity for parity in PARITIES if parity.is_causal]


def float32(plain, seed=0):
    return small_model(plain, seed=seed, dtype=torch.float32)


def stepped(model, ids):
    """The logits of all positions, read one token at a time."""
    if not model.can_cache:
        return torch.cat([model(ids[:, : end + 1])[:, -1:] for end in range(ids.shape[1])], dim=1)
    cache = KvCache(model.spec, batch=1, capacity=ids.shape[1], dtype=torch.float32, device=CPU)
    return torch.cat([model(ids[:, at : at + 1], cache=cache) for at in range(ids.shape[1])], dim=1)


def is_old(made):
    """Whether the packed copy of the first block's q, k and v is one of what was."""
    attn = made.blocks[0].attn
    projections = (attn.q_proj, attn.k_proj, attn.v_proj)
    return attn.derived._origin.is_old([getattr(own, key) for own in projections for key in ("weight", "bias")])


def check_float32(model):
    """Same logits to 1e-5 of the largest, and the same ids past the end of the context."""
    tolerance = 1e-5 if model.spec.head.softcap is None else 3e-5  # a cap makes the largest small
    made = with_weights(model, "float32")
    length, vocab_size = model.spec.context_length, model.spec.embedding.vocab_size
    n = min(length, 24)
    ids = torch.randint(vocab_size, (1, n), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for found, expected in ((made(ids), model(ids)), (stepped(made, ids), stepped(model, ids))):
            assert (found - expected).abs().max() <= tolerance * expected.abs().max()
    prompt = ids[0, : n // 2].tolist()
    options = {"n_tokens": n, "seeds": [0]}
    for sampling in (GREEDY, Sampling(temperature=0.7, top_k=5)):
        expected = generate_ids(model, [prompt], sampling=sampling, **options)[0].ids
        assert generate_ids(made, [prompt], sampling=sampling, **options)[0].ids == expected


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", [*SPECS, "dynamic"])
def test_float32_gives_the_same_scores_and_ids(name):
    check_float32(float32(DYNAMIC if name == "dynamic" else SPECS[name]))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("seed", range(12))
def test_property_float32_gives_the_same_in_any_mixture(seed):
    check_float32(float32(causal_spec(seed), seed=seed))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("parity", CAUSAL, ids=lambda parity: parity.family)
def test_float32_gives_the_same_for_every_family(parity, tied):
    check_float32(model_of(parity, tied=tied))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("parity", CAUSAL, ids=lambda parity: parity.family)
def test_rounded_weights_err_as_little_as_their_bits_allow(parity, kind):
    """Against the same model with weights rounded by hand: what is left is the rounding of single vectors."""
    model = model_of(parity, tied=False)
    ids = torch.randint(4, model.spec.embedding.vocab_size, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    found = rounding_error(model, with_weights(model, kind), ids).values
    assert 0 < found["kl_nats"] <= found["worst_kl_nats"]
    assert found["greedy_agreement"] > 0.6
    scale = float(model(torch.tensor([ids])).detach().abs().max())
    assert found["worst_logit_difference"] <= {"float16": 0.01, "bfloat16": 0.12, "int8": 0.12}[kind] * scale


@pytest.mark.parametrize("kind", ROUNDED)
def test_prompts_and_batches_go_through_the_exact_weights(kind):
    """More than one row at a time is computed with the model's own parameters, to the last bit."""
    model = float32(SPECS["rotary_window_grouped"])
    made = with_weights(model, kind)
    ids = torch.tensor([[3, 1, 4], [1, 5, 9]])
    with torch.no_grad():
        assert torch.equal(made(ids), model(ids))
        assert torch.equal(made(ids[:, :1]), model(ids[:, :1]))
        assert not torch.equal(made(ids[:1, :1]), model(ids[:1, :1]))
    prompts = [[3, 1, 4], [1, 5, 9, 2]]
    options = {"n_tokens": 12, "sampling": Sampling(temperature=0.9), "seeds": [0, 1]}
    assert generate_ids(made, prompts, **options) == generate_ids(model, prompts, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_the_given_model_stays_as_it_is_and_a_tie_stays_one_matrix(kind, tied):
    if unavailable(kind, CPU) is not None:
        pytest.skip(f"no {kind} kernel on this processor")
    model = float32(base())
    model = Transformer(with_tying(model.spec, tied)).float()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(parameter.numel()))
    before = copy.deepcopy(model.state_dict())
    strides = {name: parameter.stride() for name, parameter in model.named_parameters()}
    made = with_weights(model, kind)
    assert {name: parameter.stride() for name, parameter in model.named_parameters()} == strides
    assert list(made.state_dict()) == list(before)
    for name, value in made.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert tying.examine(made).values["tied"] is tied
    assert (made.unembed_table() is made.embed.table) is tied
    assert made.spec == model.spec
    assert [id(one) for one in made.parameters()] == [id(one) for one in model.parameters()]
    matrices = sum(one.numel() for name, one in model.named_parameters() if name.endswith(("proj.weight", "up.weight")))
    assert derived_bytes(made) > matrices
    assert derived_bytes(model) == 0
    assert is_rounded(made) is (kind != "float32")
    assert not is_rounded(model)


def test_packed_float32_follows_its_parameters():
    """Trained, loaded, exchanged, copied: the next token is always computed from what the parameters say now."""
    model = float32(SPECS["learned"])
    made = with_weights(model, "float32")
    ids = torch.tensor([[3]])

    def agree(one):
        plain = Transformer(one.spec).float()
        plain.load_state_dict(one.state_dict())
        with torch.no_grad():
            assert (one(ids) - plain(ids)).abs().max() <= 1e-5 * plain(ids).abs().max()
            return plain(ids)

    first = agree(made)
    with torch.no_grad():
        made.blocks[0].attn.v_proj.weight.mul_(3)  # written in place
    made = with_weights(made, "float32")  # packed anew, which a model made of another takes as well
    second = agree(made)
    assert not torch.equal(first, second)
    made.load_state_dict({key: value * 0.5 for key, value in made.state_dict().items()})
    third = agree(made)
    assert not torch.equal(second, third)
    twin = copy.deepcopy(made)
    with torch.no_grad():
        twin.blocks[0].attn.q_proj.weight.add_(1)
        twin.blocks[1].mlp.up.weight.add_(1)
    agree(twin)
    assert torch.equal(agree(made), third)
    attn = made.blocks[0].attn
    attn.v_proj.weight = torch.nn.Parameter(attn.v_proj.weight.detach() + 2)  # another parameter in its place
    agree(made)
    fourth = agree(made)
    made.blocks[1].mlp.up.weight.data = made.blocks[1].mlp.up.weight.data * 2  # moved elsewhere
    assert not torch.equal(agree(made), fourth)


def test_one_product_for_three_is_of_the_parameters_as_they_are():
    """Written, learning, frozen in part, made under inference mode: each is computed with what is there then."""
    model = float32(changed(base(), block__attention__biases=("q", "k", "v", "o")))
    attn, x = with_weights(model, "float32").blocks[0].attn, torch.randn(1, 1, model.spec.embedding.d_model)

    def check():
        for found, own in zip(attn._projected(x), (attn.q_proj, attn.k_proj, attn.v_proj), strict=True):
            assert torch.allclose(found, torch.nn.functional.linear(x, own.weight, own.bias), atol=1e-5)

    with torch.no_grad():
        check()
        attn.k_proj.weight.mul_(2)
        check()
    q, k, v = attn._projected(x)
    assert all(one.requires_grad for one in (q, k, v))
    (q.sum() + k.sum()).backward()
    assert attn.k_proj.weight.grad is not None
    for one in model.parameters():
        one.requires_grad_(one.ndim == 1)
    with torch.inference_mode():
        check()
    grad = torch.autograd.grad(attn._projected(x)[1].sum(), attn.k_proj.bias)[0]
    assert torch.equal(grad, torch.ones_like(grad))


def test_threads_may_ask_one_model_at_once():
    made = with_weights(float32(SPECS["learned"]), "float32")
    texts = [torch.tensor([[token]]) for token in range(8)]
    with torch.no_grad():
        right = [made(ids) for ids in texts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def ask(number):
        with torch.no_grad():
            return torch.equal(made(texts[number % 8]), right[number % 8])

    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(ask, range(400)))
    finally:
        sys.setswitchinterval(interval)


def test_packed_float32_can_be_pickled_differentiated_and_given_nothing():
    made = with_weights(float32(SPECS["learned"]), "float32")
    ids = torch.tensor([[3]])
    read = pickle.loads(pickle.dumps(made))
    with torch.no_grad():
        assert (read(ids) - made(ids)).abs().max() <= 1e-5 * made(ids).abs().max()
    parameters = dict(made.named_parameters())
    grads = torch.func.grad(lambda given: torch.func.functional_call(made, given, (ids,)).sum())(parameters)
    made(ids).sum().backward()
    for name, one in parameters.items():
        assert torch.allclose(grads[name], one.grad, atol=1e-4 * float(one.grad.abs().max() + 1)), name
    assert made(torch.zeros((0, 5), dtype=torch.long)).shape == (0, 5, made.spec.embedding.vocab_size)


def test_seeded_a_scale_that_is_off_shows_in_the_error(monkeypatch):
    """A packed matrix whose product is off by a fifth is told apart from one that is rounded well."""
    model = float32(SPECS["learned"])
    well = rounding_error(model, with_weights(model, "bfloat16"), [3, 1, 4, 1, 5]).values["kl_nats"]
    plain = packing.Columns.product

    def off(self, x):
        return plain(self, x) * 1.2

    monkeypatch.setattr(packing.Columns, "product", off)
    with pytest.raises(UsageError, match=r"torch has no bfloat16 product on cpu here"):  # the trial sees it, too
        with_weights(model, "bfloat16")
    monkeypatch.setattr(copies, "unavailable", lambda *_: None)
    assert rounding_error(model, with_weights(model, "bfloat16"), [3, 1, 4, 1, 5]).values["kl_nats"] > 20 * well


def test_the_error_is_none_where_nothing_is_rounded():
    model = float32(SPECS["learned"])
    found = rounding_error(model, with_weights(model, "float32"), [3, 1, 4, 1, 5, 9])
    assert found.values["greedy_agreement"] == 1.0
    assert found.values["worst_logit_difference"] < 1e-4
    assert found.values["kl_nats"] < 1e-9
    assert found.tables["positions"].n_rows == 6


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (lambda: small_model(), "int8", r"the model is float64, expected float32\. Load it with dtype='float32'"),
        (lambda: float32(base()), "int3", r"'int3' is no kind of weights"),
        (lambda: "gpt2", "int8", r"give what unembed\.load\(\.\.\.\) returns"),
    ],
)
def test_what_cannot_be_made(model, kind, message):
    with pytest.raises(UsageError, match=message):
        with_weights(model(), kind)


def test_a_kind_without_a_kernel_is_refused_with_the_next_step(monkeypatch):
    monkeypatch.setattr(copies, "unavailable", lambda kind, device: f"no {kind} on {device}; take float32")
    with pytest.raises(UsageError, match=r"weights: no int8 on cpu; take float32"):
        with_weights(float32(base()), "int8")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", HEADS)
def test_every_kind_of_head_writes_with_every_kind_of_weights(kind):
    """Heads that share the table through a matrix keep that matrix, and the embedding's use of it."""
    model = Transformer(with_head(float32(base()).spec, kind)).float()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    check_float32(model)
    for weights in ROUNDED:
        made = with_weights(model, weights)
        assert list(made.state_dict()) == list(model.state_dict())
        found = rounding_error(model, made, [3, 1, 4, 1, 5]).values
        assert 0 < found["worst_logit_difference"] < 0.15


def test_softcaps_and_scales_of_a_head_are_kept():
    plain = changed(base(), head__softcap=2.0, head__scale=0.3)
    model = float32(plain)
    found = rounding_error(model, with_weights(model, "float16"), [3, 1, 4, 1, 5])
    assert found.values["worst_logit_difference"] < 0.02


def _optimizer_step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.tensor([[3, 1, 4]])).square().mean().backward()
    optimizer.step()


def _loads(model, **options):
    model.load_state_dict({name: value * 1.01 for name, value in model.state_dict().items()}, **options)


def _writes(name):
    def write(model):
        with torch.no_grad():
            dict(model.named_parameters())[name].mul_(2)

    return write


def _gets_new_storage(model):
    model.blocks[1].mlp.down.weight.data = model.blocks[1].mlp.down.weight.data * 2


CHANGES = [
    (_optimizer_step, "weights: the unembedding table"),
    (_loads, "weights: the unembedding table"),
    (_gets_new_storage, r"weights: blocks\.1\.mlp\.down"),
    (_writes("embed.table"), "weights: the unembedding table"),
    (_writes("head.bias"), "weights: the unembedding table"),
    (_writes("blocks.1.attn.o_proj.weight"), r"weights: blocks\.1\.attn\.o_proj"),
]


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_copies_of_weights_that_were_changed_are_refused(change, message, kind):
    """The prompt would be read by the new weights and each token after it by the old."""
    model = float32(changed(base(), head__has_bias=True))
    made = with_weights(model, kind)
    options = {"n_tokens": 3, "sampling": GREEDY, "seeds": [0]}
    generate_ids(made, [[3, 1]], **options)
    change(model)
    with pytest.raises(
        UsageError, match=rf"(?s){message}.*changed since its packed copy was made.*Call with_weights again"
    ):
        generate_ids(made, [[3, 1]], **options)
    generate_ids(with_weights(model, kind), [[3, 1]], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_looking_at_a_model_and_copying_it_do_not_count_as_changes(kind):
    if unavailable(kind, CPU) is not None:
        pytest.skip(f"no {kind} kernel on this processor")
    model = float32(base())
    made = with_weights(model, kind)
    model(torch.tensor([[3, 1, 4]])).square().mean().backward()
    model.zero_grad()
    copy.deepcopy(model.state_dict())
    with torch.inference_mode():
        generate_ids(made, [[3, 1]], n_tokens=3, sampling=GREEDY, seeds=[0])


def test_packed_float32_learns_with_the_model():
    model = float32(base())
    made = with_weights(model, "float32")
    options = {"n_tokens": 5, "sampling": GREEDY, "seeds": [0]}
    before = generate_ids(made, [[3, 1]], **options)
    _optimizer_step(model)
    after = generate_ids(made, [[3, 1]], **options)
    assert after == generate_ids(model, [[3, 1]], **options)
    assert after != before


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_from_a_file_asks_its_packed_copy(kind, monkeypatch):
    """Kept in a file and read again: the parameters lie elsewhere, and the copy is still of them."""
    if unavailable(kind, CPU) is not None:
        pytest.skip(f"no {kind} kernel on this processor")
    model = float32(base())
    made = with_weights(model, kind)
    for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert not is_old(twin)
        with torch.no_grad():
            assert torch.equal(twin(torch.tensor([[3]])), made(torch.tensor([[3]])))
            twin.blocks[0].attn.v_proj.weight.mul_(2)
        assert is_old(twin)
        assert not is_old(made)


def test_models_made_without_counting_can_be_packed():
    with torch.inference_mode():
        model = float32(base())
        made = with_weights(model, "bfloat16")
        generate_ids(made, [[3, 1]], n_tokens=3, sampling=GREEDY, seeds=[0])


def test_a_copied_model_looks_at_its_own_parameters():
    model = float32(base())
    made = with_weights(model, "bfloat16")
    twin = copy.deepcopy(made)
    options = {"n_tokens": 3, "sampling": GREEDY, "seeds": [0]}
    expected = generate_ids(made, [[3, 1]], **options)
    _writes("blocks.1.attn.o_proj.weight")(model)
    assert generate_ids(twin, [[3, 1]], **options) == expected
    _writes("blocks.1.attn.o_proj.weight")(twin)
    for old in (made, twin):
        with pytest.raises(UsageError, match="changed since its packed copy was made"):
            generate_ids(old, [[3, 1]], **options)
    with pytest.raises(UsageError, match="changed since its packed copy was made"):
        generate_ids(copy.deepcopy(made), [[3, 1]], **options)
