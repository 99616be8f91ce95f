"""A process that waits for a signal."""

import signal

if __name__ == "__main__":
    signal.pause()
