"""Targets between the labels and a teacher's predictions."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from model.config import WINDOW, FilterbankConfig
from model.storage import load
from tests.networks import TINY
from tests.training.music.test_losses import random_labels
from training.music.losses import TAUGHT, DistillationConfig, Teacher
from training.music.targets import Targets

STUDENT = replace(TINY, name="student")


def mixed(teacher: Path, share: float) -> tuple[Tensor, Targets[Tensor], Targets[Tensor]]:
    """Audio, its labels, and the targets; no velocity is known of half of the pitches."""
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
        if head in TAUGHT:
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
