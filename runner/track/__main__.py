"""python -m runner.track: send records to MLflow after the fact."""

import sys

from runner.track.send import main

if __name__ == "__main__":
    sys.exit(main())
