"""Carry out a command line: the one place for errors, exit codes, Ctrl-C, and a stdout that is closed or full.

`symlab` and the modules that `python -m` runs (such as runner and reports) all end up here.
Everything else is imported only within carry_out(): a Ctrl-C during an import at the top would end in a traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import click

SETTINGS: Mapping[str, Any] = MappingProxyType({"help_option_names": ["-h", "--help"], "max_content_width": 100})
"""What all commands have in common; a help text is as wide as the terminal, up to that many columns."""

WRONG_REQUEST = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out `symlab ...`, sys.argv's arguments by default. Returns the exit code."""
    if "_SYMLAB_COMPLETE" in os.environ:
        answered: Callable[[], bool] = getattr(import_module("symlab.completion"), "answered")  # noqa: B009
        if answered():
            return 0
    return carry_out("symlab.verbs:symlab", "symlab", arguments)


def command() -> NoReturn:
    """Carry out `symlab ...` and end this process: the console script."""
    leave(main)


def carry_out(place: str, program: str, arguments: Sequence[str] | None = None, tools: Any = None) -> int:
    """Carry out a command line. Returns the exit code.

    place is "module:name" of the click command, program what the user typed before the arguments ("python -m kernels"),
    tools what the command works with in place of its usual means (its context's obj). A wrong request is one line on
    stderr and exit code 2; Ctrl-C is one line and 130.
    """
    try:
        return _invoked(place, program, list(sys.argv[1:] if arguments is None else arguments), tools)
    except (KeyboardInterrupt, Exception) as error:
        if interrupt := _interrupt_behind(error):
            from runner.interrupt import exit_code_of

            say("symlab: interrupted")
            return exit_code_of(interrupt)
        if isinstance(error, ValueError):
            complain(str(error))
            return WRONG_REQUEST
        raise


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt in whose wake an error came: libraries that are cut off while they are imported raise errors
    of their own on the way out."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if isinstance(one, KeyboardInterrupt):
            return one
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            left += [one.__cause__, one.__context__]
    return None


def _invoked(place: str, program: str, arguments: list[str], tools: Any) -> int:
    """Parse the arguments and call the command's function. ValueError for a wrong request."""
    import click

    path = program
    try:
        with loaded(place).make_context(program, arguments, obj=tools, **SETTINGS) as context:
            try:
                return context.command.invoke(context) or 0
            finally:
                path = " ".join([program, *([context.invoked_subcommand] if context.invoked_subcommand else [])])
    except click.exceptions.Exit as error:  # --help was printed
        return error.exit_code
    except click.UsageError as error:
        raise ValueError(_usage_problem(error, path)) from None


def loaded(place: str) -> click.Command:
    """Import a click command by "module:name"."""
    module, _, name = place.partition(":")
    found: click.Command = getattr(import_module(module), name)
    return found


def _usage_problem(error: click.UsageError, path: str) -> str:
    """Click's message in one line, with the command whose --help says what would be right: path, unless click knows."""
    near: Sequence[str] = getattr(error, "possibilities", None) or ()
    # Click's own sentence for near names has other punctuation for one than for several.
    message = (error.message if near else error.format_message()).removesuffix(".").removeprefix("Got ")
    message += f", did you mean {' or '.join(map(repr, near))}?" if near else ""
    path = error.ctx.command_path if error.ctx is not None else path
    return f"{message[:1].lower()}{message[1:]} (see {path} --help)"


def leave(run: Callable[[], int]) -> NoReturn:
    """End this process with the exit code that run() returns, and at once: taking down torch takes half a second.

    A closed or full stdout is one line on stderr and exit code 1. A reader that left (`| head`) is no error.
    """
    code = 1
    try:
        if sys.stdout is None:
            complain("standard output is closed")
        else:
            code = 0  # for a reader that leaves before run() returns
            code = run()
            sys.stdout.flush()
    except BrokenPipeError:
        pass
    except KeyboardInterrupt as interrupt:
        from runner.interrupt import exit_code_of

        code = exit_code_of(interrupt)
    except OSError as error:
        # An operation on a file has its name; standard output has none.
        code = 1
        if error.filename is not None:
            complain(f"{error.filename}: {error.strerror}")
        else:
            complain(f"can't write to standard output: {error.strerror}")
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
    os._exit(code)


def complain(problem: str) -> None:
    """Say on stderr what is wrong, in one line."""
    say(f"symlab: error: {' '.join(problem.split())}")


def say(line: str) -> None:
    """Write a line to stderr, where that takes one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)
