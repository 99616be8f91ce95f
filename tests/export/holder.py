"""Child process of the port tests: serves a page until it is stopped. Arguments: port, robot. Prints one line: state and port."""

from __future__ import annotations

import sys

from monitor.config import ExportConfig
from monitor.export.prometheus import Exporter

exporter = Exporter(ExportConfig(port=int(sys.argv[1]), robot=sys.argv[2]), (), "bundled")
exporter.start()
sys.stdout.write(f"{exporter.status().state} {exporter.port or 0}\n")
sys.stdout.flush()
sys.stdin.read()
exporter.close()
