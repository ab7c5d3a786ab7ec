"""The options of the command line, beside its overrides."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from runner.request_error import RequestError

INFO_TOPICS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


class Parser(argparse.ArgumentParser):
    """Raises RequestError, which is one line, for a wrong command line. For all commands of the runner."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message} (command line), see {self.prog} --help")


def parse_options(given: list[str]) -> argparse.Namespace:
    """Options by name, and the overrides. RequestError for an option that does not exist."""
    parser = Parser(prog="symlab", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=INFO_TOPICS)
    return parser.parse_intermixed_args(given)


def program(first_argument: str) -> list[str]:
    """How this process was started, from sys.argv[0]: by the console script, or as a module."""
    return ["python", "-m", "runner"] if Path(first_argument).parts[-2:] == ("runner", "__main__.py") else ["symlab"]
