"""Sharded checkpoints through PyTorch's own distributed checkpoints, as safetensors: each process writes and reads its part.

PyTorch plans who writes what and writes safetensors (`HuggingFaceStorageWriter`), of which nothing is ever unpickled; the
folder, its manifest and the one rename that makes it a checkpoint are ours (native.py). Tensors alone are handed over: for
anything else PyTorch's planner would fall back to pickles. The next file to read is folder.py.
"""

import errno
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from unembed.checkpoints.files import NO_SPACE, Written
from unembed.checkpoints.run.shards import Whole, shard_files, wholes
from unembed.errors import CheckpointError, ResourceError

# PyTorch's name of a file; the number before the first dash is the process that wrote it, from 1
_OWN = "shard-{rank:05d}-"


def write_parts(folder: Path, tensors: Mapping[str, Tensor], rank: int) -> dict[str, Written]:
    """Writes this process's parts of tensors into a folder that exists; every process calls it with the same names.

    Gives size and SHA-256 of the file that this process wrote, by its name; none where it had nothing to write.
    Raises: ResourceError, CheckpointError on every process when one of them could not write.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    if not tensors:
        return {}
    with _told(f"writing the shards of {folder}"):
        save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    return {
        file.name: _written(file) for file in shard_files(folder) if file.name.startswith(_OWN.format(rank=rank + 1))
    }


def read_parts(folder: Path, mesh: DeviceMesh) -> dict[str, Tensor]:
    """This process's rows of every tensor of a folder of shards, however many processes wrote them.

    Only what is needed is read. Single numbers come whole. Raises: CheckpointError on every process.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    found = {name: _empty(one, mesh) for name, one in wholes(folder).items()}
    if found:
        with _told(f"reading the shards of {folder}"):
            load(found, storage_reader=HuggingFaceStorageReader(str(folder)))
    return found


def _empty(one: Whole, mesh: DeviceMesh) -> Tensor:
    from torch.distributed.tensor import Shard, zeros

    if not one.shape:
        return torch.zeros((), dtype=one.dtype)
    made: Tensor = zeros(one.shape, dtype=one.dtype, device_mesh=mesh, placements=[Shard(0)])
    return made


def _written(file: Path) -> Written:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    handle = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return Written(n_bytes=file.stat().st_size, sha256=digest)


@contextmanager
def _told(action: str) -> Iterator[None]:
    """What PyTorch gathered of the failures of all processes, as one of our errors. Its own is no Exception."""
    from torch.distributed.checkpoint.api import CheckpointException

    logger = logging.getLogger("torch.distributed.checkpoint")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of what is meant here: a process that is alone, a state of tensors alone
    try:
        yield
    except CheckpointException as failed:
        rank, (error, _) = next(iter(failed.failures.items()))
        reason = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        message = f"{action} failed in process {rank}: {reason.splitlines()[0]}. What was saved before is untouched."
        if isinstance(error, OSError) and error.errno in NO_SPACE | {errno.ENOMEM}:
            raise ResourceError(f"{message} Make space there, or choose another disk, and try again.") from None
        raise CheckpointError(f"{message} Check that disk and its permissions, and try again.") from None
    finally:
        logger.setLevel(level)
