import doctest
import importlib.util
import inspect
import re

import pytest
from conftest import COMPILER, ROOT


# The pages, and what they need. In the first one, other blocks do without those that need PyTorch or a compiler.
NEEDED_BY = {
    "docs/python.md": [],
    "docs/coming_from_pytorch.md": ["torch"],
    "docs/coming_from_mxnet.md": [],
    "docs/onnx.md": ["onnx", "onnxruntime"],
    "docs/training.md": [],
    "examples/models/adding/README.md": [],
    "examples/models/capitals/README.md": [],
}


@pytest.mark.parametrize("page", NEEDED_BY)
def test_what_a_page_shows_is_so(page, tmp_path, monkeypatch, request):
    for module in NEEDED_BY[page]:
        pytest.importorskip(module)
    has_torch = importlib.util.find_spec("torch") is not None
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    if COMPILER is not None and "acme_operators.so" in text:
        build_operators = request.getfixturevalue("build_operators")
        library = build_operators(ROOT / "examples" / "custom_operator" / "clip.cc")
        (tmp_path / "acme_operators.so").symlink_to(library)
    blocks = [match for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert blocks
    parser, names = doctest.DocTestParser(), {}
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for match in blocks:
        if ("torch" in match[1] and not has_torch) or ("acme" in match[1] and COMPILER is None):
            continue
        line = text[: match.start(1)].count("\n")
        test = parser.get_doctest(match[1], names, f"{page}:{line + 1}", page, line)
        test.globs = names  # blocks go on from those before
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


HAVE_SHAPES = re.compile(r"\b(Array|Given|ndarray|Outputs|Gradients|Into|Filler|Cell|Net|TrainingNet|Module|Pullback|Tensor)\b")


def test_docstrings_have_shapes_where_there_are_arrays():
    """Of a class somewhere in it, as its methods are about the same arrays."""
    import stepnet

    modules = [stepnet, stepnet.packed]
    modules += [importlib.import_module(f"stepnet.{name}") for name in ("torch", "onnx") if importlib.util.find_spec(name)]
    names = [(each, name) for each in modules for name in getattr(each, "__all__", vars(each)) if not name.startswith("_")]
    asked = []
    for module, name in names:
        public = getattr(module, name)
        if not hasattr(module, "__all__") and getattr(public, "__module__", None) != module.__name__:
            continue  # it is imported there
        members = vars(public).values() if isinstance(public, type) else [public]
        functions = [each for each in (getattr(each, "fget", each) for each in members) if inspect.isfunction(each)]
        if any(HAVE_SHAPES.search(str(hint)) for each in functions for hint in each.__annotations__.values()):
            asked.append(name)
            docs = " ".join(each.__doc__ or "" for each in (public, *functions))
            assert re.search(r"``\[[^\]`]+\]``", docs), name
    assert {"Cell", "Net", "Pullback", "cell", "load", "load_params", "train_net", "to_torch", "from_torch"} <= {*asked}
