"""The command `vla-monitor`: one file per subcommand, no logic."""
