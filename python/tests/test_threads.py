import _thread
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest
from conftest import in_threads

import stepnet


@pytest.fixture
def long_run(cells):
    """A call that takes seconds."""
    cell = stepnet.cell(cells / "lstm.cell", D=64, H=256, threads=1)
    params = cell.init()
    x = numpy.zeros((60000, 4, 64), "float32")
    return lambda: cell(params, x=x)


def wait_for_interrupt():
    """What comes from another thread of the program ends no sleep. Nor may it end the join of a thread: before Python 3.9.8
    another one may wait for ever then (bpo-45274)."""
    for _ in range(6000):
        time.sleep(0.01)


def test_threads_may_call_one_cell(lstm, random):
    params = lstm.init()
    xs = [random.normal(size=(1 + i % 5, 3, 5)).astype("float32") for i in range(8)]
    expected = [lstm.value_and_grad(params, "h", x=x)[1].params["u"] for x in xs]
    outputs = [lstm(params, x=x).h for x in xs]

    def work(i):
        for _ in range(100):
            assert numpy.array_equal(lstm(params, x=xs[i]).h, outputs[i])
            assert numpy.array_equal(lstm.value_and_grad(params, "h", x=xs[i])[1].params["u"], expected[i])

    in_threads(work, len(xs))


A_MINUS_B = """
op { type: "Exp" input: "a" output: "p" } op { type: "Tanh" input: "x" output: "between" }
op { type: "Exp" input: "b" output: "q" } op { type: "Sub" input: "p" input: "q" output: "y" }
external_output: "y" external_output: "between"
"""
FILLED = " ".join(f'op {{ type: "ConstantFill" output: "{name}" arg {{ name: "shape" ints: 1 }} }}' for name in "ab")


def test_a_call_sees_all_of_what_restore_sets_or_nothing(tmp_path):
    (tmp_path / "net.pbtxt").write_text(A_MINUS_B)
    (tmp_path / "init.pbtxt").write_text(FILLED)
    net = stepnet.load(tmp_path / "net.pbtxt", tmp_path / "init.pbtxt")
    x = numpy.zeros(100_000, "float32")  # what takes a while between the parameters
    is_over = threading.Event()

    def work(i):
        if i > 0:
            while not is_over.is_set():
                assert net(x=x).y[0] == 0 and net.vjp(x=x)[0].y[0] == 0
                params = net.params
                assert params["a"][0] == params["b"][0]
            return
        try:
            for k in range(300):
                value = numpy.full(1, k % 7, "float32")
                net.restore({"a": value, "b": value})
                assert net(x=x).y[0] == 0
        finally:
            is_over.set()

    in_threads(work, 4)


def test_other_threads_run_while_a_cell_does(long_run):
    counted = 0
    thread = threading.Thread(target=long_run)
    thread.start()
    while thread.is_alive():
        counted += 1
        time.sleep(0.001)
    assert counted > 20


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_ends_a_run(long_run):
    threading.Timer(0.2, _thread.interrupt_main).start()
    begun = ended = 0
    with pytest.raises(KeyboardInterrupt):
        while True:
            begun += 1
            long_run()
            ended += 1
    assert begun == ended + 1


def test_a_signal_whose_handler_raises_nothing_ends_no_run(lstm, cells):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        cell = stepnet.cell(cells / "lstm.cell", D=64, H=128, threads=1)
        params = cell.init()
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        x = numpy.zeros((20000, 4, 64), "float32")
        out = cell(params, x=x)
        timer.join()
        assert out.h.shape == (20000, 4, 128)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


def test_a_signal_handler_runs_no_cell(long_run, lstm):
    def handler(*_):
        lstm(lstm.init(), x=numpy.zeros((1, 1, 5), "float32"))

    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(stepnet.InvalidArgumentError, match="a signal handler cannot run a cell or a net"):
            long_run()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interrupts")
def test_a_cell_runs_after_an_interrupt(lstm):
    params = lstm.init()
    x = numpy.ones((2000, 64, 5), "float32")
    expected = lstm(params, x=x).h
    for delay in numpy.linspace(0, 0.02, 20):
        timer = threading.Timer(delay, _thread.interrupt_main)
        try:
            timer.start()
            for _ in range(20):
                lstm(params, x=x)
            wait_for_interrupt()
        except KeyboardInterrupt:
            pass
        timer.join()
        assert numpy.array_equal(lstm(params, x=x).h, expected)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_leaves_iterations_whole():
    """Gradients are ones, so that each parameter says how often it was updated."""
    count, size = 30, 500_000
    names = [f"w{k}" for k in range(count)]
    net = "".join(f'op {{ type: "SumElements" input: "{name}" output: "s{name}" }}' for name in names)
    net += f'op {{ type: "Sum" {" ".join(f"""input: "s{name}" """ for name in names)} output: "loss" }}'
    init = {name: numpy.zeros(size, "float32") for name in names}
    training = stepnet.train_net(net, init, loss="loss", learning_rate=1, method="sgd", threads=1)
    training()
    for delay in numpy.linspace(0.05, 0.4, 12):
        timer = threading.Timer(delay, _thread.interrupt_main)
        try:
            timer.start()
            for _ in range(10):
                training()
            wait_for_interrupt()
        except KeyboardInterrupt:
            pass
        timer.join()
        state = training.state
        done = int(state["optimizer/iteration"][0])
        assert {float(state[name][at]) for name in names for at in (0, -1)} == {-float(done)}
        assert {float(state[f"optimizer/{name}/momentum"][0]) for name in names} == {1.0}
    assert done > 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("forks", ["fork(sys.exit)", "in_thread(lambda: fork(os._exit))"])
def test_a_process_that_was_forked_goes_on_with_what_there_was(threads, forks):
    """As workers of multiprocessing and of PyTorch's DataLoader do, with cells, nets and pullbacks made before."""
    program = f"""
        import os, sys, threading, numpy, stepnet
        text = "cell a(x[D]; h[D]) {{ size D = 64\\n param w[D, D]\\n h = Tanh(x + h @ w)\\n output h }}"
        net = stepnet.load('op {{ type: "Tanh" input: "x" output: "y" }} external_output: "y"', threads={threads})
        cell = stepnet.cell(text, threads={threads})
        params, x = cell.init(), numpy.ones((2000, 8, 64), "float32")
        outputs, pullback = cell.vjp(params, x=x)
        gradient = numpy.ones_like(outputs.h)
        expected = pullback(h=gradient).inputs["x"]
        y = net(x=x).y

        def child(leave):
            assert numpy.array_equal(net(x=x).y, y)
            assert numpy.array_equal(cell(params, x=x).h, outputs.h)
            assert numpy.array_equal(pullback(h=gradient).inputs["x"], expected)
            another = stepnet.cell(text, threads={threads} + 1)  # wants a thread more than there were
            assert numpy.array_equal(another(params, x=x).h, outputs.h)
            leave(7)

        def fork(leave):
            number = os.fork()
            return child(leave) if number == 0 else os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])

        def in_thread(work):
            given = []
            thread = threading.Thread(target=lambda: given.append(work()))
            thread.start()
            thread.join()
            return given[0]

        sys.exit({forks})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60)
    assert done.returncode == 7, done.stderr


def test_ctrl_c_ends_calls_of_a_process_that_was_forked_in_a_thread(cells):
    program = f"""
        import os, signal, threading, numpy, stepnet
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cell = stepnet.cell({str(cells / "lstm.cell")!r}, D=64, H=256, threads=1)
        params, x = cell.init(), numpy.zeros((60000, 8, 64), "float32")  # takes longer than three seconds

        def child():
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            threading.Timer(3, lambda: os._exit(3)).start()
            try:
                cell(params, x=x)
            except KeyboardInterrupt:
                os._exit(7)

        def fork():
            number = os.fork()
            if number == 0:
                child()
            os._exit(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()  # a program that has come to its end starts no threads from Python 3.12 on
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60)
    assert done.returncode == 7, done.stderr


def test_a_process_that_was_forked_runs_cells_and_ends():
    program = """
        import os, sys, threading, time, numpy, stepnet
        cell = stepnet.cell("cell a(x[D]; h[D]) { size D = 64\\n h = Tanh(x + h)\\n output h }", threads=2)
        x = numpy.zeros((20000, 8, 64), "float32")
        threading.Thread(target=lambda: [cell({}, x=x) for _ in range(5)]).start()
        time.sleep(0.01)
        child = os.fork()
        if child == 0:
            cell({}, x=x[:10])
            sys.exit(7)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60)
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize("runs", ["before and after it", "after it"])
@pytest.mark.parametrize("ends", ["returns", "leaves_a_thread_that_goes_on"])
def test_a_thread_that_forked_may_end_in_the_child(ends, runs):
    """Then the process ends with its last thread, and those that help with runs do not keep it."""
    program = f"""
        import os, signal, threading, time, numpy, stepnet
        cell = stepnet.cell("cell a(x[D]; h[D]) {{ size D = 64\\n h = Tanh(x + h)\\n output h }}", threads=2)
        x = numpy.ones((2000, 8, 64), "float32")
        expected = cell({{}}, x=x).h if {"before" in runs} else None
        has_left = threading.Event()

        def goes_on():
            has_left.wait()
            time.sleep(0.05)
            for _ in range(3):
                assert numpy.array_equal(cell({{}}, x=x).h, expected)
            os._exit(7)

        def leaves_a_thread_that_goes_on():
            threading.Thread(target=goes_on, daemon=True).start()
            has_left.set()

        def returns():
            pass

        def fork():
            global expected
            child = os.fork()
            if child == 0:
                expected = cell({{}}, x=x).h if expected is None else expected
                assert numpy.array_equal(cell({{}}, x=x).h, expected)
                return {ends}()
            threading.Timer(30, os.kill, (child, signal.SIGKILL)).start()
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()  # a program that has come to its end starts no threads from Python 3.12 on
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60)
    assert done.returncode == (0 if ends == "returns" else 7), done.stderr


def test_a_program_may_end_while_threads_run():
    program = """
        import threading, numpy, stepnet
        cell = stepnet.cell("cell a(x[D]; h[D]) { size D = 4\\n h = Tanh(x + h)\\n output h }")
        x = numpy.zeros((200000, 8, 4), "float32")
        def work():
            while True:
                cell({}, x=x)
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        kept = cell({}, x=x)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
