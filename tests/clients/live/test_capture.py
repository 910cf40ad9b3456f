"""Input devices: listed, and complained of clearly; test_microphone.py hears a channel of one."""

import importlib
import sys
from types import ModuleType
from typing import cast

import pytest

from clients.live.capture import DeviceError, Microphone, input_devices, load_sounddevice
from tests.clients.fakes.fake_devices import FakeSounddevice
from tests.conftest import require_system


def as_module(fake: FakeSounddevice) -> ModuleType:
    return cast(ModuleType, fake)


def test_input_devices_are_listed_with_the_default_marked() -> None:
    assert input_devices(as_module(FakeSounddevice())) == ["*  1  Piano Mic  (2 in, 16000 Hz)"]


@pytest.mark.parametrize(("device", "channel"), [("harp", 1), (7, 1), ("piano", 3)])
def test_what_is_not_there_is_named(device: int | str, channel: int) -> None:
    with pytest.raises(DeviceError, match=r"harp|7|2 input channels"):
        Microphone(as_module(FakeSounddevice()), device, channel)


async def test_a_device_in_use_is_reported() -> None:
    microphone = Microphone(as_module(FakeSounddevice(opens=False)), None, None)
    with pytest.raises(DeviceError, match="Device unavailable"):
        microphone.open(lambda pcm: None, lambda: None)


@pytest.mark.parametrize(
    ("error", "advice"), [(ImportError(), "pip install"), (OSError(), "apt-get install")]
)
def test_missing_libraries_say_what_to_install(
    error: Exception, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> ModuleType:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(DeviceError, match=advice):
        load_sounddevice()


def test_the_real_library_lists_devices() -> None:
    require_system("libportaudio")
    assert isinstance(input_devices(load_sounddevice()), list)
    assert "sounddevice" in sys.modules
