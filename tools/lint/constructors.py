"""Constructors: at most ten parameters, of which at most two are positional."""

from collections.abc import Iterator
from typing import Final

from tools.lint.findings import Finding
from tools.lint.tree import Tree, is_product

PARAMETERS_MAX: Final = 10
POSITIONAL_MAX: Final = 2


def constructors(tree: Tree) -> Iterator[Finding]:
    """Find `__init__` methods of the product with too many parameters, or too many positional ones.

    Fields of a struct or data class do not count, because they describe data.
    """
    for path in filter(is_product, tree.python()):
        for function, owner in tree.functions(path):
            if owner is None or function.name != "__init__":
                continue
            given = function.args
            positional = len(given.posonlyargs) + len(given.args) - 1
            count = positional + len(given.kwonlyargs)
            if count > PARAMETERS_MAX:
                message = (
                    f"{owner.name}() takes {count} parameters, at most {PARAMETERS_MAX}: "
                    "group those that belong together, or split the class"
                )
                yield Finding("constructors", path, function.lineno, owner.name, message)
            if positional > POSITIONAL_MAX:
                message = (
                    f"{owner.name}() takes {positional} positional parameters, at most "
                    f"{POSITIONAL_MAX}: put * after the second, or earlier"
                )
                yield Finding("constructors", path, function.lineno, owner.name, message)
