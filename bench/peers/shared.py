"""What the peers on the CPU have in common: parameters for StepNet, how results are compared, how long something takes."""
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Run = Callable[[], object]


def varint(value: int) -> bytes:
    low = value & 127
    return bytes([low | 128]) + varint(value >> 7) if value > 127 else bytes([low])


def field(number: int, content: bytes) -> bytes:
    """A field of bytes in protobuf's encoding."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor_proto(name: str, values: np.ndarray) -> bytes:
    dims = b"".join(varint(1 << 3) + varint(size) for size in values.shape)
    return dims + field(3, values.tobytes()) + field(7, name.encode())


def write_parameters(folder: Path, parameters: dict[str, np.ndarray]) -> None:
    """NAME.npy for the peers, and parameters.pb, TensorProtos, for StepNet: layer0__w is layer0/w there."""
    protos = b""
    for name, values in parameters.items():
        floats = values.astype(np.float32)
        np.save(folder / f"{name}.npy", floats)
        protos += field(1, tensor_proto(name.replace("__", "/"), floats))
    (folder / "parameters.pb").write_bytes(protos)
    (folder / "parameters.txt").write_text("".join(f"{name}\n" for name in parameters))


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The greatest difference; infinite where shapes differ or something is not a number."""
    error = np.abs(ours - theirs).max() if ours.shape == theirs.shape else np.inf
    return float(np.nan_to_num(error, nan=np.inf))


def least_ms(run: Run, runs: int) -> float:
    run()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def serve(answer: Callable[..., float]) -> None:
    """Answers each line of the input, with its words as arguments."""
    for line in sys.stdin:
        milliseconds = answer(*line.split())
        time.sleep(0.05)  # threads that still spin must not slow down whoever is next
        print(milliseconds, flush=True)
