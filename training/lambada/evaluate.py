"""Accuracy on a file of LAMBADA: ``python -m training.lambada.evaluate RUN --data FILE``.

RUN is the folder of a training run; FILE has one tokenised passage a line, its last word the one
to be found, as lambada_test_plain_text.txt. Prints a table with the baselines, or JSON.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from model.commands import documented_parser
from model.storage import WeightsError, read_card
from model.symbols import load_symbol_network
from training.lambada.passages import most_frequent, read_passages
from training.lambada.reader import PREPROCESSING, Reader
from training.lambada.task import VOCABULARY
from training.lambada.words import Vocabulary
from training.loop.run_folder import saved_weights

COMMON = 500
"""Words that the frequent-word baseline leaves out; this many make it strongest on LAMBADA."""


def random_word(passages: Sequence[Sequence[str]]) -> float:
    """Expected accuracy of any distinct word of the passage (Paperno et al. 2016: 1.6 %)."""
    hits = [(words[-1] in words[:-1]) / len(set(words[:-1])) for words in passages]
    return sum(hits) / len(hits)


def frequent_word(passages: Sequence[Sequence[str]], common: int = 0) -> float:
    """Accuracy of the passage's most frequent word, the first of equals.

    common: number of the file's most frequent words to leave out. Punctuation does not count.
    """
    left_out = most_frequent(passages, common)
    right = 0
    for words in passages:
        counts = Counter(w for w in words[:-1] if w[0].isalpha() and w not in left_out)
        right += bool(counts) and counts.most_common(1)[0][0] == words[-1]
    return right / len(passages)


@dataclass(frozen=True)
class Result:
    """Accuracies, all of them shares of all passages of a file."""

    passages: int
    answerable: float
    """Passages whose last word occurs before it: no method that points to a word can do better."""
    random_word: float
    """Any distinct word of the passage."""
    frequent_word: float
    """The most frequent word of the passage."""
    frequent_content_word: float
    """The same without the most frequent words of the file."""
    accuracy: float
    """The network."""
    left_out: int
    """Passages too long for the released preprocessing, counted as wrong."""


def load_reader(folder: Path, weights: str = "best", device: str = "cpu") -> Reader:
    """A run's network with its vocabulary and preprocessing. Raises WeightsError."""
    path = saved_weights(folder, weights)
    card = read_card(path)
    if card.get("name") != "lambada":
        raise WeightsError(f"{path} is of task {card.get('name')!r}; expected 'lambada'")
    network = load_symbol_network(path)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    data = card["data"]
    return Reader(
        network.to(device),
        vocabulary,
        PREPROCESSING[data["preprocessing"]],
        data["length"],
        data["votes"] if data["padding"] == "random" else 0,
    )


def evaluate(reader: Reader, passages: Sequence[Sequence[str]]) -> Result:
    """Accuracy of a network and of the baselines on the same passages."""
    return Result(
        passages=len(passages),
        answerable=sum(words[-1] in words[:-1] for words in passages) / len(passages),
        random_word=random_word(passages),
        frequent_word=frequent_word(passages),
        frequent_content_word=frequent_word(passages, COMMON),
        accuracy=float(reader.right(passages).mean()),
        left_out=sum(not reader.takes(words) for words in passages),
    )


def table(result: Result) -> str:
    without = f"the same without the {COMMON} most frequent words of the file"
    rows = {
        "any word of the passage": result.random_word,
        "its most frequent word": result.frequent_word,
        without: result.frequent_content_word,
        "network": result.accuracy,
        "answer in the passage, the most possible": result.answerable,
    }
    lines = [f"| {result.passages} passages | right |", "|---|---:|"]
    lines += [f"| {name} | {100 * share:.2f} % |" for name, share in rows.items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.lambada.evaluate", __doc__)
    parser.add_argument("run", type=Path, help="folder of a LAMBADA training run")
    parser.add_argument("--data", type=Path, required=True, help="one passage a line")
    parser.add_argument("--weights", choices=["best", "last"], default="best")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    try:
        passages = read_passages(options.data)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        result = evaluate(load_reader(options.run, options.weights, device), passages)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    print(json.dumps(asdict(result), indent=1) if options.json else table(result))
    if result.left_out:
        words = f"{result.left_out} passages are too long and count as wrong"
        print(f"{parser.prog}: {words}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
