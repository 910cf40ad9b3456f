"""`python -m service`: start the service and print its address."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from model.validation import format_error
from service.access.keys import KeysError
from service.app import create_app
from service.engine.load import check_device
from service.ops import logs
from service.server import DrainingServer, server_config
from service.settings import Settings


def read_settings(arguments: Sequence[str] | None, prog: str) -> Settings:
    """Return the settings of the environment, overridden by those of the command line. Exit with
    status 2 if a setting is invalid."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s [options]",
        description="Transcribes live audio and recordings to MIDI.",
        epilog="Every other setting is an environment variable; service/SETTINGS.md lists them.",
    )
    parser.add_argument("--host", help="address to listen on (RSE_HOST, else 127.0.0.1)")
    parser.add_argument("--port", help="TCP port to listen on (RSE_PORT, else 8000)")
    parser.add_argument("--model", help="shipped weights by name, or a .safetensors file")
    parser.add_argument("--device", help="auto, cpu, cuda or cuda:N (RSE_DEVICE, else auto)")
    options = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value}
    try:
        return Settings.model_validate(options)
    except ValidationError as error:
        lines = [f"  {format_error(item, str(*item['loc'][:1]))}" for item in error.errors()]
        print("invalid settings (see service/SETTINGS.md):", *lines, sep="\n", file=sys.stderr)
        raise SystemExit(2) from None


def address_to_open(host: str, port: int) -> str:
    """Return the URL of the page for a browser on this machine. A wildcard host is replaced by the
    loopback address, where browsers allow the microphone without HTTPS."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def main(arguments: Sequence[str] | None = None, prog: str = "python -m service") -> int:
    """Run the service until a signal or a load error stops it. Return the exit status."""
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server starts and handles it
    settings = read_settings(arguments, prog)
    if settings.model != "live":  # the default needs no check
        from model import storage  # imports torch, which takes a second

        try:
            storage.read_card(storage.resolve(settings.model))
        except storage.WeightsError as error:
            print(f"invalid model: {error}", file=sys.stderr)
            return 2
    if settings.device not in ("auto", "cpu"):
        try:
            check_device(settings.device)
        except ValueError as error:
            print(f"invalid device: {error}", file=sys.stderr)
            return 2
    logs.configure(settings.log_format)
    try:
        app = create_app(settings)
    except KeysError as error:
        print(f"invalid API keys or token secret: {error}", file=sys.stderr)
        return 2
    server = DrainingServer(server_config(app, settings), app.state.service)
    address = address_to_open(settings.host, settings.port)
    print(f"rse-transcribe: open {address} (Ctrl+C to stop)", flush=True)
    try:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve())
    except SystemExit as end:  # uvicorn has logged the reason, such as a port in use
        return end.code if isinstance(end.code, int) else 1
    return 1 if app.state.service.load_error else 0


if __name__ == "__main__":
    sys.exit(main())
