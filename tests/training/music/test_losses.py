"""Tests of the losses of transcription networks, and of distillation targets."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.config import FRAMES, HEADS, INSTRUMENTS, NOTE_HEADS, PITCHES, WINDOW, FilterbankConfig
from model.storage import load
from tests.networks import TINY
from training.music.losses import (
    DISTILLED_HEADS,
    ClassShares,
    DistillationConfig,
    HeadWeights,
    Teacher,
    heads_loss,
    usable_frames,
)
from training.music.targets import Targets

ALL = slice(None)


def random_labels(batch: int) -> Targets[Tensor]:
    """Return random labels of all heads, without unknown values."""
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


def test_only_the_selected_frames_and_pitches_count() -> None:
    logits = torch.randn(2, 3, 63, PITCHES)
    ranges = slice(10, 60), slice(21, 109)
    arguments = (NOTE_HEADS[:3], random_labels(2), *ranges, HeadWeights(1, 2, 3), ClassShares())
    total, parts = heads_loss(logits, *arguments)
    assert total.item() == pytest.approx(
        (parts["frame"] + 2 * parts["onset"] + 3 * parts["velocity"]).item()
    )
    logits[:, :, :10] += 5
    logits[..., :21] += 5
    assert heads_loss(logits, *arguments)[0] == total


def test_each_head_is_compared_with_its_own_labels() -> None:
    labels = random_labels(1)
    for heads in (NOTE_HEADS, ("frame", "offset")):
        perfect = torch.stack([torch.logit(getattr(labels, head)) for head in heads], dim=1)
        arguments = (heads, labels, ALL, ALL, HeadWeights(), ClassShares())
        _, minima = heads_loss(perfect, *arguments)
        assert set(minima) == set(heads)
        for row, head in enumerate(heads):
            wrong = perfect.clone()
            wrong[:, row] += 0.5
            _, parts = heads_loss(wrong, *arguments)
            assert {name for name in parts if parts[name] > minima[name]} == {head}


def test_unknown_labels_do_not_count() -> None:
    labels = random_labels(1)
    labels.frame_unknown[:, 20:30] = 1
    labels.onset_unknown[:, :, 60] = 1
    labels.velocity[:, 40:] = 0
    labels.instrument[:, :, 70] = 0
    labels.pedal[:, 5] = 1.1
    logits = torch.randn(1, len(HEADS), 63, PITCHES)
    arguments = (HEADS, labels, ALL, ALL, HeadWeights(), ClassShares())
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
    for row in range(len(HEADS)):  # The known labels of each head count.
        changed = logits.clone()
        changed[:, row] += 3
        assert heads_loss(changed, *arguments)[0] != total


def test_rare_instruments_have_larger_weights() -> None:
    labels = random_labels(1)
    labels.instrument[:] = 0
    labels.onset[:] = 0
    pianos, violins = torch.arange(30, 46), torch.tensor([50])
    for pitches, number in ((pianos, 1), (violins, 6)):
        labels.onset[:, 20, pitches] = 1
        labels.instrument[:, 20, pitches] = number
    logits = torch.zeros(1, len(HEADS), 63, PITCHES, requires_grad=True)
    _, parts = heads_loss(logits, HEADS, labels, ALL, ALL, HeadWeights(), ClassShares())
    parts["instrument"].backward()
    assert logits.grad is not None
    gradient = logits.grad[:, -len(INSTRUMENTS) :, 20].abs().sum(dim=(0, 1))
    assert gradient[violins].sum() == pytest.approx(float(gradient[pianos].sum()) / 4)
    assert gradient[violins[0]] == pytest.approx(4 * float(gradient[pianos[0]]))


def test_shares_of_instruments_do_not_depend_on_the_type_of_products() -> None:
    labels, shares = random_labels(1), (ClassShares(), ClassShares())
    labels.instrument[:] = 1 + (torch.arange(PITCHES) < 3)
    logits = torch.zeros(1, len(HEADS), 63, PITCHES)
    for _ in range(100):
        for of_type, enabled in zip(shares, (False, True), strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                heads_loss(logits, HEADS, labels, ALL, ALL, HeadWeights(), of_type)
    torch.testing.assert_close(shares[0].notes, shares[1].notes)


STUDENT = replace(TINY, name="student")


def mixed(teacher: Path, share: float) -> tuple[Tensor, Targets[Tensor], Targets[Tensor]]:
    """Return audio, its labels and the mixed targets. Half of the pitches have no velocity."""
    torch.manual_seed(0)
    audio = 0.1 * torch.randn(2, STUDENT.context + WINDOW)
    labels = random_labels(2)
    labels.velocity[..., :64] = 0
    config = DistillationConfig(str(teacher), share)
    return audio, labels, Teacher(config, STUDENT).mixed(audio, labels)


def test_with_share_1_targets_are_the_teacher_predictions(tiny_weights: Path) -> None:
    audio, labels, targets = mixed(tiny_weights, share=1.0)
    network = load(tiny_weights)
    for row, head in enumerate(network.config.heads):
        if head in DISTILLED_HEADS:
            expected = network.predict(audio)[:, row].clone()
            if head == "velocity":
                expected[..., :64] = 0
            stop = usable_frames(network.config).stop
            assert stop < FRAMES
            expected[:, stop:] = getattr(labels, head)[:, stop:]  # the teacher cannot predict them
            torch.testing.assert_close(getattr(targets, head), expected)
    assert targets.instrument is labels.instrument
    assert targets.pedal is labels.pedal


def test_a_teacher_with_less_context_uses_the_last_samples(tiny_weights: Path) -> None:
    audio, labels, targets = mixed(tiny_weights, share=1.0)
    student = replace(STUDENT, front_end=FilterbankConfig())
    teacher = Teacher(DistillationConfig(str(tiny_weights), 1.0), student)
    extra_samples = student.context - STUDENT.context
    assert extra_samples > 0
    longer = torch.cat([torch.randn(len(audio), extra_samples), audio], dim=1)
    torch.testing.assert_close(teacher.mixed(longer, labels).frame, targets.frame)
