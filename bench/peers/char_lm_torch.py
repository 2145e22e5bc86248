#!/usr/bin/env python3
"""The training of `rnn_runner train examples/char_lm/train.prototxt`, written again in PyTorch.

Same model, same data in the same order, same initial weights (INITIAL_DIR has a .npy file for each parameter), same
optimizer. Prints a line `iteration,loss` for each iteration to LOSSES, and one line of
figures to standard output: tokens/s of training and bits per character of the validation text.

  char_lm_torch.py TEXT INITIAL_DIR LOSSES ITERATIONS DECAY_OVER THREADS
"""
import math
import sys
import time

import numpy as np
import torch

TEXT, INITIAL_DIR, LOSSES = sys.argv[1:4]
ITERATIONS, DECAY_OVER, THREADS = (int(x) for x in sys.argv[4:7])
BATCH, STEPS, RATE, FINAL, CLIP = 50, 50, 0.004, 0.02, 1.0

torch.set_num_threads(THREADS)


def initial(name):
    return torch.from_numpy(np.load(f"{INITIAL_DIR}/{name}.npy"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        embedding, w, u, b = (initial(n) for n in ("embedding", "cell__w", "cell__u", "cell__b"))
        out_w, out_b = initial("output_w"), initial("output_b")
        self.embedding = torch.nn.Embedding(*embedding.shape)
        self.lstm = torch.nn.LSTM(embedding.shape[1], u.shape[1])
        self.output = torch.nn.Linear(out_w.shape[1], out_w.shape[0])
        # Ours are i, f, o, g one after the other, PyTorch's i, f, g, o; its second bias stays 0.
        reorder = lambda x: torch.cat([x.chunk(4)[k] for k in (0, 1, 3, 2)])
        with torch.no_grad():
            self.embedding.weight.copy_(embedding)
            self.lstm.weight_ih_l0.copy_(reorder(w))
            self.lstm.weight_hh_l0.copy_(reorder(u))
            self.lstm.bias_ih_l0.copy_(reorder(b))
            self.lstm.bias_hh_l0.zero_()
            self.output.weight.copy_(out_w)
            self.output.bias.copy_(out_b)
        self.lstm.bias_hh_l0.requires_grad_(False)

    def forward(self, tokens, state):
        hidden, state = self.lstm(self.embedding(tokens), state)
        return self.output(hidden), state


def streams(text, batch):
    """tokens and targets, [length, batch]"""
    length = (len(text) - 1) // batch
    take = lambda offset: torch.stack([text[b * length + offset : (b + 1) * length + offset] for b in range(batch)], 1)
    return take(0), take(1)


def loss_of(model, tokens, targets, state):
    logits, state = model(tokens, state)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()), state


def validate(model, text):
    tokens, targets = streams(text, min(BATCH, (len(text) - 1) // STEPS))
    total, state = 0.0, None
    with torch.no_grad():
        for begin in range(0, len(tokens), STEPS):
            part = slice(begin, begin + STEPS)
            loss, state = loss_of(model, tokens[part], targets[part], state)
            total += loss.item() * len(tokens[part])
    return total / len(tokens) / math.log(2)


def main():
    with open(TEXT, encoding="utf-8", newline="") as file:
        text = file.read()
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    text = torch.tensor([number[c] for c in text])
    num_training = math.ceil((1 - np.float64(np.float32(0.1))) * len(text))
    tokens, targets = streams(text[:num_training], BATCH)
    per_epoch = len(tokens) // STEPS

    model = Model()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    rate = lambda n: FINAL + (1 - FINAL) * (1 + math.cos(math.pi * n / DECAY_OVER)) / 2
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    seconds = 0.0
    with open(LOSSES, "w", encoding="ascii") as losses:
        for iteration in range(ITERATIONS):
            start = time.perf_counter()
            k = iteration % per_epoch
            state = None if k == 0 else tuple(s.detach() for s in state)
            part = slice(k * STEPS, (k + 1) * STEPS)
            optimizer.zero_grad()
            loss, state = loss_of(model, tokens[part], targets[part], state)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            schedule.step()
            seconds += time.perf_counter() - start
            losses.write(f"{iteration + 1},{loss.item():.9g}\n")
    bits = validate(model, text[num_training:])
    print(f"torch {torch.__version__} tokens/s {ITERATIONS * BATCH * STEPS / seconds:.0f} validation {bits:.4f}")


main()
