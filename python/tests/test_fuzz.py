"""The package, called with what nobody should give it: trials of fuzz.py, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEEDS = int(os.environ.get("STEPNET_SEEDS", 30))
"""Trials of each kind."""
LONGEST = 60 + 10 * SEEDS
"""Seconds that they may take, by far more than they do."""


def fuzz(*arguments):
    """What fuzz.py prints. A fault, a crash or a trial that does not end is a failure that says how to see it again."""
    command = [sys.executable, str(HERE / "fuzz.py"), *map(str, arguments)]
    as_text = {"text": True, "errors": "backslashreplace"}
    run = subprocess.run(command, capture_output=True, cwd=HERE, timeout=LONGEST, **as_text)
    if run.returncode != 0:
        trial = (re.findall(r"^(?:FAULT|trial) (\w+ \d+)", run.stdout, re.MULTILINE) or ["none"])[-1]
        faults = run.stdout[run.stdout.find("FAULT") :] if "FAULT" in run.stdout else ""
        again = f"python python/tests/fuzz.py {trial} 1 --show"
        pytest.fail(f"exit status {run.returncode}: {again}\n{faults}\n{run.stderr[-4000:]}")
    return run.stdout


def test_whatever_is_given_is_taken_or_refused():
    given, refused = map(
        int, re.search(r": (\d+) calls gave a result, (\d+) were refused, 0 faults$", fuzz("all", 1, SEEDS)).groups()
    )
    assert given > 3 * SEEDS and refused > 3 * SEEDS  # both are tried


def test_a_crash_is_found_with_its_seed():
    with pytest.raises(pytest.fail.Exception, match=r"exit status -?\d+: python python/tests/fuzz.py crash 7 1 --show"):
        fuzz("crash", 7, 1)


def test_a_fault_is_found_with_its_call():
    with pytest.raises(
        pytest.fail.Exception,
        match=r"fuzz.py fault 7 1 --show\nFAULT fault 7: divmod\(1, 0\)\n  raised ZeroDivisionError",
    ):
        fuzz("fault", 7, 1)
