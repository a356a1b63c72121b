"""One module per command, with `configure(parser)`, `run(args) -> exit status` and `EXAMPLE`."""
