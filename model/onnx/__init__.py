"""The network for other runtimes: its graphs, their export and quantisation.

Used by `model.export_onnx`; `model.onnx.export` needs the extra `onnx`.
"""
