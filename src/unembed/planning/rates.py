"""How long a piece of work takes on a device that is not here: the larger of what its operations and its bytes take.

A product of [m, k] and [k, n] is 2 m k n operations, and on the way back there are two more of the same size. Fused
attention does 4 d_head operations for each head, query and key that it sees, and 2.5 times that on the way back, where
the scores are made again (Dao 2023, arXiv:2307.08691, section 3.1). All else is passes over tensors in memory, counted in
PASSES. `measured.py` answers the same questions by trying.
"""

from typing import NamedTuple, Protocol

from unembed.model.spec import Attention, RmsNorm
from unembed.planning.flops import keys_seen
from unembed.planning.machines import Machine
from unembed.planning.pieces import Piece
from unembed.planning.setup import Setup

BYTES = {"float32": 4, "bfloat16": 2}


class Seconds(NamedTuple):
    """Of one piece, on the way forward and on the way back."""

    forward: float
    backward: float


class Rates(Protocol):
    """What a plan asks of a device, published or measured."""

    def seconds(self, piece: Piece) -> Seconds:
        """One piece, both ways."""
        ...

    def update(self, n_numbers: int) -> float:
        """Clipping and AdamW over this many parameters."""
        ...

    def collective(self, n_bytes: int, n_calls: int) -> float:
        """Time on the wire for bytes that each device sends, in so many calls."""
        ...


class Passes(NamedTuple):
    """Numbers read and written per number of the tensor, and kernels, forward and back; eager, then compiled."""

    forward: float
    backward: float
    fused_forward: float
    fused_backward: float
    kernels: int


# From the code of model/: LayerNorm is one kernel. RMSNorm in half precision is a cast up, a kernel in float32, a cast down
# and the gain. A rotation is four products, two sums and a joining over halves. A compiler joins a norm with the sum
# before it, an activation with its gate, a rotation's steps with each other.
PASSES: dict[str, Passes] = {
    "layernorm": Passes(2, 3, 2, 3, 1),
    "rmsnorm": Passes(2, 3, 2, 3, 1),
    "rmsnorm in half": Passes(12, 16, 2, 3, 4),
    "add": Passes(3, 3, 2, 2, 1),
    "rotate": Passes(9, 10, 2, 2, 7),
    "activate": Passes(2, 3, 2, 3, 1),
    "gate": Passes(3, 5, 1, 2, 1),
    "lookup": Passes(2, 2, 2, 2, 1),
}
# Bytes per score of the plain loss: a cast to float32, log-softmax, and both again on the way back.
_LOSS = {False: (18, 14), True: (6, 6)}
# AdamW reads weight, gradient and two moments and writes three of them; clipping reads the gradient, then scales it.
UPDATE_BYTES = 7 * 4 + 3 * 4


class Published:
    """Rates from a machine's data sheet and the shares of it that training reaches."""

    def __init__(self, machine: Machine, setup: Setup) -> None:
        self.machine, self.setup = machine, setup
        self._speed = machine.memory_speed * machine.memory_share
        within = setup.devices <= machine.node_devices
        self._link = (machine.link_speed if within else machine.network_speed) * machine.link_share

    def seconds(self, piece: Piece) -> Seconds:
        """As the module says; no piece is over before its kernels are issued."""
        if piece.kind == "product":
            rows, inner, outer = piece.shape
            once = self._product(rows, inner, outer)
            return Seconds(once, 2 * once)
        if piece.kind == "attention":
            return self._attention(piece)
        n_numbers = piece.shape[0] * piece.shape[1]
        if piece.kind == "loss":
            passed = _LOSS[self.setup.compiles or self.setup.scores_at_once is not None]
            return Seconds(*(max(n_numbers * n / self._speed, self.machine.launch_seconds) for n in passed))
        passes = PASSES[self._name(piece)]
        forward, backward = passes[2:4] if self.setup.compiles else passes[:2]
        n_kernels = 1 if self.setup.compiles else passes.kernels
        per_pass = n_numbers * BYTES[self.setup.dtype] / self._speed
        # the gradient of a looked-up table is as large as the table, whatever few rows it touches
        table = 4 * int(str(piece.what)) * piece.shape[1] / self._speed if piece.kind == "lookup" else 0.0
        least = n_kernels * self.machine.launch_seconds
        return Seconds(max(forward * per_pass, least), max(backward * per_pass + table, 2 * least))

    def update(self, n_numbers: int) -> float:
        """Memory traffic alone."""
        return n_numbers * UPDATE_BYTES / self._speed

    def collective(self, n_bytes: int, n_calls: int) -> float:
        """Bytes over the slowest way that they have to take, and what it takes to begin."""
        return n_bytes / self._link + n_calls * self.machine.latency_seconds

    def _name(self, piece: Piece) -> str:
        if piece.kind != "norm":
            return piece.kind
        if not isinstance(piece.what, RmsNorm):
            return "layernorm"
        return "rmsnorm" if self.setup.dtype == "float32" else "rmsnorm in half"

    def _product(self, rows: int, inner: int, outer: int) -> float:
        peak = self.machine.peak_flops[self.setup.dtype] * self.machine.product_share
        n_bytes = (rows * inner + inner * outer + rows * outer) * BYTES[self.setup.dtype]
        return max(2 * rows * inner * outer / peak, n_bytes / self._speed, self.machine.launch_seconds)

    def _attention(self, piece: Piece) -> Seconds:
        assert isinstance(piece.what, Attention)
        batch_size, n = piece.shape
        attention = piece.what
        width = attention.n_heads * attention.d_head
        operations = 4 * width * keys_seen(attention.sees, n) * batch_size * n
        peak = self.machine.peak_flops[self.setup.dtype] * self.machine.attention_share
        n_bytes = batch_size * n * 2 * (attention.n_heads + attention.n_kv_heads) * attention.d_head
        least = max(n_bytes * BYTES[self.setup.dtype] / self._speed, self.machine.launch_seconds)
        return Seconds(max(operations / peak, least), max(2.5 * operations / peak, 2 * least))
