"""How long a step takes: the pieces of a micro-batch, the update, and what of the talk between devices nothing hides.

Under fsdp the next block's weights are gathered while a block runs, and its gradients are scattered while the one before
it runs; what remains visible is the first gathering, the last scattering, and whatever takes longer than the work that it
hides behind. Under ddp the last bucket remains. Where devices and talk share the same cores nothing is hidden. The next
file to read is plan.py.
"""

import msgspec

from unembed.model.counts import count
from unembed.model.spec import TransformerSpec
from unembed.planning.pieces import pieces
from unembed.planning.rates import Rates
from unembed.planning.setup import Setup
from unembed.planning.sharding import Traffic, traffic, units


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one optimizer step by part; their sum is `seconds`.

    products, attention, passes   both ways, of all micro-batches, without what is done again
    recomputed                    what checkpointing does again
    update                        clipping and AdamW
    communication                 what is not hidden behind other work; `wire` is all of it
    """

    products: float
    attention: float
    passes: float
    loss: float
    recomputed: float
    update: float
    communication: float
    wire: float

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        parts = (self.products, self.attention, self.passes, self.loss, self.recomputed, self.update)
        return sum(parts) + self.communication


def step_time(spec: TransformerSpec, setup: Setup, rates: Rates, *, hides_talk: bool = True) -> StepTime:
    """Adds up a step."""
    parts = {"products": 0.0, "attention": 0.0, "passes": 0.0, "loss": 0.0}
    forward = backward = again = 0.0
    for piece, number in pieces(spec, setup.batch_size, setup.context_length).items():
        one = rates.seconds(piece)
        name = {"product": "products", "attention": "attention", "loss": "loss"}.get(piece.kind, "passes")
        parts[name] += number * (one.forward + one.backward)
        forward, backward = forward + number * one.forward, backward + number * one.backward
        if piece.part in ("attention", "mlp", "norms"):
            again += setup.recomputed * number * one.forward
    sharded = setup.devices if setup.parallel == "fsdp" else 1
    sent = traffic(spec, setup)
    wire = rates.collective(sent.total_bytes, sent.forward_calls + sent.backward_calls) if sent.total_bytes else 0.0
    n = setup.accumulate
    return StepTime(
        **{name: n * seconds for name, seconds in parts.items()},
        recomputed=n * again,
        update=rates.update(-(-count(spec).parameters // sharded)),
        communication=_visible(spec, setup, rates, sent, n * forward, n * (backward + again)) if hides_talk else wire,
        wire=wire,
    )


def _visible(
    spec: TransformerSpec, setup: Setup, rates: Rates, sent: Traffic, forward: float, backward: float
) -> float:
    if not sent.total_bytes:
        return 0.0
    root, blocks = units(spec)
    edge = (max(root, 1) if setup.parallel == "fsdp" else min(sum(blocks) + root, 25 * 2**20 // 4)) / count(
        spec
    ).parameters
    total = 0.0
    for n_bytes, n_calls, work in (
        (sent.forward_bytes, sent.forward_calls, forward),
        (sent.backward_bytes, sent.backward_calls, backward),
    ):
        if n_bytes:
            on_wire = rates.collective(n_bytes, n_calls)
            first = edge * on_wire
            total += first + max(0.0, on_wire - first - work)
    return total
