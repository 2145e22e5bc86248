"""The grammar by which editors colour cells: every word of all examples, and a snapshot of everything.cell.

What a word is follows here from the language itself (docs/authoring.md), and not from the grammar. The snapshot,
everything.scopes, was written by the engine of VS Code (vscode-textmate 9, with Oniguruma): a line for each piece of text,
with its scopes but the one of the whole. Who changes the grammar runs that engine, or looks at each line that differs.
"""

import difflib
import json
import re
from pathlib import Path

from textmate import Grammar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GRAMMAR = ROOT / "editors/vscode/syntaxes/cell.tmLanguage.json"
SNAPSHOT = HERE / "everything.scopes"
STATEMENTS = {"cell", "size", "param", "state", "output", "option"}
WORD = re.compile(
    r'(?P<comment>#.*)|(?P<string>"(?:\\.|[^"\\])*")|(?P<name>[A-Za-z_][\w.]*)'
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign>[-+*/@])|(?P<equals>=)|(?P<other>\S)"
)


def tokens(text):
    return Grammar(json.loads(GRAMMAR.read_text())).tokens(text)


def words(text):
    """The words of a text: (line, column, kind, text)."""
    return [
        (number, match.start(), match.lastgroup, match.group())
        for number, line in enumerate(text.splitlines())
        for match in WORD.finditer(line)
    ]


def expected(before, kind, word, after):
    """What the innermost scope of a word begins with; None for those without one of their own."""
    fixed = {
        "comment": "comment.line",
        "string": "string.quoted",
        "number": "constant.numeric",
        "sign": "keyword.operator.arithmetic",
        "equals": "keyword.operator.assignment",
    }
    if kind != "name":
        return fixed.get(kind)
    if after[2] == "name" and before[3] != "last" and word in STATEMENTS:
        return "storage.type"
    if before[3] == "cell":
        return "entity.name.type"
    if after[3] == "(":
        return "entity.name.function.operator"
    if word in ("true", "false", "learned", "given") and before[3] in ("=", ","):
        return "constant.language"
    return None


def check_words(path):
    """Every word has the scope of what it is, and every operator is one of docs/operators.md."""
    operators = set(re.findall(r"^## (\S+)$", (ROOT / "docs/operators.md").read_text(), re.MULTILINE))
    text = path.read_text()
    scopes = {
        (line, column + i): where for line, column, content, where in tokens(text) for i in range(len(content))
    }
    edge = (0, 0, "", "")
    found = [edge, *words(text), edge]
    seen = set()
    for before, (line, column, kind, word), after in zip(found, found[1:], found[2:]):
        want = expected(before, kind, word, after)
        if want is None:
            continue
        seen.add(want)
        for place in (column, column + len(word) - 1):
            got = scopes[line, place]
            assert any(scope.startswith(want) for scope in got[-2:]), (
                f"{path.name}:{line + 1}:{place + 1}: {word!r} is {got}, must be {want}"
            )
        assert not want.startswith("entity.name.function") or word in operators, f"{path.name}: no operator {word!r}"
    missing = {"comment.line", "storage.type", "entity.name.type", "keyword.operator.assignment"} - seen
    assert not missing, f"{path.name} shows nothing of {missing}"


def snapshot():
    text = (HERE / "everything.cell").read_text()
    return [f"{content.strip():24} {' '.join(scopes[1:])}".rstrip() + "\n" for _, _, content, scopes in tokens(text)]


def check_options():
    """All values that options have by name are known."""
    values = re.findall(r"^\s+([A-Z_]+) = \d+;", (ROOT / "proto/cell.proto").read_text(), re.MULTILINE)
    assert {"BIDIRECTIONAL", "HELD"} <= set(values), values
    for value in values:
        *_, (_, _, word, scopes) = tokens(f"option any = {value.lower()}")
        assert scopes[-1].startswith("constant.language"), f"{word!r}, a value of an option, is {scopes}"


def check_extension():
    """The extension is of this version, and what its manifest names is there."""
    folder = ROOT / "editors/vscode"
    manifest = json.loads((folder / "package.json").read_text())
    contributes = manifest["contributes"]
    assert f'STEPNET_VERSION "{manifest["version"]}"' in (ROOT / "core/version.h").read_text()
    scope = json.loads(GRAMMAR.read_text())["scopeName"]
    (language,), (grammar,) = contributes["languages"], contributes["grammars"]
    json.loads((folder / language["configuration"]).read_text())
    assert (folder / grammar["path"]).resolve() == GRAMMAR
    assert grammar["language"] == language["id"] and grammar["scopeName"] == scope == "source.cell"
    assert language["extensions"] == [".cell"]


def main():
    check_extension()
    check_options()
    cells = sorted((ROOT / "examples/cells").glob("*.cell"))
    assert cells, "there are no cells in examples/cells"
    for path in cells:
        check_words(path)
    difference = "".join(difflib.unified_diff(SNAPSHOT.read_text().splitlines(True), snapshot(), "expected", "actual"))
    assert not difference, f"everything.cell is seen in another way:\n{difference}"
    print(f"grammar: {len(cells)} cells and a snapshot are as they should be")


if __name__ == "__main__":
    main()
