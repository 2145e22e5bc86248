import doctest
import importlib.util
import re

import pytest
from conftest import ROOT


@pytest.fixture
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


# The blocks of a page go on from those before. Of the first page, those without PyTorch do without those with it.
@pytest.mark.parametrize("page, num_blocks", [("python.md", 6), ("coming_from_pytorch.md", 6)])
def test_what_the_page_shows_is_so(in_root, page, num_blocks):
    has_torch = importlib.util.find_spec("torch") is not None
    if page == "coming_from_pytorch.md" and not has_torch:
        pytest.skip("PyTorch is not installed")
    text = (ROOT / "docs" / page).read_text()
    blocks = [match for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert len(blocks) >= num_blocks
    parser, names = doctest.DocTestParser(), {}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for match in blocks:
        if "torch" in match[1] and not has_torch:
            continue
        line = text[: match.start(1)].count("\n")
        test = parser.get_doctest(match[1], names, f"{page}:{line + 1}", f"docs/{page}", line)
        test.globs = names
        runner.run(test, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0


def test_docstrings_say_what_there_is():
    import stepnet

    for name in stepnet.__all__:
        thing = getattr(stepnet, name)
        if callable(thing):
            assert thing.__doc__, name
            for member, value in vars(thing).items() if isinstance(thing, type) else ():
                if callable(value) and not member.startswith("_") and not isinstance(value, type):
                    assert value.__doc__, f"{name}.{member}"
