"""Recordings of the kinds that people bring, made by PyAV."""

import io
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray


def encoded(
    samples: NDArray[np.float32],
    container: str,
    codec: str,
    rate_hz: int,
    video: str = "",
    begin: int = 0,
) -> bytes:
    """The file of samples [n, channels] that sound ``begin`` samples after its beginning, where a
    picture coded by ``video`` may be."""
    layout = {1: "mono", 2: "stereo"}[samples.shape[1]]
    planes = np.ascontiguousarray(samples.T)
    frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout=layout)
    frame.rate, frame.pts = rate_hz, begin
    file = io.BytesIO()
    out: Any  # a stream's type is known by its codec
    with av.open(file, "w", format=container) as out:
        if video:
            pictures = out.add_stream(video, rate=10, width=64, height=64, pix_fmt="yuv420p")
        sound = out.add_stream(codec, rate=rate_hz, layout=layout)
        context = sound.codec_context
        context.bit_rate, context.options = 128_000, {"strict": "experimental"}
        context.open()
        if video:
            picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
            out.mux([*pictures.encode(picture), *pictures.encode(None)])
        convert = av.AudioResampler(
            context.format, layout, rate_hz, frame_size=context.frame_size or 1024
        )
        for piece in [*convert.resample(frame), *convert.resample(None), None]:
            out.mux(sound.encode(piece))
    return file.getvalue()
