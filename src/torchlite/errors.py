"""The one exception that means "the user can mend this", and the exit codes every command keeps."""

import sys

DONE = 0
# Of ours or of the machine: traceback in train.log, in result.json and, unless a MachineError, on the terminal
FAULT = 1
MISTAKE = 2  # the user's: one short message, no traceback
FINDINGS = 3  # a verdict of "different", a finding, a rejected certificate
WAITING = 75  # stopped on purpose, waiting to be resumed
INTERRUPTED = 130  # SIGINT
TERMINATED = 143  # SIGTERM


class MachineError(RuntimeError):
    """The machine failed; the message says how and what may help. The traceback goes to the log, not to the terminal."""


class UserError(Exception):
    """A mistake of the user; the message is one or two lines that name the key or file at fault and say what to do."""


def printable(text: object, keep: str = "") -> str:
    """The text with whatever could steer a terminal, turn the direction of writing or begin a line spelled out, as `\\x1b`.

    Args:
        keep: characters to leave as they are all the same: "\\n\\t" for text of several lines.
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in str(text))


def refuse(message: object) -> int:
    """Print what the user has to mend; the exit code for it."""
    print(printable(message, keep="\n\t"), file=sys.stderr)
    return MISTAKE
