"""Measures the accuracy by length: ``python -m training.algorithmic.evaluate RUN_DIR``.

Networks trained on lengths up to 64 are tested on lengths 8, 16, ..., 4096 (paper, figure
"generalization to longer sequences"). The command prints a table and writes it to
RUN_DIR/generalisation.json.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from model.commands import documented_parser
from model.storage import WeightsError, read_card, write_atomically
from model.symbols import load_symbol_network
from training.algorithmic.data import PROBLEMS, Examples, Problem, distinct_examples
from training.arrays import Rng
from training.loop.run_folder import saved_weights
from training.loop.symbol_losses import BATCH_SYMBOLS, PADDING

LENGTHS = tuple(2**bits for bits in range(3, 13))  # 8 ... 4096
EXAMPLES = 1024  # number of examples of each length (released code)
RESULT = "generalisation.json"


@dataclass(frozen=True)
class Score:
    """Accuracy of a network on examples of one length."""

    length: int
    symbol_accuracy: float
    """Share of correct symbols among positions where target or output is not padding, pooled over
    all examples (released code)."""
    sequence_accuracy: float  # share of examples that are correct at every such position


def draw_examples(problem: Problem, rng: Rng, length: int, count: int) -> Examples:
    """Draw ``count`` examples of a nominal length, padded to it. If ``distinct_examples``
    returns fewer, repeat them."""
    examples = distinct_examples(problem, rng, length, count).padded(length)
    return examples.take(np.arange(count) % len(examples))


@torch.inference_mode()
def score_examples(network: nn.Module, examples: Examples) -> Score:
    """Return the accuracy of a network on examples. Leaves the network in evaluation mode."""
    network.eval()
    device = next(network.parameters()).device
    count, length = examples.inputs.shape
    batch = max(1, BATCH_SYMBOLS // length)
    symbols = wrong = correct_examples = 0
    for begin in range(0, count, batch):
        inputs, targets = examples.take(slice(begin, begin + batch)).tensors(device)
        outputs = network(inputs).argmax(dim=-1)
        # At a mistake, target and output cannot both be padding, so all mistakes count.
        mistakes = (outputs != targets).sum(dim=1)
        symbols += int(((outputs != PADDING) | (targets != PADDING)).sum())
        wrong += int(mistakes.sum())
        correct_examples += int((mistakes == 0).sum())
    return Score(length, 1 - wrong / max(1, symbols), correct_examples / count)


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.algorithmic.evaluate", __doc__)
    parser.add_argument("run", type=Path, help="folder of an algorithmic training run")
    parser.add_argument("--weights", choices=["best", "last"], default="best")
    options = parser.parse_args(arguments)
    try:
        path = saved_weights(options.run, options.weights)
        network = load_symbol_network(path).to("cuda" if torch.cuda.is_available() else "cpu")
        task = read_card(path).get("name")
        if task not in PROBLEMS:
            raise WeightsError(f"{path} was trained on {task!r}, not on one of {sorted(PROBLEMS)}")
    except WeightsError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    scores = []
    print("| length | symbols right | sequences right |\n|---:|---:|---:|")
    for length in LENGTHS:
        rng = np.random.default_rng((0, length))
        drawn = draw_examples(PROBLEMS[task], rng, length, EXAMPLES)
        scores.append(score := score_examples(network, drawn))
        symbols, sequences = 100 * score.symbol_accuracy, 100 * score.sequence_accuracy
        print(f"| {length} | {symbols:.2f} % | {sequences:.2f} % |", flush=True)
    result = {"task": task, "weights": options.weights, "scores": [*map(asdict, scores)]}
    write_atomically(options.run / RESULT, json.dumps(result, indent=1).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
