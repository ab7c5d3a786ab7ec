"""Completion in bash and zsh: `symlab completion bash` prints a script that asks `symlab completion answer` for words.

An answer has a line for each word: "word TEXT" or, tab-separated, "word TEXT HELP". Before them, "nospace" says that
more has to follow the word; "files" and "folders" say that the shell completes names of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete

from symlab.command import SETTINGS

BASH = """\
# Completion of symlab in bash. In ~/.bashrc: source <(symlab completion bash)
_symlab_complete() {
    local answer program=${1/#\\~/$HOME}
    COMPREPLY=()
    while IFS= read -r answer; do
        case $answer in
            nospace) compopt -o nospace ;;
            files) compopt -o default ;;
            folders) compopt -o dirnames -o nospace ;;
            "word "*) COMPREPLY+=("${answer#word }") ;;
        esac
    done < <("$program" completion answer bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
}
complete -F _symlab_complete symlab
"""

ZSH = """\
#compdef symlab
# Completion of symlab in zsh. In ~/.zshrc, after compinit: source <(symlab completion zsh)
_symlab_complete() {
    local answer program=${~words[1]}
    local -a texts shown space
    space=()
    while IFS= read -r answer; do
        case $answer in
            nospace) space=(-S '') ;;
            files) compset -P '*='; _files; return ;;
            folders) compset -P '*='; _files -/; return ;;
            word\\ *)
                answer=${answer#word }
                texts+=("${answer%%$'\\t'*}")
                shown+=("${answer/$'\\t'/  -- }") ;;
        esac
    done < <("$program" completion answer zsh "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)
    (( $#texts )) && compadd -l "${space[@]}" -d shown -a texts
}
compdef _symlab_complete symlab
"""

_SPACES = " \t\n"


@dataclass(frozen=True, slots=True)
class Typed:
    """A command line up to the cursor: its words, and the last one as it was typed, with its quotes."""

    words: tuple[str, ...]
    last: str
    raw_last: str


def typed(line: str) -> Typed:
    """Take a command line apart as a shell does; a quote may still be open."""
    words: list[str] = []
    word, start, quote, is_word = "", 0, "", False
    characters = iter(enumerate(line))
    for at, character in characters:
        if not is_word and character not in _SPACES:
            start, is_word = at, True
        if quote:
            if character == quote:
                quote = ""
            else:
                word += character
        elif character in "'\"":
            quote = character
        elif character == "\\":
            word += next(characters, (0, ""))[1]
        elif character in _SPACES:
            if is_word:
                words.append(word)
            word, is_word = "", False
        else:
            word += character
    return Typed(tuple(words), word, line[start:] if is_word else "")


def stripped(text: str, raw_last: str, breaks: str) -> str:
    """What bash expects for a word: without the part before the last character that breaks words, such as "key="."""
    if raw_last[:1] in ("'", '"'):
        return text
    cut = max((raw_last.rfind(one) for one in breaks if one not in _SPACES), default=-1)
    prefix = typed(raw_last[: cut + 1]).last
    return text.removeprefix(prefix)


def answer_lines(line: str, breaks: str | None = None) -> list[str]:
    """The answer to a command line up to the cursor; breaks are bash's COMP_WORDBREAKS, None for zsh."""
    from symlab.verbs import VERBS, symlab

    now = typed(line)
    arguments = list(now.words[1:])
    if arguments and arguments[0] not in VERBS:
        return []
    items = ShellComplete(symlab, dict(SETTINGS), "symlab", "").get_completions(arguments, now.last)
    return _lines(items, now, breaks)


def _lines(items: Sequence[CompletionItem[Any]], now: Typed, breaks: str | None) -> list[str]:
    kinds = {item.type for item in items}
    for kind, line in (("file", "files"), ("dir", "folders")):
        if kind in kinds:
            return [line]
    lines = ["nospace"] if items and all(item.is_open for item in items) else []
    for item in items:
        if breaks is not None:
            lines.append(f"word {stripped(item.value, now.raw_last, breaks)}")
        else:
            lines.append(f"word {item.value}" + (f"\t{' '.join(item.help.split())}" if item.help else ""))
    return lines


class Shells(click.Group):
    """A group whose commands are names of shells."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in self.commands:
            known = ", ".join(name for name, one in self.commands.items() if not one.hidden)
            raise click.UsageError(f"unknown shell '{args[0]}', known: {known}", ctx)
        return super().resolve_command(ctx, args)


@click.group("completion", cls=Shells, no_args_is_help=False)
def completion() -> None:
    """Print a script that completes words in a shell.

    It completes commands, options, experiments, keys and their values. For bash put the line
    `source <(symlab completion bash)` into ~/.bashrc; for zsh, `source <(symlab completion zsh)` into ~/.zshrc, after
    compinit.
    """


@completion.command("bash")
def bash() -> None:
    """Print the script for bash (4 or later)."""
    print(BASH, end="")


@completion.command("zsh")
def zsh() -> None:
    """Print the script for zsh."""
    print(ZSH, end="")


@completion.command("answer", hidden=True)
@click.argument("shell", type=click.Choice(("bash", "zsh")))
@click.argument("line")
@click.argument("breaks", default="")
def answer(shell: str, line: str, breaks: str) -> None:
    """Print the words that can follow a command line."""
    _print_all(answer_lines(line, breaks if shell == "bash" else None))


def _print_all(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
