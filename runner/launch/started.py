"""Starts workers: those of joblib in threads of this process, each of which watches a process, Slurm's by Hydra's
plugin, with its own options.

A worker is one job to Hydra, whose number tells it which worker it is. It gets no overrides: the jobs of the command
are composed and checked before, here. The launcher's launch() returns when all its jobs have, so it has a thread of its
own, and the caller watches the workers meanwhile.
"""

from __future__ import annotations

import logging
import pickle
import re
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from memory.pickling import dumps
from runner.launch.workers import SLURM
from runner.request.launching import LaunchRequest
from runner.request_error import RequestError

_QUIET = ("hydra/hydra_logging=none", "hydra/job_logging=none", "hydra.output_subdir=null", "hydra.run.dir=.")

CONFIGURATION = "workers"
"""The name of the configuration that workers are composed from: nothing but Hydra's own section."""


class Work(Protocol):
    """What a worker does. It is pickled, its classes by name."""

    def __call__(self, worker: int) -> Any: ...


class _Task:
    """The function that Hydra's launcher runs for each of its jobs.

    It holds the work pickled. Launchers pickle what they are given with cloudpickle, which copies a class that it does
    not find by its name, with all that the class's module holds.
    """

    def __init__(self, work: Work) -> None:
        self._work = dumps(work)

    def __call__(self, config: DictConfig) -> Any:
        work: Work = pickle.loads(self._work)
        return work(int(HydraConfig.get().job.num))


class Started:
    """Workers that a launcher has been given, while it starts and runs them."""

    def __init__(
        self,
        request: LaunchRequest,
        work: Work,
        workers: Sequence[int],
        options: dict[str, Any],
        folder: Path,
    ) -> None:
        """Start workers, whose numbers follow each other. options replace the launcher's own; folder takes files."""
        self.workers = tuple(workers)
        self.error: BaseException | None = None
        self._is_slurms = request.name == SLURM
        if self._is_slurms:
            made = _made_launcher(request, work, options, folder)
            runs = [partial(made.launch, [[] for _ in self.workers], self.workers[0])]
        else:
            runs = [partial(work, number) for number in self.workers]
        self._threads = [threading.Thread(target=self._run, args=(run,), name="launcher", daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the launcher has returned or raised."""
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, run: Callable[[], object]) -> None:
        """sbatch gets a terminal's Ctrl-C, too, and does not take it: it is to finish what it submits, which is
        cancelled then. Joblib's workers have sessions of their own."""
        if self._is_slurms:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            run()
        except BaseException as error:
            self.error = error


def check_folder(request: LaunchRequest | None, folder: Path) -> None:
    """RequestError for a folder of workers' files whose path submitit, Slurm or Hydra would take for a pattern."""
    if request is None or request.name != SLURM:
        return
    if found := re.search(r"%|\$\{", str(folder.absolute())):
        raise RequestError(
            f"{folder.absolute()}: {request.name} fills in what follows a {found[0]} in a path (hydra/launcher), "
            "work in a folder without one, or use joblib"
        )


def _literal(text: str) -> str:
    """A text that OmegaConf takes as it is: "${" begins no interpolation."""
    return re.sub(r"(\\*)\$\{", lambda found: f"{found[1] * 2}\\${{", text)


def _quoted(text: str) -> str:
    """A text as a value on Hydra's command line: backslashes count only before a quote."""
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + found[2].replace("'", "\\'"), text)
    return f"'{escaped}'"


def _made_launcher(request: LaunchRequest, work: Work, options: dict[str, Any], folder: Path) -> Launcher:
    """Return Hydra's plugin, set up to run work. The other arguments are those of Started."""
    ConfigStore.instance().store(name=CONFIGURATION, node={"symlab": "workers"})
    empty = folder / "conf"
    empty.mkdir(parents=True, exist_ok=True)
    with initialize_config_dir(config_dir=str(empty.resolve()), version_base="1.3", job_name="symlab"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        # As a line, because workers compose again: without it they would make a folder of Hydra's, multirun/.
        place = _quoted(_literal(str(folder.resolve())))
        lines = [*request.lines, *_QUIET, f"hydra.sweep.dir={place}", "hydra.mode=MULTIRUN"]
        config = hydra.compose_config(CONFIGURATION, lines, run_mode=RunMode.MULTIRUN, with_log_configuration=False)
        with open_dict(config):
            for key, value in options.items():
                taken = _literal(value) if isinstance(value, str) else value
                OmegaConf.update(config, f"hydra.launcher.{key}", taken)
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks())
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=_Task(work), config=config
        )
    _adapt_submitit()
    return launcher


def _adapt_submitit() -> None:
    """Keep submitit from asking sacct for workers, whose states come from squeue here, and from saying so."""
    logging.getLogger("submitit").setLevel(logging.ERROR)
    from submitit.slurm.slurm import SlurmJob

    setattr(SlurmJob.watcher, "_make_command", lambda: None)  # noqa: B010
