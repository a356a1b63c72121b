"""The paper, number by number, from the official release (github.com/eth-sri/ACES).

`release` reads its logs and tables, `analysis` applies the rule to them and compares, `tables` and
`figures` show.
"""
