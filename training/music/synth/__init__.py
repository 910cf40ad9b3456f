"""Training audio rendered from recorded notes and scores, from any folder of this form::

    bank_index.json   {"sample_rate": Hz, "instruments": {NAME: {"family", "instrument",
                      "kind": "decaying" or "sustained", "licence", "attribution", "file",
                      "notes": [{"midi", "cents", "velocity", "layer", "start", "length",
                      "onset_ms", "orig_peak_db", "loop": [begin, end] or null}, ...]}, ...}}
    bank/...          a sound file for each instrument at that rate, its notes one after another;
                      start, length and loop count samples of it
    midi_index.json   {"pieces": [{"id", "file", "source", "licence", "ensemble", "expressive",
                      "split": "train", "validation" or "test"}, ...]}
    midi_open.zip     the scores and performances, Standard MIDI Files by the name in "file"

"midi" and "cents" are what a note sounds like, "velocity" how hard it was played (1 to 127),
"layer" which of the instrument's dynamics it belongs to, "onset_ms" where in it the sound begins.
"expressive" tells a performance from a plain score. No SoundFont is needed.
"""
