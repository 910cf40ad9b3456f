"""Measures the accuracy on LAMBADA: ``python -m training.lambada.evaluate RUN --data FILE``.

RUN is the folder of a training run. FILE has one tokenised passage per line, as in
lambada_test_plain_text.txt. The last word of a passage is the answer. The command prints a table
with a baseline and an upper bound. The 95 % intervals (Wilson) cover the sampling of passages, but
not the differences between seeds.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from scipy.stats import binomtest

from model.commands import documented_parser
from model.storage import WeightsError, read_card
from model.symbols import load_symbol_network
from training.lambada.passages import read_passages
from training.lambada.reader import Reader
from training.lambada.task import VOCABULARY
from training.lambada.words import Vocabulary
from training.loop.run_folder import saved_weights

COMMON = 500  # number of words that the frequent-word baseline excludes: the best number on LAMBADA


def frequent_word(passages: Sequence[Sequence[str]], common: int = COMMON) -> float:
    """Return the accuracy of a baseline that answers with the most frequent word of the passage, or
    with the first of equally frequent words. common: number of the most frequent words of all
    passages, which are never the answer."""
    frequencies = Counter(word for words in passages for word in words)
    excluded = {word for word, _ in frequencies.most_common(common)}
    right = 0
    for words in passages:
        counts = Counter(w for w in words[:-1] if w[0].isalpha() and w not in excluded)
        right += bool(counts) and counts.most_common(1)[0][0] == words[-1]
    return right / len(passages)


def interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval (Wilson) of a share that was measured on ``count``
    independent passages."""
    test = binomtest(round(share * count), count)
    low, high = test.proportion_ci(confidence_level=0.95, method="wilson")
    return float(low), float(high)


def load_reader(folder: Path, weights: str) -> Reader:
    """Load the network of a run and its vocabulary. Raises OSError or ValueError."""
    path = saved_weights(folder, weights)
    card = read_card(path)
    if card.get("name") != "lambada":
        raise WeightsError(f"{path} was trained on {card.get('name')!r}, not on lambada")
    network = load_symbol_network(path).to("cuda" if torch.cuda.is_available() else "cpu")
    vocabulary, data = Vocabulary.load(folder / VOCABULARY), card["data"]
    return Reader(network, vocabulary, data["length"], data["votes"])


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.lambada.evaluate", __doc__)
    parser.add_argument("run", type=Path, help="folder of a LAMBADA training run")
    parser.add_argument("--data", type=Path, required=True, help="file with one passage per line")
    parser.add_argument("--weights", choices=["best", "last"], default="best")
    options = parser.parse_args(arguments)
    try:
        passages = list(read_passages(options.data))
        right = load_reader(options.run, options.weights).right(passages)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    baseline = "most frequent word of the passage"
    rows = {
        f"{baseline} (except the {COMMON} most frequent of the file)": frequent_word(passages),
        "network": right.mean(),
        "upper bound: answer in the passage": sum(p[-1] in p[:-1] for p in passages)
        / len(passages),
    }
    print(f"| {len(passages)} passages | right | 95 % interval |\n|---|---:|---|")
    for name, share in rows.items():
        low, high = (f"{100 * bound:.2f}" for bound in interval(share, len(passages)))
        print(f"| {name} | {100 * share:.2f} % | {low} to {high} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
