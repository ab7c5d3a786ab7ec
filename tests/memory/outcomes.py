"""What programs on ranks come to."""

import threading

from tests.patience import joined


def good(outcomes):
    """Return what each rank's program returned; raise the first error that one raised."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def together(programs):
    """Return what programs returned or raised, each on a thread of its own."""
    outcomes = {}

    def body(index, program):
        try:
            outcomes[index] = program()
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=body, args=one, daemon=True) for one in enumerate(programs)]
    for thread in threads:
        thread.start()
    for rank, thread in enumerate(threads):
        joined(thread, f"rank {rank}")
    return [outcomes[index] for index in range(len(threads))]
