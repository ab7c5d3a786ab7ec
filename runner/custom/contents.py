"""What buffers hold before a launch: a pure function of the fill, the seed, the buffer's name and the rank."""

from __future__ import annotations

import hashlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from cases.dtypes import DTYPES, FLOATS
from kernels.brought import where_raised
from runner.custom.nouns import BufferSpec, Contents, CustomSpec, Fill


def inputs_of(spec: CustomSpec, world_size: int, seed: int) -> tuple[Contents, ...]:
    """Return what the filled buffers of all ranks hold, by rank: host tensors by name. Poisoned buffers are left out.

    Raises ValueError, in one line, for a fill function that raises or returns anything else than the buffer holds.
    """
    return tuple(
        {
            buffer.name: content_of(buffer, rank, world_size, seed)
            for buffer in spec.buffers
            if buffer.fill is not Fill.poison
        }
        for rank in range(world_size)
    )


def content_of(buffer: BufferSpec, rank: int, world_size: int, seed: int) -> torch.Tensor:
    """Return what a buffer that is filled holds on a rank. ValueError as inputs_of."""
    if not isinstance(buffer.fill, Fill):
        what = f"the fill of buffer {buffer.name} for rank {rank}"
        made = _called(what, buffer.fill, rank, world_size)
        with _defined_at(buffer.fill):
            return _own(check_content(what, buffer, made))
    dtype = DTYPES[buffer.dtype]
    if buffer.fill is Fill.poison:
        return torch.full((buffer.size_bytes,), 0xFF, dtype=torch.uint8).view(dtype).view(buffer.shape)
    if buffer.fill is Fill.zeros:
        return torch.zeros(buffer.size_bytes, dtype=torch.uint8).view(dtype).view(buffer.shape)
    if buffer.fill is Fill.rank:
        return torch.full(buffer.shape, rank, dtype=torch.int64).to(_wide(buffer)).to(dtype)
    generator = torch.Generator().manual_seed(_seed_of(buffer, rank, seed))
    if buffer.fill is Fill.normal:
        return torch.randn(buffer.shape, generator=generator, dtype=_wide(buffer)).to(dtype)
    if buffer.dtype in FLOATS:
        return torch.rand(buffer.shape, generator=generator, dtype=_wide(buffer)).to(dtype)
    drawn = torch.randint(0, 256, (buffer.size_bytes,), generator=generator, dtype=torch.uint8)
    return drawn.view(dtype).view(buffer.shape)


def check_content(what: str, buffer: BufferSpec, found: object) -> torch.Tensor:
    """Return what was made for a buffer. ValueError unless it is a host tensor of its dtype and shape."""
    right = f"give a tensor of torch.{buffer.dtype}, shape {list(buffer.shape)}"
    if not isinstance(found, torch.Tensor):
        raise ValueError(f"{what} is a {type(found).__name__}, {right}")
    if found.dtype != DTYPES[buffer.dtype] or tuple(found.shape) != buffer.shape:
        raise ValueError(f"{what} is {found.dtype}, shape {list(found.shape)}, {right}")
    if found.layout is not torch.strided:
        raise ValueError(f"{what} is sparse ({found.layout}), give a dense tensor")
    if found.device.type != "cpu":
        raise ValueError(f"{what} is on {found.device}, give a tensor of the host")
    return found


def expected_of(spec: CustomSpec, inputs: Sequence[Contents]) -> tuple[Contents, ...]:
    """Return what must come out, by rank: the compared buffers, none of a rank of which nothing is compared.

    Raises ValueError, in one line, for a reference that raises, or gives anything else than the buffers hold.
    """
    assert spec.reference is not None
    given = [{name: one.clone() for name, one in contents.items()} for contents in inputs]
    found = _called("the reference", spec.reference, given)
    with _defined_at(spec.reference):
        return _checked(spec, found, len(inputs))


def _called(what: str, function: Callable[..., object], *given: object) -> object:
    """What a user's function returns. ValueError, in one line with its file and line, for whatever it raises."""
    try:
        found = function(*given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: a function must not end the command
        text = " ".join(str(error).split()) or "no message"
        frames = traceback.extract_tb(error.__traceback__)
        where = where_raised(error) if len(frames) > 1 else _definition(function)
        raise ValueError(f"{what} raises {type(error).__name__}: {text}{f', {where}' if where else ''}") from error
    if inspect.iscoroutine(found):
        found.close()  # else Python warns that it was not awaited
    return found


@contextmanager
def _defined_at(function: Callable[..., object]) -> Iterator[None]:
    """Within, a ValueError ends with the file and line where a user's function is defined."""
    try:
        yield
    except ValueError as error:
        where = _definition(function)
        raise ValueError(f"{error}; it is defined in {where}" if where else str(error)) from error


def _definition(function: Callable[..., object]) -> str:
    """ "file.py:12" of a function in Python; "" of another callable."""
    code = getattr(function, "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else ""


def _checked(spec: CustomSpec, found: object, world_size: int) -> tuple[Contents, ...]:
    """What a reference returned, as tensors of this module's own. ValueError for anything else than buffers hold."""
    if not isinstance(found, Sequence) or len(found) != world_size:
        count = f"{len(found)} results" if isinstance(found, Sequence) else f"a {type(found).__name__}"
        raise ValueError(f"the reference gives {count}, give a list of one result for each of {world_size} ranks")
    by_name = {buffer.name: buffer for buffer in spec.buffers}
    for rank, contents in enumerate(found):
        if contents is None:
            continue
        if not isinstance(contents, dict):
            raise ValueError(
                f"the reference's result of rank {rank} is a {type(contents).__name__}, give a dict of tensors by "
                "buffer name, or None"
            )
        for name, tensor in contents.items():
            if name not in by_name:
                raise ValueError(
                    f"the reference's result of rank {rank} has a buffer {name!r}: the buffers are {', '.join(by_name)}"
                )
            check_content(f"the reference's {name} of rank {rank}", by_name[name], tensor)
    if not any(found):
        raise ValueError("the reference gives no buffer of any rank, so nothing would be compared")
    return tuple({name: _own(one) for name, one in (contents or {}).items()} for contents in found)


def _own(made: torch.Tensor) -> torch.Tensor:
    """A copy: a function may write to what it made once more, for the next rank."""
    return made.detach().clone(memory_format=torch.contiguous_format)


def _wide(buffer: BufferSpec) -> torch.dtype:
    """The type in which numbers are made before they are rounded to the buffer's."""
    if buffer.dtype not in FLOATS:
        return torch.int64
    return torch.float64 if buffer.dtype == "float64" else torch.float32


def _seed_of(buffer: BufferSpec, rank: int, seed: int) -> int:
    digest = hashlib.sha256(f"{seed}/{buffer.name}/{rank}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
