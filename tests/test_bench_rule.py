"""The bench's loop gives the answers of the vectorised rule, so that the two may be compared."""

from aces.bench_rule import measure_rule


def test_loop_and_rule_agree():
    found = measure_rule(1)
    assert found["agree"] is True
    assert (found["images"], found["thetas"], found["classes"]) == (500, 1001, 10)
    assert found["seconds"] > 0 and found["ratio"] == found["loop_seconds"] / found["seconds"]
