"""Completion in bash and zsh by click, with a script and words of our own: overrides have "=", ":" and "[" in them.

`symlab completion bash` prints the script. It asks this program for words with a variable, _SYMLAB_COMPLETE, and gives
it the line up to the cursor. An answer is a line for each word: its kind (plain, file, dir), the word, and, in zsh, its
help. A word that more has to follow is of the kind open.
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, ZshComplete, split_arg_string

from symlab.command import SETTINGS

VARIABLE = "_SYMLAB_COMPLETE"


class Bash(BashComplete):
    """Words as bash wants them: without what stands before the last character that breaks words."""

    source_template = """\
# Completion of symlab in bash. In ~/.bashrc: source <(symlab completion bash)
%(complete_func)s() {
    local kind word
    COMPREPLY=()
    while IFS=' ' read -r kind word; do
        case $kind in
            file) compopt -o default ;;
            dir) compopt -o dirnames -o nospace ;;
            open) compopt -o nospace; COMPREPLY+=("$word") ;;
            plain) COMPREPLY+=("$word") ;;
        esac
    done < <(_SYMLAB_LINE="${COMP_LINE:0:COMP_POINT}" _SYMLAB_BREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "${1/#\\~/$HOME}" 2>/dev/null)
}
complete -F %(complete_func)s %(prog_name)s
"""

    @staticmethod
    def _check_version() -> None:
        """The script needs nothing newer than bash 4."""

    def get_completion_args(self) -> tuple[list[str], str]:
        return arguments_of(os.environ["_SYMLAB_LINE"])

    def format_completion(self, item: CompletionItem[Any]) -> str:
        raw = os.environ["_SYMLAB_LINE"].rpartition(" ")[2]
        cut = max((raw.rfind(one) for one in os.environ["_SYMLAB_BREAKS"] if not one.isspace()), default=-1)
        before = "" if raw[:1] in ("'", '"') else raw[: cut + 1].replace("\\", "")
        return f"{kind_of(item)} {item.value.removeprefix(before)}"


class Zsh(ZshComplete):
    """Words with their help."""

    source_template = """\
#compdef %(prog_name)s
# Completion of symlab in zsh. In ~/.zshrc, after compinit: source <(symlab completion zsh)
%(complete_func)s() {
    local answer kind program=${~words[1]}
    local -a texts shown space
    space=()
    while IFS= read -r answer; do
        kind=${answer%%%% *} answer=${answer#* }
        case $kind in
            file) compset -P '*='; _files; return ;;
            dir) compset -P '*='; _files -/; return ;;
            open) space=(-S '') ;|
            *) texts+=("${answer%%%%$'\\t'*}"); shown+=("${answer/$'\\t'/  -- }") ;;
        esac
    done < <(_SYMLAB_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" %(complete_var)s=zsh_complete "$program" 2>/dev/null)
    (( $#texts )) && compadd -l "${space[@]}" -d shown -a texts
}
compdef %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        return arguments_of(os.environ["_SYMLAB_LINE"])

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{kind_of(item)} {item.value}" + (f"\t{' '.join(item.help.split())}" if item.help else "")


SHELLS = {"bash": Bash, "zsh": Zsh}


def arguments_of(line: str) -> tuple[list[str], str]:
    """Return the arguments before the cursor, and the one that is being typed."""
    words = split_arg_string(line)
    last = words.pop() if words and not line[-1:].isspace() else ""
    return words[1:], last


def kind_of(item: CompletionItem[Any]) -> str:
    """Return how an answer's line begins."""
    return "open" if item.type == "plain" and item.is_open else item.type


def answered() -> bool:
    """Print the words that a script of ours asks for. Return whether one does."""
    shell, _, what = os.environ.get(VARIABLE, "").partition("_")
    if shell not in SHELLS or what != "complete":
        return False
    from symlab.verbs import symlab

    print(SHELLS[shell](symlab, dict(SETTINGS), "symlab", VARIABLE).complete())
    return True


@click.command("completion")
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def completion(shell: str) -> None:
    """Print a script that completes words in a shell.

    It completes commands, options, experiments, keys and their values. For bash (4 or later) put the line
    `source <(symlab completion bash)` into ~/.bashrc; for zsh, `source <(symlab completion zsh)` into ~/.zshrc, after
    compinit.
    """
    print(SHELLS[shell](click.Command("symlab"), {}, "symlab", VARIABLE).source(), end="")
