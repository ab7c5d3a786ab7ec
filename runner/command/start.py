"""What `symlab run` does: compose, check, run, store, show; or show the help, or a configuration.

Nearly everything is imported only when it is needed: --help and --cfg have to be quick.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.command.heading import headline
from runner.command.leading import led, led_tools
from runner.command.runnable_jobs import prepared, ready
from runner.request_error import RequestError
from runner.world.launcher import find

if TYPE_CHECKING:
    from runner.command.running import Tools
    from runner.request.compose import ComposedJob
    from runner.request.launching import LaunchRequest
    from runner.request.options import RunOptions
    from runner.world.launched import Leader


def start(given: Sequence[str], options: RunOptions, tools: Tools | None = None) -> int:
    """Do what a command line asks for, in each process that a launcher started. Returns the exit code.

    given is the command line as records keep it, options what it says, tools what tests work with. RequestError for a
    wrong request.
    """
    return led(lambda leader: _answer(given, options, tools, leader), options.runs)


def _answer(given: Sequence[str], options: RunOptions, tools: Tools | None, leader: Leader | None) -> int:
    if options.help:
        from runner.request.usage import usage

        print(usage(options.config_dir, options.shows_all), end="")
        return 0
    # Hydra takes a fifth of a second to import: after the options have been looked at.
    from runner.request.compose import compose_command, hydra_over

    with hydra_over(options.config_dir):
        if options.cfg:
            _show_configuration(options)
            return 0
        jobs, launch = compose_command(options.overrides, options.multirun)
    if launch is not None and leader is not None:
        raise RequestError(
            f"{leader.outer.launcher} started the ranks of one world (hydra/launcher={launch.name}), start the sweep "
            f"without {leader.outer.launcher}, or leave the launcher out"
        )
    if options.plan:
        _show_plan(given, jobs, launch)
        return 0
    from runner.command.running import Tools
    from runner.command.session import run_command

    if launch is not None:
        from runner.launch.slurm import check_here

        check_here(launch)
    command, console = ready(given, jobs, leader.outer if leader else None, options.quiet, launch=launch)
    return run_command(command, console, led_tools(tools or Tools(), leader, command.jobs))


def _show_configuration(options: RunOptions) -> None:
    """--cfg job: the composed configuration as YAML; a document for each job of a sweep."""
    from omegaconf import OmegaConf

    from runner.request.compose import plan_jobs
    from runner.request.composer import Composer

    composer = Composer()
    planned = plan_jobs(options.overrides, options.multirun, composer)
    documents = [OmegaConf.to_yaml(composer.composition(lines).config) for lines in planned]
    for number, (lines, document) in enumerate(zip(planned, documents, strict=True), start=1):
        head = f"---\n# job {number} of {len(planned)}: {' '.join(lines)}\n" if len(planned) > 1 else ""
        print(f"{head}{document}", end="")


def _show_plan(given: Sequence[str], jobs: Sequence[ComposedJob], launch: LaunchRequest | None) -> None:
    """--plan: what would run, what would be refused, the memory. RequestError if nothing can run."""
    from runner.command.forecast import plan_text
    from runner.command.refusals import refuse_if_nothing_can_run

    command = prepared(given, jobs, find(os.environ), launch)
    print(plan_text(command, headline(command)), flush=True)
    refuse_if_nothing_can_run(command)
