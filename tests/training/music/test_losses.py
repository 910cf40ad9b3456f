"""Losses of the transcription networks, and targets mixed from labels and a teacher."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.config import (
    HEADS,
    INSTRUMENTS,
    NOTE_HEADS,
    PITCHES,
    WINDOW,
    FilterbankConfig,
)  # fmt: skip
from model.storage import load
from tests.networks import TINY
from training.music.losses import (
    DISTILLED_HEADS,
    ClassShares,
    DistillationConfig,
    HeadWeights,
    Teacher,
    heads_loss,
)  # fmt: skip
from training.music.targets import Targets


def random_labels(batch: int) -> Targets[Tensor]:
    """Return random labels of all heads, all of them known."""
    shape = (batch, 63, PITCHES)
    return Targets(
        frame=torch.rand(shape),
        onset=torch.rand(shape),
        velocity=torch.rand(shape),
        offset=torch.rand(shape),
        instrument=torch.randint(0, len(INSTRUMENTS) + 1, shape),
        pedal=torch.rand(batch, 63),
        frame_unknown=torch.zeros(shape),
        onset_unknown=torch.zeros(shape),
    )


def test_frames_and_pitches_outside_do_not_count() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 63, PITCHES)
    labels = random_labels(2)
    frames, pitches = slice(10, 60), slice(21, 109)
    total, parts = heads_loss(
        logits, NOTE_HEADS[:3], labels, frames, pitches, HeadWeights(1, 2, 3), ClassShares()
    )
    assert total.item() == pytest.approx(
        (parts["frame"] + 2 * parts["onset"] + 3 * parts["velocity"]).item()
    )
    changed = logits.clone()
    changed[:, :, :10] += 5
    changed[..., :21] += 5
    again, _ = heads_loss(
        changed, NOTE_HEADS[:3], labels, frames, pitches, HeadWeights(1, 2, 3), ClassShares()
    )
    assert again == total


def test_each_head_is_compared_with_its_own_labels() -> None:
    torch.manual_seed(0)
    labels = random_labels(1)
    everything = slice(None)
    for heads in (NOTE_HEADS, ("frame", "offset")):
        right = torch.stack([torch.logit(getattr(labels, head)) for head in heads], dim=1)
        arguments = (heads, labels, everything, everything, HeadWeights(), ClassShares())
        _, least = heads_loss(right, *arguments)
        assert set(least) == set(heads)
        for row, head in enumerate(heads):
            wrong = right.clone()
            wrong[:, row] += 0.5
            _, parts = heads_loss(wrong, *arguments)
            assert {name for name in parts if parts[name] > least[name]} == {head}


def test_what_is_not_known_does_not_count() -> None:
    torch.manual_seed(0)
    everything = slice(None)
    labels = random_labels(1)
    labels.frame_unknown[:, 20:30] = 1
    labels.onset_unknown[:, :, 60] = 1
    labels.velocity[:, 40:] = 0
    labels.instrument[:, :, 70] = 0
    labels.pedal[:, 5] = 1.1
    logits = torch.randn(1, len(HEADS), 63, PITCHES)
    arguments = (HEADS, labels, everything, everything, HeadWeights(), ClassShares())
    total, parts = heads_loss(logits, *arguments)
    assert set(parts) == {*NOTE_HEADS, "pedal", "instrument"}
    rows = {head: logits.clone() for head in (*NOTE_HEADS, "pedal", "instrument")}
    for head in ("frame", "offset"):
        rows[head][:, HEADS.index(head), 20:30] += 3
    rows["onset"][:, HEADS.index("onset"), :, 60] += 3
    rows["velocity"][:, HEADS.index("velocity"), 40:] += 3
    rows["instrument"][:, len(NOTE_HEADS) + 1 :, :, 70] += 3
    rows["pedal"][:, HEADS.index("pedal"), 5] += 3
    for changed in rows.values():
        assert heads_loss(changed, *arguments)[0] == total
    for row in range(len(HEADS)):  # elsewhere everything does
        changed = logits.clone()
        changed[:, row] += 3
        assert heads_loss(changed, *arguments)[0] != total


def test_a_rare_instrument_weighs_more_than_its_share() -> None:
    labels = random_labels(1)
    labels.instrument[:] = 0
    labels.onset[:] = 0
    pianos, violins = torch.arange(30, 46), torch.tensor([50])
    for pitches, number in ((pianos, 1), (violins, 6)):
        labels.onset[:, 20, pitches] = 1
        labels.instrument[:, 20, pitches] = number
    logits = torch.zeros(1, len(HEADS), 63, PITCHES, requires_grad=True)
    everything = slice(None)
    _, parts = heads_loss(
        logits, HEADS, labels, everything, everything, HeadWeights(), ClassShares()
    )
    parts["instrument"].backward()
    assert logits.grad is not None
    pull = logits.grad[:, -len(INSTRUMENTS) :, 20].abs().sum(dim=(0, 1))
    assert pull[violins].sum() == pytest.approx(float(pull[pianos].sum()) / 4)
    assert pull[violins[0]] == pytest.approx(4 * float(pull[pianos[0]]))


STUDENT = replace(TINY, name="student")


def mixed(teacher: Path, share: float) -> tuple[Tensor, Targets[Tensor], Targets[Tensor]]:
    """Return audio, its labels and the mixed targets. Half of the pitches have no velocity."""
    torch.manual_seed(0)
    audio = 0.1 * torch.randn(2, STUDENT.context + WINDOW)
    labels = random_labels(2)
    labels.velocity[..., :64] = 0
    config = DistillationConfig(str(teacher), share)
    return audio, labels, Teacher(config, STUDENT).mixed(audio, labels)


def test_the_whole_share_is_what_the_teacher_hears(tiny_weights: Path) -> None:
    audio, labels, targets = mixed(tiny_weights, share=1.0)
    network = load(tiny_weights)
    for row, head in enumerate(network.config.heads):
        if head in DISTILLED_HEADS:
            heard = network.predict(audio)[:, row].clone()
            if head == "velocity":
                assert not targets.velocity[..., :64].any()
                heard[..., :64] = 0
            assert torch.equal(getattr(targets, head), heard)
    assert targets.instrument is labels.instrument
    assert targets.pedal is labels.pedal


def test_a_teacher_with_less_context_hears_the_end_of_the_samples(tiny_weights: Path) -> None:
    audio, labels, targets = mixed(tiny_weights, share=1.0)
    student = replace(STUDENT, front_end=FilterbankConfig())
    teacher = Teacher(DistillationConfig(str(tiny_weights), 1.0), student)
    more = student.context - STUDENT.context
    assert more > 0
    longer = torch.cat([torch.randn(len(audio), more), audio], dim=1)
    assert torch.equal(teacher.mixed(longer, labels).frame, targets.frame)
