"""Memory that cells and nets keep for later calls is there for whoever needs it."""

import threading

import numpy
from conftest import in_threads

import stepnet


def gradients(cell, params, inputs):
    outputs, pullback = cell.vjp(params, **inputs)
    return pullback(h=numpy.ones_like(outputs.h)).params


def succeeds(call):
    try:
        call()
    except stepnet.OutOfMemoryError:
        return False
    return True


def test_what_succeeded_once_succeeds_again(cells, random, set_max_memory):
    text = (cells / "lstm.cell").read_text().rstrip()
    text = text[:-1] + "option layers = 3; option direction = bidirectional; option lengths = lens\n}"
    inputs = {"x": random.normal(size=(60, 4, 8)).astype("float32"), "lens": numpy.array([60, 50, 40, 30], "int32")}
    make = lambda: stepnet.cell(text, D=8, H=8, threads=1)  # noqa: E731
    params = make().init(seed=1)
    expected = gradients(make(), params, inputs)

    def is_as_expected():  # what a call gives is not in use in the next one
        given = gradients(cell, params, inputs)
        return all(numpy.array_equal(given[name], expected[name]) for name in expected)

    before = stepnet.memory().current
    num_successful = 0
    for size in range(50_000, 1_500_000, 50_000):
        cell = make()
        set_max_memory(before + size)
        if succeeds(lambda: gradients(cell, params, inputs)):
            num_successful += 1
            assert all(is_as_expected() for _ in range(3)), size
        set_max_memory(1 << 40)
        del cell
    assert 3 < num_successful < 29


def test_a_cell_has_what_another_one_keeps(cells, set_max_memory):
    one, other = (stepnet.cell(cells / "lstm.cell", H=64, D=64, threads=1) for _ in range(2))
    params, x = one.init(seed=1), numpy.ones((200, 16, 64), "float32")
    before = stepnet.memory().current
    expected = gradients(one, params, {"x": x})
    set_max_memory(before + int(1.3 * (stepnet.memory().current - before)))
    for _ in range(2):
        for cell in (one, other):
            assert numpy.array_equal(gradients(cell, params, {"x": x})["u"], expected["u"])


def test_cells_of_threads_have_what_others_keep(cells, set_max_memory):
    """Calls may be refused while others are under way, but end, and give what they give alone."""
    num_threads, x = 4, numpy.ones((40, 8, 16), "float32")
    made = [stepnet.cell(cells / "lstm.cell", H=16, D=16, threads=1) for _ in range(num_threads)]
    params = made[0].init(seed=1)
    before = stepnet.memory().current
    expected = gradients(made[0], params, {"x": x})
    set_max_memory(before + int(2.5 * (stepnet.memory().current - before)))
    meet, num_successful = threading.Barrier(num_threads), []

    def work(i):
        meet.wait()
        for call in range(60):
            cell = made[(i + call // 20) % num_threads]
            try:
                assert numpy.array_equal(gradients(cell, params, {"x": x})["u"], expected["u"])
                num_successful.append(i)
            except stepnet.OutOfMemoryError:
                pass

    in_threads(work, num_threads)
    assert len(num_successful) > num_threads
    assert succeeds(lambda: gradients(made[0], params, {"x": x}))


def test_outputs_are_the_callers(cells, random, set_max_memory):
    """What a call has given is not freed with what the cell keeps."""
    one, other = (stepnet.cell(cells / "lstm.cell", H=32, D=32, threads=1) for _ in range(2))
    params, x = one.init(seed=1), random.normal(size=(100, 8, 32)).astype("float32")
    before = stepnet.memory().current
    outputs, pullback = one.vjp(params, x=x)
    given = pullback(h=numpy.ones_like(outputs.h)).params["u"]
    copies = outputs.h.copy(), given.copy()
    del pullback
    set_max_memory(before + int(1.5 * (stepnet.memory().current - before)))
    gradients(other, params, {"x": x})
    assert numpy.array_equal(outputs.h, copies[0]) and numpy.array_equal(given, copies[1])
