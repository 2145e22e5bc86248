"""Arrays of JAX. Skipped where JAX is not installed."""

import numpy
import pytest
from conftest import refuses

import stepnet
from stepnet._stepnet import address_of

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy


def test_arrays_are_read_where_they_are(lstm, random):
    params, x = lstm.init(), random.normal(size=(7, 2, 5)).astype("float32")
    expected, pullback = lstm.vjp(params, x=x)
    gradients = pullback(h=expected.h)
    arrays, given = {name: jnp.asarray(each) for name, each in params.items()}, jnp.asarray(x)
    assert address_of(given) == given.unsafe_buffer_pointer()
    outputs, pullback = lstm.vjp(arrays, x=given)
    assert numpy.array_equal(outputs.h, expected.h)
    found = pullback(h=jnp.asarray(expected.h))
    assert all(numpy.array_equal(found.params[name], gradients.params[name]) for name in params)


def test_outputs_are_given_where_they_are(lstm):
    out = lstm(lstm.init(), x=numpy.ones((3, 4, 5), "float32"))  # rows of 64 bytes: JAX copies what begins elsewhere
    h = jax.dlpack.from_dlpack(out.h)
    assert h.unsafe_buffer_pointer() == out.h.ctypes.data
    assert numpy.array_equal(jnp.asarray(out.h_last), h[-1:])


def test_arrays_of_bfloat16_go_in_and_come_out():
    net = stepnet.load('op { type: "Copy" input: "x" output: "y" } external_output: "y"')
    x = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    assert address_of(x) == x.unsafe_buffer_pointer()
    y = jax.dlpack.from_dlpack(net(x=x).y)
    assert y.dtype == jnp.bfloat16 and numpy.array_equal(y, x)


@pytest.mark.parametrize(
    "transform",
    [
        jax.jit,
        jax.grad,
        lambda f: jax.vmap(f, in_axes=2),
        lambda f: lambda x: jax.eval_shape(f, x),
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: lambda x: jax.lax.map(f, x[None]),
    ],
    ids=["jit", "grad", "vmap", "eval_shape", "jvp", "map"],
)
def test_a_tracer_is_refused_with_what_to_do(lstm, transform):
    params, x = lstm.init(), jnp.ones((3, 2, 5))
    message = "is traced by JAX, as within jax.jit, grad and vmap, and has no elements; call it outside, or by jax.pure_callback"
    refuses(lambda: transform(lambda x: lstm(params, x=x).h.sum())(x), stepnet.TypeMismatchError, message)


def test_an_array_that_was_donated_is_told(lstm):
    x = jnp.ones((3, 2, 5))
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    message = 'the input "x" has been deleted, as JAX does with an array that is donated to a function'
    refuses(lambda: lstm(lstm.init(), x=x), stepnet.TypeMismatchError, message)


def test_a_cell_runs_within_jit_by_a_callback(lstm):
    params, x = lstm.init(), jnp.ones((3, 2, 5))
    like = jax.ShapeDtypeStruct((3, 2, 4), jnp.float32)
    run = jax.jit(lambda x: 2 * jax.pure_callback(lambda x: lstm(params, x=x).h, like, x))
    assert numpy.array_equal(run(x), 2 * lstm(params, x=x).h)


def test_a_callback_has_the_cells_gradient_by_custom_vjp(lstm, random):
    """As docs/python.md has it."""
    cell = lstm

    @jax.custom_vjp
    def run(params, x):
        like = jax.ShapeDtypeStruct((*x.shape[:2], 4), x.dtype)
        return jax.pure_callback(lambda params, x: cell(params, x=x).h, like, params, x)

    def backward(given, gradient):
        def gradients(params, x, gradient):
            found = cell.vjp(params, x=x, wrt=["x", *params])[1](h=gradient)
            return found.params, found.inputs["x"]

        return jax.pure_callback(gradients, given, *given, gradient)

    run.defvjp(lambda params, x: (run(params, x), (params, x)), backward)
    params, x = lstm.init(), random.normal(size=(3, 2, 5)).astype("float32")
    by_params, by_x = jax.jit(jax.grad(lambda params, x: run(params, x).sum(), argnums=(0, 1)))(params, x)
    expected = lstm.value_and_grad(params, "h", wrt=["x", *params], x=x)[1]
    assert numpy.array_equal(by_x, expected.inputs["x"])
    assert all(numpy.array_equal(by_params[name], expected.params[name]) for name in params)


def test_arrays_that_cannot_be_written_take_no_sums(lstm):
    params = lstm.init()
    outputs, pullback = lstm.vjp(params, x=jnp.ones((3, 2, 5)), gradient_requests={"u": "add"})
    message = "into has for 'u' an ArrayImpl; it must be an array of NumPy or a tensor of PyTorch"
    refuses(lambda: pullback({"u": jnp.zeros_like(params["u"])}, h=outputs.h), stepnet.TypeMismatchError, message)
