#!/usr/bin/env python3
"""Says which letters of a text are capitals: trains the model of this folder, measures it, or uses it.

  capitals.py train [FOLDER]   trains it, and writes capitals.safetensors to the folder; without one, to this one
  capitals.py measure          on the tenth of the plays that it was not trained on
  capitals.py write TEXT       the text, with the capitals that it needs

Needs stepnet and NumPy.
"""

import math
import sys
from pathlib import Path

import numpy

import stepnet

HERE = Path(__file__).parent
PLAYS = HERE.parent.parent / "char_lm" / "tinyshakespeare.txt"
PARAMETERS = "capitals.safetensors"
CHARACTERS = "\n !$&',-.3:;?abcdefghijklmnopqrstuvwxyz"  # those of the plays, in small letters
STEPS, BATCH, ITERATIONS, RATE, SEED = 128, 64, 3000, 0.01, 1


def plays():
    """The text to learn from, and the tenth behind it, which only measures."""
    text = PLAYS.read_text()
    cut = len(text) * 9 // 10
    return text[:cut], text[cut:]


def numbers(text):
    """The place of each character in CHARACTERS; of one that is not there that of the space."""
    place = {character: index for index, character in enumerate(CHARACTERS)}
    return numpy.array([place.get(character.lower(), 1) for character in text])


def labels(text):
    """For each character whether it is a capital, and whether it is a letter at all."""
    return (
        numpy.array([character.isupper() for character in text]),
        numpy.array([character.isalpha() for character in text]),
    )


def inputs(places):
    """x [T, B, D]: 1 where the character is."""
    return numpy.eye(len(CHARACTERS), dtype="float32")[places]


def train(folder):
    text, _ = plays()
    places, (is_capital, is_letter) = numbers(text), labels(text)
    random = numpy.random.default_rng(SEED)
    cell = stepnet.cell(HERE / "capitals.cell", training=True)
    params = cell.init(seed=SEED)
    units = params["u"].shape[1]
    v, a = numpy.zeros((1, 2 * units), "float32"), numpy.zeros(1, "float32")  # it is a capital where v h + a is above 0
    trained = {**params, "readout/v": v, "readout/a": a}  # the same arrays: what changes here changes there
    means = {name: numpy.zeros_like(array) for name, array in trained.items()}
    squares = {name: numpy.zeros_like(array) for name, array in trained.items()}
    for iteration in range(1, ITERATIONS + 1):
        at = random.integers(0, len(text) - STEPS, BATCH) + numpy.arange(STEPS)[:, None]  # [T, B]
        out, pullback = cell.vjp(params, wrt=params, x=inputs(places[at]))
        score = (out.h @ v[0] + a).astype("float64")
        chance = 1 / (1 + numpy.exp(-score))
        weight = is_letter[at] / is_letter[at].sum()
        loss = (weight * (numpy.logaddexp(0, score) - score * is_capital[at])).sum()
        slope = (weight * (chance - is_capital[at])).astype("float32")[
            ..., None
        ]  # the gradient of the loss by the score
        gradients = {
            **pullback(h=slope * v[0]).params,
            "readout/v": (slope * out.h).sum(axis=(0, 1))[None],
            "readout/a": slope.sum(axis=(0, 1)),
        }
        rate = RATE * (1 + math.cos(math.pi * iteration / ITERATIONS)) / 2
        for name, gradient in gradients.items():  # Adam (Kingma, Ba 2015, algorithm 1)
            means[name] += 0.1 * (gradient - means[name])
            squares[name] += 0.001 * (gradient**2 - squares[name])
            mean, square = means[name] / (1 - 0.9**iteration), squares[name] / (1 - 0.999**iteration)
            trained[name] -= rate * mean / (numpy.sqrt(square) + 1e-8)
        if iteration % 250 == 0:
            print(f"iteration {iteration}/{ITERATIONS}: loss {loss:.4f}", flush=True)
    halves = {name: array.astype("float16") for name, array in trained.items()}
    stepnet.save_params(halves, folder / PARAMETERS)


def capitals(text):
    """For each character whether the model makes it a capital."""
    params = stepnet.load_params(HERE / PARAMETERS, widen=True)
    v, a = params.pop("readout/v"), params.pop("readout/a")
    cell = stepnet.cell(HERE / "capitals.cell")
    # The whole text at once, a batch of 1; behind the end of a line, so that it begins with one.
    h = cell(params, x=inputs(numbers("\n" + text))[:, None]).h[1:]
    return (h @ v[0] + a)[:, 0] > 0


def report(name, found, is_capital, is_letter):
    right = (found == is_capital)[is_letter].mean()
    hits = (found & is_capital & is_letter).sum()
    f1 = 2 * hits / ((found & is_letter).sum() + is_capital.sum())
    print(f"{name}: {100 * right:.2f} % of the letters are right; F1 of capitals {f1:.4f}")


def by_rule(text):
    """What a rule makes capitals: the first letter of a line, and behind a full stop, and a lone i."""
    padded = f" {text} "  # the character at k is padded[k + 1]
    is_alone = [not padded[k].isalpha() and not padded[k + 2].isalpha() for k in range(len(text))]
    found, is_due = [], True
    for k, character in enumerate(text):
        found.append(character.isalpha() and (is_due or (character in "iI" and is_alone[k])))
        if character in "\n.!?":
            is_due = True
        elif character.isalpha():
            is_due = False
    return numpy.array(found)


def main(command, *rest):
    if command == "train":
        train(Path(rest[0]) if rest else HERE)
    elif command == "measure":
        _, text = plays()
        is_capital, is_letter = labels(text)
        report("a rule", by_rule(text), is_capital, is_letter)
        report("the model", capitals(text), is_capital, is_letter)
    else:
        (text,) = rest
        print("".join(character.upper() if up else character for character, up in zip(text.lower(), capitals(text))))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("train", "measure", "write"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
