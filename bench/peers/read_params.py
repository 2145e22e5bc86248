#!/usr/bin/env python3
"""How long a file of parameters of 1 GiB takes to be read, as safetensors: read_params.py ROUNDS FOLDER

Prints rows of a table, of least times: of `cat FILE >/dev/null`, of stepnet.load_params and, where it is installed, of the
package safetensors with NumPy; in turns, with the file in the system's page cache, and after it has been dropped from there.
The file is made in FOLDER, whose disk is measured. Arrays are compared first.
"""
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import stepnet

TENSORS, ROWS, COLUMNS = 64, 2048, 2048  # float32: 16 MiB each


def make(path: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    params = {f"layer{k}.w": random.standard_normal((ROWS, COLUMNS), np.float32) for k in range(TENSORS)}
    stepnet.save_params(params, path)
    return params


def readers(path: Path) -> dict[str, Callable[[], object]]:
    made: dict[str, Callable[[], object]] = {
        "`cat FILE >/dev/null`": lambda: subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True),
        "`stepnet.load_params`": lambda: stepnet.load_params(path),
    }
    if importlib.util.find_spec("safetensors") is not None:
        from safetensors.numpy import load_file

        made["`safetensors.numpy.load_file`"] = lambda: load_file(path)
    return made


def check(expected: dict[str, np.ndarray], read: object) -> None:
    if not isinstance(read, dict):  # cat
        return
    if read.keys() != expected.keys() or not all(np.array_equal(read[name], expected[name]) for name in expected):
        sys.exit("what was read is not what was written")


def drop(path: Path) -> None:
    """Takes the file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds(read: Callable[[], object]) -> float:
    begin = time.perf_counter()
    kept = read()
    end = time.perf_counter()
    del kept  # returning memory is no part of it
    return end - begin


def main(rounds: int, folder: Path) -> None:
    path = folder / "params.safetensors"
    expected = make(path)
    runs = readers(path)
    for read in runs.values():
        check(expected, read())
    del expected
    gigabytes = path.stat().st_size / 1e9
    for cache in ("cached", "not cached"):
        least = dict.fromkeys(runs, float("inf"))
        for _ in range(rounds):
            for name, read in runs.items():
                if cache == "not cached":
                    drop(path)
                least[name] = min(least[name], seconds(read))
        for name, time_ in least.items():
            print(f"| {name} | {cache} | {time_:.3f} | {gigabytes / time_:.2f} |")
    path.unlink()


main(int(sys.argv[1]), Path(sys.argv[2]))
