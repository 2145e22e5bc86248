# Cells of examples/cells in JAX: one step under lax.scan, the product with the input outside of it, compiled by XLA, in
# float32, or with TF32 products where "tf32" is the last argument: median milliseconds of a forward run, and of one
# forward and backward, on a GPU. lstm_both has two directions, lstm_unit_4 four layers, each a scan of its own.
#
#   python3 bench/peers/cells_jax.py lstm|peephole_lstm|layer_norm_lstm|lstm_both|lstm_unit_4 BATCH HIDDEN STEPS
#       [REPETITIONS [tf32]]
import sys
import time

import jax
import jax.numpy as jnp

cell = sys.argv[1]
batch, hidden, steps = map(int, sys.argv[2:5])
repetitions = int(sys.argv[5]) if len(sys.argv) > 5 else 50
jax.config.update("jax_default_matmul_precision", "tensorfloat32" if "tf32" in sys.argv else "highest")


def numbers(key, *shape):
    return jax.random.normal(jax.random.key(key), shape) / hidden**0.5


def layer_norm(x, gain, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * gain + shift


def parameters_of(layer):
    made = {"w": numbers(1 + layer, hidden, 4 * hidden), "u": numbers(2 + layer, hidden, 4 * hidden)}
    made["b"] = numbers(3 + layer, 4 * hidden)
    if cell == "peephole_lstm":
        made["p"] = numbers(4, 3, hidden)
    if cell == "layer_norm_lstm":
        made |= {"gains": numbers(4, 2, 4 * hidden), "shifts": numbers(5, 2, 4 * hidden)}
        made |= {"gain_c": numbers(6, hidden), "shift_c": numbers(7, hidden)}
    return made


num_layers = {"lstm_both": 2, "lstm_unit_4": 4}.get(cell, 1)
parameters = [parameters_of(10 * layer) for layer in range(num_layers)]


def layer(p, x, reverse=False):
    of_input = x @ p["w"]
    if cell == "layer_norm_lstm":
        of_input = layer_norm(of_input, p["gains"][0], p["shifts"][0])
    of_input = of_input + p["b"]

    def step(state, gates):
        h, c = state
        of_state = h @ p["u"]
        if cell == "layer_norm_lstm":
            of_state = layer_norm(of_state, p["gains"][1], p["shifts"][1])
        i, f, o, g = jnp.split(gates + of_state, 4, axis=-1)
        if cell == "peephole_lstm":
            i, f = i + p["p"][0] * c, f + p["p"][1] * c
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        if cell == "peephole_lstm":
            o = o + p["p"][2] * c
        shown = layer_norm(c, p["gain_c"], p["shift_c"]) if cell == "layer_norm_lstm" else c
        h = jax.nn.sigmoid(o) * jnp.tanh(shown)
        return (h, c), h

    zeros = jnp.zeros((batch, hidden))
    return jax.lax.scan(step, (zeros, zeros), of_input, reverse=reverse)[1]


def network(parameters, x):
    if cell == "lstm_both":
        there, back = parameters
        return jnp.concatenate([layer(there, x), layer(back, x, reverse=True)], axis=-1)
    for p in parameters:
        x = layer(p, x)
    return x


def median(run, x):
    times = []
    for _ in range(repetitions + 5):
        begin = time.perf_counter()
        jax.block_until_ready(run(parameters, x))
        times.append(1e3 * (time.perf_counter() - begin))
    return sorted(times[5:])[repetitions // 2]


inputs = numbers(8, steps, batch, hidden)
forward = jax.jit(network)
both = jax.jit(jax.value_and_grad(lambda p, x: network(p, x).sum(), argnums=(0, 1)))
print("%.3f %.3f" % (median(forward, inputs), median(both, inputs)))
