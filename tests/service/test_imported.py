"""An imported checkpoint of the released code behind the service."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from starlette.testclient import TestClient

from model.config import RELEASED, RELEASED_RSE, StridedConfig
from model.import_tf import main
from model.transcriber import TranscriptionModel
from service.app import create_app
from service.settings import Settings
from tests.model.released.tf_writer import released_variables, training_variables, write_checkpoint

HELD = 69  # the note that the calibration makes certain, whatever the network says
READY_S = 100.0


@pytest.mark.parametrize("fourier", [False, True], ids=["waveform", "fourier"])
def test_an_imported_checkpoint_transcribes_a_recording(tmp_path: Path, fourier: bool) -> None:
    network = TranscriptionModel(
        replace(
            RELEASED,
            front_end=StridedConfig(fourier=fourier),
            rse=replace(RELEASED_RSE, maps=4, blocks=1),
        )
    )
    with torch.no_grad():
        network.scale.zero_()
        network.offset.fill_(-6)
        network.offset[HELD] = 6
    prefix, weights = tmp_path / "varWeights.ckpt", tmp_path / "imported.safetensors"
    write_checkpoint(prefix, training_variables(released_variables(network, convolutions=2)))
    assert main([str(prefix), str(weights), *["--fourier"] * fourier]) == 0

    recording = io.BytesIO()
    noise = 0.1 * np.random.default_rng(0).normal(size=22_050)
    soundfile.write(recording, noise, 22_050, format="WAV")
    with TestClient(
        create_app(Settings(model=str(weights), allowed_hosts=("testserver",)))
    ) as client:
        deadline = time.monotonic() + READY_S
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        info = client.get("/info").json()
        answer = client.post(
            "/transcribe",
            files={"file": ("noise.wav", recording.getvalue())},
            params={"answer": "json"},
        ).json()
    assert info["model"] == "imported"
    assert info["card"]["task"] == "musicnet"
    assert [note["pitch"] for note in answer["notes"]] == [HELD]
    assert answer["notes"][0]["onset_s"] == pytest.approx(0, abs=0.05)
    assert answer["notes"][0]["offset_s"] == pytest.approx(1, abs=0.05)
