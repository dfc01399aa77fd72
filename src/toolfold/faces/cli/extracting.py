"""`toolfold extract FILE REQUEST`: what `tool_output` does, on a local file or on what is piped in."""

import argparse
import sys
from pathlib import Path

from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import settings_of
from toolfold.gateway.extracting import extract_file

EXTRACTION_FAILED = 1


def extract(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the answer. The exit code says whether the extraction failed."""
    document = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file)
    found = extract_file(
        settings_of(arguments, require_servers=False), document, " ".join(arguments.request), arguments.mode
    )
    if output.as_json:
        output.data(found)
    else:
        output.line(found["text"])
    return EXTRACTION_FAILED if found["failed"] else 0
