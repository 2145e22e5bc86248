#!/usr/bin/env python3
"""Calls the package with what nobody should give it: fuzz.py KIND FIRST COUNT [--show]

Runs trials of a kind, or of all (`all`), with the seeds FIRST, FIRST + 1, …; --show prints each call before it is made,
so that the last line of a run that ends in a crash is the call. A trial makes some calls of the package: each must give
a result, or raise an exception of docs/errors.md that says what is wrong. Anything else is a fault, and the exit status
is 1.

Memory is limited to 4 GiB of addresses beyond what the process has at the start, a trial to a few seconds, then it is
interrupted, as Ctrl-C does; one that does not end then ends the process.
"""

import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path

MOST_MEMORY = 4 << 30
SECONDS = 3  # of a trial, behind which it is interrupted
HANG = 60  # behind which it hangs


class TimeUp(BaseException):
    """A trial that takes too long, which is no fault as long as it can be interrupted."""


def limit_memory():
    """Before StepNet is imported, which reads the limit."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def interrupt(*_):
    raise TimeUp


def run(kind, trial_of, seed, shows):
    """Runs one trial. Returns its fault as text, or None."""
    from fuzz_trials import Fault, Trial

    folder = Path(tempfile.mkdtemp(prefix="stepnet_fuzz"))
    trial = Trial(seed, folder, shows)
    signal.signal(signal.SIGALRM, interrupt)
    faulthandler.dump_traceback_later(HANG, exit=True)
    try:
        os.chdir(folder)  # what is written under a strange name lies there
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        trial_of(trial)
    except TimeUp:
        if shows:
            print(f"{kind} {seed}: interrupted", flush=True)
    except Fault as fault:
        return str(fault)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        os.chdir(Path(__file__).parent)
        shutil.rmtree(folder, ignore_errors=True)
    return None


def main(kind, first, count, shows):
    faulthandler.enable()
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        import torch  # noqa: F401 - takes addresses for itself
    except ModuleNotFoundError:
        pass
    limit_memory()
    from fuzz_trials import FAULTY, KINDS, counts

    warnings.simplefilter("ignore")
    kinds = KINDS if kind == "all" else {kind: {**KINDS, **FAULTY}[kind]}
    faults = 0
    for seed in range(first, first + count):
        for name, trial_of in kinds.items():
            print(f"trial {name} {seed}", flush=True)  # the last one of a process that crashes is the one that did it
            fault = run(name, trial_of, seed, shows)
            if fault is not None:
                faults += 1
                print(f"FAULT {name} {seed}: {fault}", flush=True)
    calls = f"{counts['given']} calls gave a result, {counts['refused']} were refused"
    print(f"{count} seeds of {', '.join(kinds)}: {calls}, {faults} faults")
    return faults > 0


if __name__ == "__main__":
    arguments = [each for each in sys.argv[1:] if each != "--show"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    sys.exit(main(arguments[0], int(arguments[1]), int(arguments[2]), "--show" in sys.argv))
