"""The one exception that means "the user can mend this", and the exit codes every command keeps."""

DONE = 0
FAULT = 1  # of ours or of the machine: traceback on the terminal, in train.log and in result.json
MISTAKE = 2  # the user's: one short message, no traceback
FINDINGS = 3  # a verdict of "different", a finding, a rejected certificate
WAITING = 75  # stopped on purpose, waiting to be resumed
INTERRUPTED = 130  # SIGINT
TERMINATED = 143  # SIGTERM


class UserError(Exception):
    """A mistake of the user; the message is one or two lines that name the key or file at fault and say what to do."""
