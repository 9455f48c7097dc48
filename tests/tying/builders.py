"""Makes the models of the cases: what somebody did to a tie, done here.

The next file to read is cases.py.
"""

import torch
from torch import nn

from tying.models import D, Tiny, V, copied_apart, over, pool, tied, trained, with_head


def frozen(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def meta(make):
    with torch.device("meta"):
        return make()


def filled_apart():
    """Built tied without memory, then given memory: PyTorch makes a new parameter for each of the two places."""
    model = meta(tied).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    for one in (model.wte.weight, model.mix.weight, model.lm_head.weight):
        nn.init.normal_(one, generator=generator)
    return model


def retied():
    model = filled_apart()
    model.lm_head.weight = model.wte.weight
    return model


def one_unfilled():
    model = meta(Tiny)
    model.wte.weight = nn.Parameter(pool(V, D))
    return model


def drifted():
    model = with_head(lambda table: nn.Parameter(table.detach().clone()))
    trained(model)
    return model


def with_extra(name, make, *, then=lambda model: None):
    model = tied()
    model.register_buffer(name, make(model.wte.weight.detach()))
    then(model)
    return model


def whole(table):
    return (table / table.abs().amax(1, keepdim=True) * 127).round().to(torch.int8)


def averaged():
    model = torch.optim.swa_utils.AveragedModel(tied(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for _ in range(3):
        trained(model.module)
        model.update_parameters(model.module)
    return model


def averaged_by_name():
    """A moving average kept by name from state_dict(), where the one table stands twice, and loaded into parts of its own."""
    average = {name: value.clone() for name, value in tied().state_dict().items()}
    model = copied_apart(tied())
    model.load_state_dict(average)
    return model


def recompiled():
    model = torch.compile(tied(), backend="eager")
    model._orig_mod.lm_head.weight = nn.Parameter(model._orig_mod.wte.weight.detach().clone())
    return model


def compiled_part():
    model = tied()
    model.wte = torch.compile(model.wte, backend="eager")
    return model


def dynamic():
    return torch.ao.quantization.quantize_dynamic(tied().eval(), {"lm_head"}, dtype=torch.qint8)


def grown():
    model = tied()
    model.lm_head = nn.Linear(D, V + 3, bias=False)
    with torch.no_grad():
        model.lm_head.weight[:V] = model.wte.weight
    return model


def narrow():
    model = Tiny()
    model.wte, model.mix = nn.Embedding(V, 6), nn.Linear(6, D, bias=False)
    return model


def not_numbers():
    model = with_head(lambda table: nn.Parameter(table.detach().clone()))
    with torch.no_grad():
        model.wte.weight[4, 2] = model.lm_head.weight[4, 2] = float("nan")
    return model


def first_rows():
    return frozen(over(pool(V + 3, D), lambda p: p[:V], lambda p: p))


def squared():
    """As many entries as width, so that a table and its transpose have one shape."""
    model = Tiny()
    model.wte, model.lm_head = nn.Embedding(D, D), nn.Linear(D, D, bias=False)
    model.lm_head.weight = nn.Parameter(model.wte.weight.detach().T.contiguous())
    return model


def other_matrix(model):
    if not hasattr(model, "other"):
        model.other = nn.Parameter(pool(V, D))
    return model.other * 2


def stale(model):
    trained(model, lr=1.0)


def with_parts(model, **parts):
    for name, make in parts.items():
        setattr(model, name, make(model))
    return model
