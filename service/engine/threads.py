"""Threads that compute with torch."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

_setting = threading.Lock()


def prepare_thread(threads: int = 1) -> None:
    """For a thread that computes: its share of cores, and tiny numbers rounded to zero.

    Audio that fades out below 1e-38 would make the front-end fifty times slower, since x86 handles
    denormal numbers in microcode.
    """
    torch.set_flush_denormal(True)  # of this thread
    set_own_threads(threads)


def set_own_threads(count: int) -> None:
    """``torch.set_num_threads`` for the calling thread alone.

    Torch's own also sets the default of threads to come, which belongs to the caller's program;
    another thread sets that back.
    """
    torch.get_num_threads()  # takes the default now; later it would replace the count
    with _setting, ThreadPoolExecutor(1) as another:
        usual = another.submit(torch.get_num_threads).result()
        torch.set_num_threads(count)
        another.submit(torch.set_num_threads, usual).result()
