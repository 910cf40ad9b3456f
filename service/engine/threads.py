"""Threads that compute with torch."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

_setting = threading.Lock()


def prepare_thread() -> None:
    """For a thread that computes: a single core, and tiny numbers rounded to zero. Audio that fades
    out below 1e-38 would make the front-end fifty times slower, since x86 handles denormal numbers
    in microcode."""
    torch.set_flush_denormal(True)  # of this thread
    torch.get_num_threads()  # takes the default now; later it would replace the count
    with _setting, ThreadPoolExecutor(1) as another:
        # Torch sets the default of threads to come as well, which belongs to the caller's program.
        usual = another.submit(torch.get_num_threads).result()
        torch.set_num_threads(1)
        another.submit(torch.set_num_threads, usual).result()
