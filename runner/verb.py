"""Verbs that run cases, as click commands: a dataclass declares the options, and the verb gets its object."""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any

import click

from runner.interrupt import exit_code_of, interruptible
from runner.request_error import RequestError
from runner.world.launcher import find

GIVEN = "runner.verb.given"
"""Where a context keeps its arguments as they were given."""

PLACE = click.Path(path_type=Path)
"""The type of an option whose field is a path and names no type."""


class Seconds(click.FloatRange):
    """A finite time. RequestError for another number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            option = param.opts[0] if param else "seconds"
            raise RequestError(f"{found} is no number of seconds ({option}), give seconds, 0 or more")
        return found


def option(help: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Return a field that is an option: --its-name, and names beside it or in its place. settings are click's."""
    return field(default=default, metadata={"help": help, "names": names, **settings})


def argument(default: Any = None, **settings: Any) -> Any:
    """Return a field that is an argument. settings are click's."""
    return field(default=default, metadata=settings)


class _Command(click.Command):
    """Keeps the arguments as given, for the records."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[GIVEN] = tuple(args)
        return super().parse_args(ctx, args)


Work = Callable[[Any, tuple[str, ...], Any], int]
"""Does the work of a verb: takes its options, the arguments as given, and tools (a test's, or None for the usual).
Returns the exit code."""


def verb(
    name: str, options: type, *, epilog: str = "", alone: str = "", **settings: Any
) -> Callable[[Work], click.Command]:
    """Return what makes a click command of the function below it, whose docstring is its help.

    alone: why a launcher's ranks can't run it; "" if they can. settings are click's.
    """

    def made(work: Work) -> click.Command:
        @click.pass_context
        def callback(ctx: click.Context, /, **values: Any) -> int:
            if alone and (outer := find(os.environ)) is not None:
                raise RequestError(f"{alone} ({name}), start it without {outer.launcher}")
            return _carried_out(lambda: work(options(**values), ctx.meta[GIVEN], ctx.obj))

        kinds = typing.get_type_hints(options)
        parameters = [_parameter(one, kinds[one.name]) for one in dataclasses.fields(options)]
        return _Command(name, callback=callback, params=parameters, help=work.__doc__, epilog=epilog, **settings)

    return made


def called(place: str, *arguments: Any) -> int:
    """Call the function at "module:name", which is imported only now: its module's imports take seconds, and it imports
    the options. Returns the exit code."""
    module, _, name = place.partition(":")
    return int(getattr(importlib.import_module(module), name)(*arguments))


def _parameter(one: dataclasses.Field[Any], kind: Any) -> click.Parameter:
    """Return the parameter of a field: its type is that of the field where the field says none."""
    settings = dict(one.metadata)
    if "help" not in settings:
        settings.setdefault("required", one.default is None)
        return click.Argument([one.name], **settings)
    names = settings.pop("names")
    long = [] if any(name.startswith("--") for name in names) else [f"--{one.name.replace('_', '-')}"]
    kinds = [each for each in typing.get_args(kind) if each is not type(None)] or [kind]
    if typing.get_origin(kind) is tuple and "nargs" not in settings:
        settings.setdefault("multiple", True)
    if kind is bool:
        settings["is_flag"] = True
    elif settings.setdefault("type", PLACE if kinds[0] is Path else kinds[0]) is PLACE:
        settings.setdefault("metavar", "FILE")
    shown = one.default not in (None, "", (), False) and settings.get("nargs") is None
    default = str(one.default) if isinstance(one.default, Enum) else one.default
    return click.Option([*names, *long, one.name], default=default, show_default=shown, **settings)


@contextmanager
def _requests_only() -> Iterator[None]:
    """Within, a ValueError that is no RequestError is a defect of ours: it ends in a traceback."""
    try:
        yield
    except RequestError:
        raise
    except ValueError as error:
        raise AssertionError(f"not a wrong request: {error}") from error


def _carried_out(work: Callable[[], int]) -> int:
    """Do the work of a command that runs cases, which handles interrupts once they run. Returns the exit code. Notes of
    an interrupt say what is left of it."""
    with interruptible():
        try:
            with _requests_only():
                return work()
        except KeyboardInterrupt as interrupt:
            notes = getattr(interrupt, "__notes__", ())
            print(f"symlab: interrupted{'; ' if notes else ' before anything ran'}{'; '.join(notes)}", file=sys.stderr)
            return exit_code_of(interrupt)
