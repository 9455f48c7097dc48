"""The processes that train one model together: who this one is, and the few words that they exchange beside gradients.

    torchrun --nproc-per-node 2 -m unembed train my.txt --out runs/mine --set parallel=fsdp

torchrun starts the processes and says to each which it is (RANK of WORLD_SIZE). They meet at one address, exchange gradients by
PyTorch's collectives (parallel.py), and words such as "the run is begun" through the store of that meeting: as JSON, for what
somebody sends is never run. Process 0 is the first: it alone writes logs and speaks. The next file to read is parallel.py.
"""

import contextlib
import hashlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.rendezvous import rendezvous

from unembed import errors
from unembed.errors import PeerLostError, UnembedError, UsageError

# What torchrun gives every process.
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
MEET_WITHIN = timedelta(minutes=10)
# The first process may read and encode text for hours while the others wait for its word.
LONGEST_WAIT = timedelta(days=7)
# The first process goes last. Where one was lost, that one never says good-bye.
LONGEST_FAREWELL, SHORT_FAREWELL = timedelta(seconds=60), timedelta(seconds=2)
# How PyTorch's transports tell that nobody is at the other end any more; it has no type for it that all of them use.
_GONE = (
    "gloo",
    "closed by peer",
    "reset by peer",
    "broken pipe",
    "timed out",
    "nccl",
    "tcpstore",
    "socket",
    "recv failed",
)


class Processes:
    """The group that this process belongs to; `ALONE` is the group of one that needs no torchrun.

    Every method but `first`'s and `say_once`'s arguments is called by all processes at the same place, or nobody goes on.
    """

    def __init__(self, rank: int = 0, n: int = 1, *, local_rank: int = 0, n_local: int = 1, store: Any = None) -> None:
        self.rank, self.n, self.local_rank, self.n_local = rank, n, local_rank, n_local
        self._store = store
        self._n_words = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes logs and speaks."""
        return self.rank == 0

    @property
    def is_launched(self) -> bool:
        """Whether torchrun (or whoever sets its variables) has started this process."""
        return self._store is not None

    @property
    def program(self) -> str:
        """How the command line begins that starts as many processes again."""
        if not self.is_launched:
            return "unembed"
        nodes = f"--nnodes {self.n // self.n_local} " if self.n > self.n_local else ""
        return f"torchrun {nodes}--nproc-per-node {self.n_local} -m unembed"

    def sums(self, *values: float) -> list[float]:
        """Each value added up over all processes, in float64."""
        if self.n == 1:
            return list(values)
        there = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(there)
        return there.tolist()

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag whether it is up anywhere."""
        return [value > 0 for value in self.sums(*map(float, flags))]

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean of a tensor over all processes, in its own place."""
        if self.n > 1:
            dist.all_reduce(tensor)
            tensor /= self.n
        return tensor

    def first(self, make: Callable[[], Any]) -> Any:
        """What the first process makes, plain values, handed to all. One of our errors there is raised by all of them."""
        if self.n == 1:
            return make()
        key = self._next_key()
        if not self.is_first:
            word = msgspec.json.decode(self._wait(key))
            if "error" in word:
                raise getattr(errors, word["error"])(word["message"])
            return word["value"]
        try:
            value = make()
        except UnembedError as error:
            self._store.set(key, msgspec.json.encode({"error": type(error).__name__, "message": str(error)}))
            raise
        except BaseException as error:
            told = {"error": "PeerLostError", "message": f"process 0 has failed: {type(error).__name__}"}
            self._store.set(key, msgspec.json.encode(told))
            raise
        self._store.set(key, msgspec.json.encode({"value": value}))
        return value

    def gathered(self, value: Any) -> list[Any]:
        """The plain value of every process, in their order, for the first one; the others get only their own."""
        if self.n == 1:
            return [value]
        key = self._next_key()
        self._store.set(f"{key}/{self.rank}", msgspec.json.encode(value))
        if not self.is_first:
            return [value]
        return [msgspec.json.decode(self._wait(f"{key}/{rank}")) for rank in range(self.n)]

    @contextmanager
    def telling_of_the_lost(self, what_next: Callable[[], str]) -> Iterator[None]:
        """Turns the transport's complaint about a process that is gone into a sentence, ended by `what_next`.

        Raises: PeerLostError.
        """
        try:
            yield
        except (RuntimeError, ConnectionError) as error:
            if self.n == 1 or not _is_of_the_group(error):
                raise
            # torchrun ends the others by SIGTERM as soon as it sees one end; what has happened is to be said before that
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            raise PeerLostError(
                f"process {self.rank} of {self.n} has lost another one: it was killed (by hand, or for memory), failed, or its "
                f"machine is gone; what it said itself stands above. All stop. {what_next()}"
            ) from error

    def said_once(self, error: UnembedError) -> UnembedError:
        """The error as it is for the process that is the first to say so, without words for those that come after."""
        if self.n == 1:
            return error
        told = "lost" if isinstance(error, PeerLostError) else hashlib.sha256(str(error).encode()).hexdigest()
        try:
            is_first = self._store.add(f"unembed/said/{told}", 1) == 1
        except (RuntimeError, ConnectionError):  # the first process kept the store, and has ended
            is_first = isinstance(error, PeerLostError)
        return error if is_first else type(error)("")

    def leave(self, patience: timedelta) -> None:
        """Says good-bye; the first process, who may keep the store that all read in, goes last or when its patience ends."""
        if self.n == 1:
            return
        if not self.is_first:
            self._store.set(f"unembed/left/{self.rank}", b"")
            return
        until = time.monotonic() + patience.total_seconds()
        # asked again and again, because a wait that runs out complains on stderr
        while not self._store.check([f"unembed/left/{rank}" for rank in range(1, self.n)]) and time.monotonic() < until:
            time.sleep(0.02)

    def _next_key(self) -> str:
        self._n_words += 1
        return f"unembed/word/{self._n_words}"

    def _wait(self, key: str) -> bytes:
        self._store.wait([key], LONGEST_WAIT)
        found: bytes = self._store.get(key)
        return found


ALONE = Processes()


@contextmanager
def joined(environment: Mapping[str, str], device: str) -> Iterator[Processes]:
    """Meets the other processes that torchrun has started; a process that nobody else was started with is alone.

    Where the meeting place is this very machine, nothing but its loopback is used. Our errors are said by one process.
    Raises: UsageError for variables that lack or contradict each other; PeerLostError where the others do not come.
    """
    place = read_place(environment)
    if place is None or dist.is_initialized():
        yield ALONE
        return
    rank, n, local_rank, n_local = place
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    with _loopback(environment, n == n_local):
        try:
            store = HashStore() if n == 1 else next(rendezvous("env://", timeout=MEET_WITHIN))[0]
            dist.init_process_group(backend, store=store, rank=rank, world_size=n)
        except (RuntimeError, OSError, ValueError) as error:
            where = f"{environment.get('MASTER_ADDR')}:{environment.get('MASTER_PORT')}"
            raise PeerLostError(
                f"process {rank} of {n} could not meet the others at {where}: {str(error).splitlines()[0][:200]}. Were all "
                "started, and can they reach that address?"
            ) from error
        processes = Processes(rank, n, local_rank=local_rank, n_local=n_local, store=store)
        last = LONGEST_FAREWELL
        try:
            yield processes
        except UnembedError as error:
            last = SHORT_FAREWELL if isinstance(error, PeerLostError) else last
            raise processes.said_once(error) from error
        finally:
            with contextlib.suppress(RuntimeError, ConnectionError):  # the connections may have gone with the others
                processes.leave(last)
                dist.destroy_process_group()


class Place(NamedTuple):
    """Which process this is, of how many, and the same among those of its machine."""

    rank: int
    n: int
    local_rank: int
    n_local: int


def read_place(environment: Mapping[str, str]) -> Place | None:
    """What torchrun says of this process; None where it did not start it. Raises: UsageError.

    >>> read_place({}), read_place({"RANK": "0", "WORLD_SIZE": "1"})
    (None, Place(rank=0, n=1, local_rank=0, n_local=1))
    """
    if not any(environment.get(name) for name in ("RANK", "WORLD_SIZE")):
        return None
    needed = VARIABLES if environment.get("WORLD_SIZE") != "1" else VARIABLES[:2]
    if missing := [name for name in needed if not environment.get(name)]:
        there = [name for name in VARIABLES if environment.get(name)]
        raise UsageError(
            f"{' and '.join(there)} {'is' if len(there) == 1 else 'are'} set, but not {', '.join(missing)}. Processes that "
            "train together are started by torchrun, which sets all of them; to train with one, unset these"
        )
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    defaults = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": environment["WORLD_SIZE"]}
    try:
        rank, n, local_rank, n_local = (int(environment.get(name) or defaults[name]) for name in names)
    except ValueError:
        shown = ", ".join(f"{name}={environment.get(name)!r}" for name in names)
        raise UsageError(f"{shown}: expected whole numbers, as torchrun sets them") from None
    if not 0 <= rank < n or not 0 <= local_rank < n_local <= n:
        raise UsageError(
            f"RANK is {rank} of WORLD_SIZE {n}, LOCAL_RANK {local_rank} of LOCAL_WORLD_SIZE {n_local}; ranks count from 0 and "
            "stay below their size. Start the processes by torchrun, which sets them"
        )
    return Place(rank, n, local_rank, n_local)


@contextmanager
def _loopback(environment: Mapping[str, str], is_one_machine: bool) -> Iterator[None]:
    """Keeps processes of one machine off the network: by itself the transport would listen at the machine's own name."""
    name = "GLOO_SOCKET_IFNAME"
    found = [one for _, one in socket.if_nameindex() if one in ("lo", "lo0")]
    if not is_one_machine or environment.get(name) or not found:
        yield
        return
    os.environ[name] = found[0]
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _is_of_the_group(error: Exception) -> bool:
    told = str(error).lower()
    return isinstance(error, dist.DistError | ConnectionError) or any(word in told for word in _GONE)
