# examples/cells/layer_norm_lstm.cell in PyTorch, operator by operator, each run recorded once and replayed as a CUDA
# graph, in float32 without TF32, or with it where "tf32" is an argument: median milliseconds of a forward run, and of one
# forward and backward. With "check" as an argument the recorded run is compared with one that is not.
#
#   python3 bench/peers/layer_norm_lstm_torch.py BATCH HIDDEN STEPS [REPETITIONS [check] [tf32]]
import sys

import torch
from torch.nn.functional import layer_norm, linear

batch, hidden, steps = map(int, sys.argv[1:4])
repetitions = int(sys.argv[4]) if len(sys.argv) > 4 else 50
torch.backends.cuda.matmul.allow_tf32 = "tf32" in sys.argv
torch.manual_seed(1)


def parameter(*shape):
    return (torch.randn(*shape, device="cuda") / hidden**0.5).requires_grad_()


w, u = parameter(4 * hidden, hidden), parameter(4 * hidden, hidden)
b, gain_u, shift_u, gain_w, shift_w = (parameter(4 * hidden) for _ in range(5))
gain_c, shift_c = parameter(hidden), parameter(hidden)
x = torch.randn(steps, batch, hidden, device="cuda", requires_grad=True)
inputs = [x, w, u, b, gain_u, shift_u, gain_w, shift_w, gain_c, shift_c]


def network():
    h = c = torch.zeros(batch, hidden, device="cuda")
    of_input = layer_norm(linear(x, w), [4 * hidden], gain_w, shift_w) + b
    outputs = []
    for t in range(steps):
        of_state = layer_norm(linear(h, u), [4 * hidden], gain_u, shift_u)
        f, i, o, g = (of_state + of_input[t]).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(layer_norm(c, [hidden], gain_c, shift_c))
        outputs.append(h)
    return torch.stack(outputs)


def forward():
    with torch.no_grad():
        return [network()]


def forward_backward():
    return list(torch.autograd.grad(network().sum(), inputs))


# The run as a graph, and what it computes.
def recorded(run):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return graph, results


def median(run):
    graph, results = recorded(run)
    times = []
    for _ in range(repetitions + 5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    if "check" in sys.argv:
        for result, wanted in zip(results, run()):
            assert torch.allclose(result, wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item())
    return sorted(times[5:])[repetitions // 2]


print("%.3f %.3f" % (median(forward), median(forward_backward)))
