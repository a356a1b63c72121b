"""One module a command: `configure(parser)`, `run(args) -> exit status`, `EXAMPLE`."""
