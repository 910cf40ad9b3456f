"""Encoder of test recordings in many containers and codecs, with PyAV."""

import io
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray


def encode_file(
    samples: NDArray[np.float32],
    container: str,
    codec: str,
    rate_hz: int,
    video: str = "",
    start_sample: int = 0,
) -> bytes:
    """Return a file whose audio, samples [n, channels], starts at ``start_sample``. If ``video``
    names a codec, the file starts with one picture of that codec."""
    layout = {1: "mono", 2: "stereo"}[samples.shape[1]]
    planes = np.ascontiguousarray(samples.T)
    frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout=layout)
    frame.rate, frame.pts = rate_hz, start_sample
    file = io.BytesIO()
    out: Any  # the type of a stream depends on its codec
    with av.open(file, "w", format=container) as out:
        if video:
            pictures = out.add_stream(video, rate=10, width=64, height=64, pix_fmt="yuv420p")
        audio = out.add_stream(codec, rate=rate_hz, layout=layout)
        context = audio.codec_context
        context.bit_rate, context.options = 128_000, {"strict": "experimental"}
        context.open()
        if video:
            picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
            out.mux([*pictures.encode(picture), *pictures.encode(None)])
        convert = av.AudioResampler(
            context.format, layout, rate_hz, frame_size=context.frame_size or 1024
        )
        for chunk in [*convert.resample(frame), *convert.resample(None), None]:
            out.mux(audio.encode(chunk))
    return file.getvalue()
