#!/usr/bin/env python3
"""Bits per character of a text by the character model of this folder: measure.py [FILE]

Without a file, of the tenth of the plays that it was not trained on. Needs stepnet and NumPy.
"""

import json
import sys
from pathlib import Path

import numpy

import stepnet

HERE = Path(__file__).parent
PLAYS = HERE.parent.parent / "char_lm" / "tinyshakespeare.txt"


def main(file=None):
    vocabulary = {character: k for k, character in enumerate(json.loads((HERE / "vocabulary.json").read_text()))}
    text = Path(file or PLAYS).read_text()
    if file is None:
        text = text[len(text) - len(text) // 10 :]
    unknown = sorted(set(text) - set(vocabulary))
    if unknown:
        sys.exit(f"the model does not know {unknown[0]!r}; it knows {''.join(vocabulary)!r}")
    tokens = numpy.array([vocabulary[character] for character in text], "int32")[:, None]  # [T, B] of one text
    net = stepnet.load(HERE / "net.pb", init=HERE / "init_net.pb")
    probabilities = net(tokens=tokens[:-1]).probabilities[:, 0]  # [T, V], of the next character
    right = numpy.take_along_axis(probabilities, tokens[1:], axis=1)
    print(f"{len(text)} characters: {-numpy.log2(right.astype('float64')).mean():.4f} bits per character")


if __name__ == "__main__":
    main(*sys.argv[1:])
