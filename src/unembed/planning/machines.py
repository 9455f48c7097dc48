"""Published numbers of the devices that a plan is made for, and the shares of them that training reaches.

Peaks are those of the makers' data sheets, dense, at full clock; no training reaches them. `product_share` of h100 and of
a100 were each fitted to one published run, which docs/scale.md names; 4090 has a100's, for want of a run. The other
shares were chosen before. They are the same for all sizes of model, which is the largest simplification of the plan.
The next file to read is pieces.py.
"""

from typing import Literal

import msgspec

DeviceKind = Literal["h100", "a100", "4090", "cpu"]


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device and its ways to the others. Speeds are bytes a second in one direction, or operations a second.

    peak_flops     of dense products by number type; an operation is a multiplication or an addition
    memory_bytes   what one device has; `memory_speed` is the speed at which it is read
    node_devices   how many share a node; `link_speed` is one device's to the others of its node, `network_speed` one node's
                   to the other nodes
    launch_seconds the least time from one kernel's start to the next one's, as Python and autograd issue them
    latency_seconds of one collective
    price          US dollars per device and hour, a list price of 2025 that only gives the order of magnitude
    """

    name: str
    peak_flops: dict[str, float]
    memory_bytes: int
    memory_speed: float
    node_devices: int
    link_speed: float
    network_speed: float
    product_share: float
    attention_share: float
    memory_share: float
    link_share: float
    launch_seconds: float
    latency_seconds: float
    price: float
    source: str


GIB = 2**30

_MEMORY_SHARE = 0.80

MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine(
            name="h100",
            peak_flops={"bfloat16": 989e12, "float32": 67e12},
            memory_bytes=80 * 10**9,
            memory_speed=3.35e12,
            node_devices=8,
            link_speed=450e9,
            network_speed=400e9,
            product_share=0.45,
            attention_share=0.40,
            memory_share=_MEMORY_SHARE,
            link_share=0.75,
            launch_seconds=6e-6,
            latency_seconds=30e-6,
            price=3.0,
            source="NVIDIA H100 SXM5 data sheet; NVLink 4: 900 GB/s both ways; eight network cards of 400 Gb/s a node",
        ),
        Machine(
            name="a100",
            peak_flops={"bfloat16": 312e12, "float32": 19.5e12},
            memory_bytes=80 * 10**9,
            memory_speed=2.04e12,
            node_devices=8,
            link_speed=300e9,
            network_speed=200e9,
            product_share=0.65,
            attention_share=0.55,
            memory_share=_MEMORY_SHARE,
            link_share=0.75,
            launch_seconds=6e-6,
            latency_seconds=30e-6,
            price=1.8,
            source="NVIDIA A100 80GB SXM4 data sheet; NVLink 3: 600 GB/s both ways; eight network cards of 200 Gb/s a node",
        ),
        Machine(
            name="4090",
            peak_flops={"bfloat16": 165e12, "float32": 82.6e12},
            memory_bytes=24 * GIB,
            memory_speed=1.008e12,
            node_devices=8,
            link_speed=20e9,
            network_speed=1.25e9,
            product_share=0.65,
            attention_share=0.55,
            memory_share=_MEMORY_SHARE,
            link_share=0.75,
            launch_seconds=6e-6,
            latency_seconds=60e-6,
            price=0.5,
            source="NVIDIA Ada architecture paper; PCIe 4.0 without peer access; a network of 10 Gb/s",
        ),
    )
}
