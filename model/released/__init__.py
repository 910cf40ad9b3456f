"""Reading the checkpoints of the authors' released TensorFlow code without TensorFlow.

Used by `model.import_tf`; no network runs here.
"""
