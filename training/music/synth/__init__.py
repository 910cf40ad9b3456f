"""Renders training audio from recorded notes and scores. The data folder has these files::

    bank_index.json   {"sample_rate": Hz, "instruments": {NAME: {"family", "instrument",
                      "kind": "decaying" or "sustained", "licence", "attribution", "file",
                      "notes": [{"midi", "cents", "velocity", "layer", "start", "length",
                      "onset_ms", "orig_peak_db", "loop": [begin, end] or null}, ...]}, ...}}
    bank/...          for each instrument, a sound file at this rate with one note after another;
                      "start", "length" and "loop" are in samples of this file
    midi_index.json   {"pieces": [{"id", "file", "source", "licence", "ensemble", "expressive",
                      "split": "train", "validation" or "test"}, ...]}
    midi_open.zip     the scores and performances as Standard MIDI Files, named as in "file"
    midi_perf_index.json, midi_perf.zip, scores_hauptstimme_index.json, scores_hauptstimme.zip
                      more scores and performances in the same form
    rooms.json        {"sample_rate": Hz, "rooms": [{"name", "file", "kind", "t60_s",
                      "direct_sample", "licence", "attribution", ...}, ...]}
    noise.json        {"sample_rate": Hz, "segments": [{"file", "kind", "name", "start", "length",
                      "speech": true if it has speech, "gm_key": General MIDI key of a drum hit,
                      "licence", "attribution", ...}, ...]}
    releases/         releases.json {"sets": {NAME: {"file", "notes": [{"key": MIDI pitch or null,
                      "kind": "release", "pedal_down" or "pedal_up", "start", "length"}, ...],
                      ...}}} and the sound files: noises of a piano's keys and pedal
    voices/           see ``training.music.synth.voices``
    phrases.json      see ``training.music.real``

The bank, ``midi_index.json`` and ``midi_open.zip`` are required, and the others are optional. All
stated rates must be ``model.config.SAMPLE_RATE``. A note's "midi" and "cents" are its sounding
pitch, "velocity" (1 to 127) is its loudness, "layer" is its dynamic layer, and "onset_ms" is the
time from the start of its recording to its onset. "expressive" is true for performances.
"""
