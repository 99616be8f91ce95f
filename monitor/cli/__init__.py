"""The command `vla-monitor`: one file per subcommand, and beside them what they show.

A subcommand's file holds its options and its text. Of logic there is what no other package needs: the checks of `doctor` and the contract check of
`metrics --check`. Verdicts and numbers come from the packages below.
"""
