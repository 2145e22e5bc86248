# cuDNN's LSTM through PyTorch, in one direction or both, in float32 without TF32, or with it where "tf32" is an argument:
# median milliseconds of a forward run, and of one forward and backward, on a GPU.
#
#   python3 bench/peers/lstm_cudnn.py LAYERS BATCH HIDDEN STEPS [both] [REPETITIONS] [tf32]
import sys

import torch

layers, batch, hidden, steps = map(int, sys.argv[1:5])
repetitions = next((int(word) for word in sys.argv[5:] if word.isdigit()), 50)
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = "tf32" in sys.argv
torch.manual_seed(1)
lstm = torch.nn.LSTM(hidden, hidden, layers, bidirectional="both" in sys.argv).cuda()
x = torch.randn(steps, batch, hidden, device="cuda", requires_grad=True)


def forward():
    with torch.no_grad():
        lstm(x)


def forward_backward():
    y, _ = lstm(x)
    y.sum().backward()
    lstm.zero_grad(set_to_none=True)
    x.grad = None


def median(run):
    for _ in range(10):
        run()
    times = []
    for _ in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


print("%.3f %.3f" % (median(forward), median(forward_backward)))
