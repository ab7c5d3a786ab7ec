"""From the section `custom` of a configuration to a job: its nouns, its kernel, what must come out, and its one case.

Everything is looked at before anything runs: files, names, the entry's parameters, the fills and the reference. Errors
are RequestErrors that name the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from cases.assumptions import checked_assumptions
from cases.case import Case
from cases.dtypes import NONE
from cases.refusal import Refusal
from kernels.brought import BroughtFunction, function_at
from kernels.own.arguments import BroughtArgument, arguments_of
from kernels.own.code import LAUNCH_KEYS, OwnCode, code_at, launch_of
from kernels.sources import Source
from kernels.spec import refuses_no_multicast, refuses_unmapped, refuses_world_size
from memory.fabric import Launch, Traits, refuses_shared_bytes
from runner.case.allowed_code import start_of
from runner.case.bringing import custom_digest, custom_sources
from runner.custom.nouns import BufferSpec, Contents, CustomSpec, Fill, FillFunction, Tolerance, check_launches
from runner.custom.program import CompiledCustom
from runner.request.sizes import parse_bytes
from runner.request.validate import CUSTOM
from runner.request_error import RequestError, naming, near

OP = CUSTOM
KEYS = ("kernel", "launch", "buffers", "arguments", "reference", "tolerance", "bytes", "launches", "then")
STEP_KEYS = ("kernel", "launch", "arguments")
BUFFER_KEYS = ("dtype", "shape", "symmetric", "fill")
TOLERANCE_KEYS = ("absolute", "relative")


@dataclass(frozen=True, slots=True)
class CustomKernel:
    """The kernel as it was brought. asked is what a section says of a function's launch, by Launch's names; assumptions
    what the kernel relies on beyond PTX (cases/assumptions.py). stream: a number, None for the default one."""

    code: OwnCode
    asked: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    stream: int | None = None

    def compiled(self, spec: CustomSpec, world_size: int, arch: str) -> CompiledCustom:
        """Return what runs on an architecture. Raises what OwnCode.compiled does."""
        given = [spec.arguments] * world_size, {one.name: one for one in spec.buffers}
        made = self.code.compiled(_record_name(spec), self.code.name, *given, self.asked, arch, self.assumptions)
        launch = spec.launch if made.host is None else made.host.launch
        assert launch is not None
        return CompiledCustom(made, replace(launch, stream=self.stream))


@dataclass(frozen=True, slots=True)
class CustomJob:
    """A custom kernel that was found possible: its nouns, its kernel, its case, its files, and what must come out.

    inputs and expected are by rank; expected is None if there is no reference. moved_bytes are those that all
    launches in a row move over a rank's links, as they are declared; 0 if they are not. digest is "sha256:<hex>" of its
    places and of names and contents of all files that they are made of. then: kernels that follow, as spec.then.
    """

    spec: CustomSpec
    kernel: CustomKernel
    case: Case
    sources: tuple[Source, ...]
    digest: str
    inputs: tuple[Contents, ...]
    expected: tuple[Contents, ...] | None
    moved_bytes: int = 0
    then: tuple[CustomKernel, ...] = ()

    @property
    def place(self) -> str:
        return self.kernel.code.place

    @property
    def ptx(self) -> str:
        """The PTX of all kernels, as far as it is known before they are compiled."""
        return "\n".join(one.code.ptx for one, _ in self.kernels)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its kernels rely on beyond PTX."""
        return tuple(dict.fromkeys(name for one, _ in self.kernels for name in one.assumptions))

    @property
    def compared(self) -> tuple[str, ...]:
        """The buffers that the reference gives of any rank."""
        names = {name for contents in self.expected or () for name in contents}
        return tuple(buffer.name for buffer in self.spec.buffers if buffer.name in names)

    @property
    def kernels(self) -> tuple[tuple[CustomKernel, CustomSpec], ...]:
        """Each kernel of a launch, with what it is given."""
        return tuple(zip((self.kernel, *self.then), (self.spec, *self.spec.then), strict=True))

    def compiled(self, arch: str) -> CompiledCustom:
        """Return what runs on an architecture. Raises what CustomKernel.compiled does."""
        first, *then = (kernel.compiled(spec, self.case.world_size, arch) for kernel, spec in self.kernels)
        return replace(first, then=tuple(then))

    def refusal(self, traits: Traits) -> Refusal | None:
        """Return why it can't run on a fabric with these traits; None if it can, as far as that is known before."""
        name = _record_name(self.spec)
        if unfit := refuses_world_size(self.case, traits) or refuses_unmapped(name, traits):
            return unfit
        for kernel, spec in self.kernels:
            if reason := kernel.code.refuses_arch(traits.arch):
                return Refusal("fabric.arch", f"{_record_name(spec)} can't run: {reason}")
            if unfit := _refuses_block(_record_name(spec), kernel, spec, traits):
                return unfit
        return refuses_no_multicast(name, traits) if self.spec.needs_multicast else None


def _refuses_block(name: str, brought: CustomKernel, spec: CustomSpec, traits: Traits) -> Refusal | None:
    """Return the refusal of a block that the kernel can't have, and of more shared memory than a block can have.

    Of a function, only the section is known.
    """
    from simulator.ptx.parse import parse_kernel

    asked, static, target = brought.asked.get("shared_bytes", 0), 0, ""
    if spec.launch is not None:
        asked = spec.launch.shared_bytes
        with suppress(ValueError):  # said where it runs
            kernel = parse_kernel(brought.code.ptx, brought.code.name)
            static, target = kernel.dynamic_offset_bytes, kernel.target
            if reason := kernel.refuses_block(name, spec.launch.block):
                return Refusal("custom.launch.block", reason, "give such a block")
    if not traits.block_shared_bytes:
        return None
    unfit = refuses_shared_bytes(name, asked, static, traits.block_shared_bytes, target)
    return Refusal("custom.launch.shared_bytes", *unfit) if unfit else None


def custom_job(
    section: Mapping[str, Any],
    world_size: int,
    seed: int,
    is_checked: bool,
    folder: Path | None = None,
    check_memory: Callable[[CustomSpec, str], None] = lambda spec, ptx: None,
) -> CustomJob:
    """Return the job that a section describes. folder: where relative paths begin; None: the working folder.

    is_checked: whether the request wants outputs compared. check_memory raises for a spec (with its PTX, "" of a
    function) that does not fit; it is called before inputs are made. RequestError, in one line, for what can't be.
    """
    from runner.custom.contents import expected_of, inputs_of

    _check_keys(section, KEYS, "custom")
    reference = _plain_function(section.get("reference"), "custom.reference", folder)
    if reference is None and is_checked:
        raise RequestError(
            "there is no reference to check outputs by (custom.reference), give file.py:NAME of a function, or "
            "check=false"
        )
    buffers = _buffers(section.get("buffers"), folder)
    with naming("custom.launches"):
        check_launches(section.get("launches", 1))
    with naming("custom"):
        each = [("custom", section), *_followers(section.get("then", []))]
        (kernel, spec), *then = [_step(one, folder, buffers, world_size, key) for key, one in each]
        spec = replace(
            spec,
            reference=reference.call if reference is not None and is_checked else None,
            tolerance=_tolerance(section.get("tolerance")),
            launches=section.get("launches", 1),
            then=tuple(one for _, one in then),
        )
        check_memory(spec, "\n".join(one.code.ptx for one in (kernel, *(one for one, _ in then))))
        with naming("custom.buffers"):
            inputs = inputs_of(spec, world_size, seed)
        with naming("custom.reference"):
            expected = expected_of(spec, inputs) if spec.reference is not None else None
    sources, digest = custom_sources(section, folder), custom_digest(section, folder)
    moved_bytes = parse_bytes(section["bytes"], "custom.bytes") if section.get("bytes") is not None else 0
    case = _case(spec.name, spec.buffers, world_size, seed)
    followers = tuple(one for one, _ in then)
    return CustomJob(spec, kernel, case, sources, digest, inputs, expected, moved_bytes * spec.launches, followers)


def _followers(given: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The kernels that follow the first in each launch, with their keys."""
    if not isinstance(given, (list, tuple)):
        raise RequestError(f"{given!r} is no list (custom.then), give [{{kernel: .., launch: .., arguments: [..]}}]")
    for number, one in enumerate(given):
        key = f"custom.then[{number}]"
        if not isinstance(one, Mapping):
            raise RequestError(f"{one!r} is no kernel ({key}), give {{kernel: .., launch: .., arguments: [..]}}")
        _check_keys(one, STEP_KEYS, key)
        yield key, one


def _step(
    given: Mapping[str, Any], folder: Path | None, buffers: tuple[BufferSpec, ...], world_size: int, key: str
) -> tuple[CustomKernel, CustomSpec]:
    """A kernel with its launch and its arguments."""
    code, by_name = _code(given, folder, key), {one.name: one for one in buffers}
    launch, asked = _launch(given.get("launch"), code.is_function, f"{key}.launch")
    arguments = _arguments(given.get("arguments"), by_name, world_size, code, f"{key}.arguments")
    if unfit := code.refuses_arguments(code.name, [arguments] * world_size, by_name):
        raise RequestError(f"{code.place}: {unfit} ({key}.arguments), give one for each in their order")
    kernel = CustomKernel(code, assumptions=asked.pop("assumptions"), stream=asked.pop("stream"), asked=asked)
    return kernel, CustomSpec(_name(code.name), launch, buffers, arguments)


def case_of_section(section: Mapping[str, Any], world_size: int, seed: int) -> Case:
    """Return the case of a section that was found possible, without loading any of its files."""
    buffers = [
        BufferSpec(str(name), str(values.get("dtype", "float32")), _lengths(values.get("shape")))
        for name, values in section["buffers"].items()
    ]
    return _case(_name(str(section["kernel"]).rpartition(":")[2]), buffers, world_size, seed)


def _case(name: str, buffers: Sequence[BufferSpec], world_size: int, seed: int) -> Case:
    """The case of a job: it counts the bytes of one rank's buffers, and has the dtype of the first."""
    return Case(
        op=OP,
        algorithm=name,
        dtype=buffers[0].dtype,
        accumulator=NONE,
        reduction=NONE,
        size_bytes=sum(buffer.size_bytes for buffer in buffers),
        world_size=world_size,
        seed=seed,
    )


def _code(section: Mapping[str, Any], folder: Path | None, at: str) -> OwnCode:
    from simulator.ptx.parse import check_start, module_with

    def load(place: str) -> BroughtFunction | None:
        return _function(place, f"{at}.kernel", folder)

    with naming(f"{at}.kernel"):
        code = code_at(section.get("kernel"), lambda path: start_of(path, folder), load)
        if not code.is_function:
            try:
                check_start("PTX", code.ptx)
                module_with(code.ptx, code.name)
            except ValueError as error:
                raise ValueError(f"{code.place}: {error}") from error
    return code


def _function(text: object, key: str, folder: Path | None) -> BroughtFunction | None:
    """The function at a place; None for no text. RequestError naming the key."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise RequestError(f"{text!r} names no function ({key}), give file.py:NAME or package.module:NAME")
    where, _, name = text.rpartition(":")
    path = Path(where).expanduser()
    with naming(key):
        if where.endswith(".py") or "/" in where:
            return function_at(f"{path}:{name}", start_of(path, folder))
        return function_at(text)


def _plain_function(text: object, key: str, folder: Path | None) -> BroughtFunction | None:
    """A function that is written in the file that its place names, as _function gives it: this calls what a record
    names, and a file can import anything."""
    found = _function(text, key, folder)
    if found is None:
        return None
    call = found.call
    if isinstance(call, FunctionType) and str(Path(call.__code__.co_filename).resolve()) in found.files:
        return found
    raise RequestError(
        f"{text} is of type {type(call).__name__} and not a function that its file defines ({key}), define it there "
        "with def, without a decorator"
    )


def _buffers(given: object, folder: Path | None) -> tuple[BufferSpec, ...]:
    if not isinstance(given, Mapping) or not given:
        raise RequestError("no buffers (custom.buffers), give {name: {dtype: float32, shape: [1024], fill: normal}}")
    return tuple(_buffer(str(name), values, folder) for name, values in given.items())


def _buffer(name: str, values: object, folder: Path | None) -> BufferSpec:
    key = f"custom.buffers.{name}"
    if not isinstance(values, Mapping):
        raise RequestError(f"{values!r} describes no buffer ({key}), give {{dtype: float32, shape: [1024]}}")
    _check_keys(values, BUFFER_KEYS, key)
    symmetric, shape = values.get("symmetric", True), values.get("shape")
    if not isinstance(symmetric, bool):
        raise RequestError(f"symmetric is {symmetric!r} ({key}.symmetric), give true or false")
    fill = _fill(values.get("fill", "poison"), f"{key}.fill", folder)
    with naming(key):
        return BufferSpec(name, str(values.get("dtype", "float32")), _lengths(shape), symmetric, fill)


def _lengths(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple; a number alone is a shape of one dimension."""
    return tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)


def _fill(given: object, key: str, folder: Path | None) -> Fill | FillFunction:
    if isinstance(given, str) and ":" in given:
        function = _plain_function(given, key, folder)
        assert function is not None
        return function.call
    if given in tuple(Fill):
        return Fill(str(given))
    raise RequestError(f"unknown fill {given!r} ({key}), give {', '.join(Fill)}, or file.py:NAME of a function")


def _arguments(
    given: object, buffers: Mapping[str, BufferSpec], world_size: int, code: OwnCode, at: str
) -> tuple[BroughtArgument, ...]:
    """The arguments, as kernels/own/arguments.py reads them. RequestError naming the one that is wrong."""
    listed: Any = given or []
    if not isinstance(listed, (list, tuple)):
        raise RequestError(f"arguments are no list ({at}), give [{{peers: input}}, {{u32: 1024}}, rank]")
    try:
        return arguments_of(listed, world_size, buffers, f"{at}[{{}}]", code.is_function)
    except ValueError as error:
        raise RequestError(str(error)) from error


def _launch(given: object, is_function: bool, at: str = "custom.launch") -> tuple[Launch | None, dict[str, Any]]:
    """The launch of PTX; of a function, which has its own, None; and what else is said of it."""
    if is_function and given is None:
        given = {}
    if not isinstance(given, Mapping) or not (is_function or {"grid", "block"} <= set(given)):
        raise RequestError(f"no grid and block ({at}), give {{grid: 2, block: 128}}")
    _check_keys(given, (*LAUNCH_KEYS, "stream", "assumptions"), at)
    asked = {str(key): value for key, value in given.items() if key not in ("assumptions", "stream")}
    with naming(at):
        launch = launch_of({**asked, "stream": given.get("stream")})
        said = {"assumptions": checked_assumptions(given.get("assumptions", ())), "stream": launch.stream}
    return (None, {key: getattr(launch, key) for key in asked} | said) if is_function else (launch, said)


def _tolerance(given: object) -> Tolerance:
    if given is None or given == "bitwise":
        return Tolerance()
    if not isinstance(given, Mapping):
        raise RequestError(
            f"{given!r} is no tolerance (custom.tolerance), give bitwise, or {{absolute: 1e-6, relative: 1e-6}}"
        )
    _check_keys(given, TOLERANCE_KEYS, "custom.tolerance")
    if not given:
        raise RequestError("no bound in it (custom.tolerance), give absolute or relative, or bitwise")
    values: dict[str, Any] = {str(key): value for key, value in given.items()}
    return Tolerance(**values)


def _check_keys(given: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise RequestError(f"unknown key '{key}' ({where}.{key}), {near(str(key), known)}")


def _name(entry: str) -> str:
    """The kernel's name in records: letters, digits and underscores of its entry or function."""
    return re.sub(r"\W+", "_", entry, flags=re.ASCII).strip("_") or "kernel"


def _record_name(spec: CustomSpec) -> str:
    return f"{OP}/{spec.name}"
