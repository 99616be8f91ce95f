"""Ways out of the process: the Prometheus page and the terminal view."""
