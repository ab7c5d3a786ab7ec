"""The fixtures of runner's tests that tests of the command use, too."""

from tests.runner.conftest import _no_hydra_left as _no_hydra_left
from tests.runner.conftest import ctrl_c_raises as ctrl_c_raises
from tests.runner.conftest import database as database
from tests.runner.conftest import mlflow_runs as mlflow_runs
from tests.runner.conftest import script as script
from tests.runner.conftest import symlab as symlab
