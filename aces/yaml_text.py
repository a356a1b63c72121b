"""YAML that users and strangers write, read with a check."""

from typing import Any

import yaml

from aces.errors import InputError

# Of a YAML file, with all that its references repeat: the names of 20,000 classes are far fewer.
MOST_VALUES = 1_000_000
DEEPEST = 20
MOST_BITS = 4096  # of a whole number: Python refuses to print much longer ones


def parse_yaml(text: str) -> Any:
    """The plain values in a YAML text; InputError of one line for everything else."""
    try:
        tree = yaml.load(text, Loader=_Loader)
    except InputError:
        raise
    except Exception as error:  # PyYAML raises nearly every kind
        raise InputError(f"not YAML: {' '.join(str(error).split())[:200]}") from None
    _check_values(tree)
    return tree


class _Loader(yaml.SafeLoader):
    """YAML without what is easily misread: PyYAML would silently drop the first of two equal keys,
    and merge a few lines of `<<` into billions of keys.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            line = key.start_mark.line + 1
            if key.tag == "tag:yaml.org,2002:merge":
                raise InputError(f"line {line}: `<<` is not supported: write the keys out")
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise InputError(
                        f"line {line}: the key {key.value!r} is there twice: remove one"
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _check_values(tree: object) -> None:
    """Refuse what is nested too deeply, grows without end through YAML's references, or holds a
    number that cannot even be printed.
    """
    waiting, seen = [(tree, 0)], 0
    while waiting:
        node, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST:
            raise InputError(f"nested more than {DEEPEST} levels deep: expected sections of keys")
        if seen > MOST_VALUES:
            raise InputError(
                f"more than {MOST_VALUES:,} values: remove references that repeat them"
            )
        if isinstance(node, int) and node.bit_length() > MOST_BITS:
            raise InputError(f"a number of {node.bit_length():,} bits: expected a smaller one")
        if isinstance(node, dict):
            node = [*node, *node.values()]
        if isinstance(node, (list, tuple, set)):
            waiting += [(child, depth + 1) for child in node]
