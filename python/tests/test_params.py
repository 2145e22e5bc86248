import json
import struct

import numpy
import pytest
from conftest import ROOT, refuses

import stepnet

FILES = ROOT / "tests" / "io" / "files"
KINDS = ["w.safetensors", "w.npz", "w.pb", "w.pbtxt", "w.minidb"]
DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"]


def written(dtype, shape):
    """What the files hold: element i is i % 5 - 2, without its sign or as whether it is even where the type says so."""
    values = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape) % 5 - 2
    if dtype.startswith("uint"):
        values = abs(values)
    return numpy.array(values % 2 == 0 if dtype == "bool" else values, dtype)


@pytest.fixture
def every_dtype():
    params = {dtype: written(dtype, (2, 3)) for dtype in DTYPES}
    params.update(scalar=written("float32", ()), empty=written("float32", (0, 4)))
    return params


def expect_same(found, expected):
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("file", ["every_type.safetensors", "stored.npz"])
def test_files_of_other_programs_are_read(file, every_dtype):
    params = stepnet.load_params(FILES / file)
    every_dtype["lstm/w ü"] = written("float32", (3,))
    if file.endswith(".safetensors"):  # bfloat16 as float32, which has all its values
        every_dtype["bfloat16"] = written("float32", (2, 3))
    expect_same(params, every_dtype)


@pytest.mark.parametrize("file", KINDS)
def test_each_kind_of_file_keeps_every_dtype(file, every_dtype, tmp_path):
    stepnet.save_params(every_dtype, tmp_path / file)
    expect_same(stepnet.load_params(tmp_path / file), every_dtype)


def test_numpy_reads_what_is_written(every_dtype, tmp_path):
    stepnet.save_params(every_dtype, tmp_path / "w.npz")
    with numpy.load(tmp_path / "w.npz") as archive:
        expect_same(dict(archive), every_dtype)


def test_safetensors_read_what_is_written(every_dtype, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    stepnet.save_params(every_dtype, tmp_path / "w.safetensors")
    expect_same(safetensors.load_file(tmp_path / "w.safetensors"), every_dtype)
    safetensors.save_file(every_dtype, tmp_path / "theirs.safetensors")
    assert (tmp_path / "theirs.safetensors").read_bytes() == (tmp_path / "w.safetensors").read_bytes()


def test_float16_is_widened_where_asked(tmp_path):
    halves = numpy.array([1.5, 6e-8, -65504, numpy.inf], "float16")
    stepnet.save_params({"w": halves}, tmp_path / "w.npz")
    expect_same(stepnet.load_params(tmp_path / "w.npz", widen=True), {"w": halves.astype("float32")})


@pytest.mark.parametrize("file", KINDS)
def test_a_cell_has_its_parameters_back(file, lstm, tmp_path):
    params = lstm.init(seed=3)
    x = numpy.ones((4, 2, 5), "float32")
    expected = lstm(params, x=x).h
    stepnet.save_params(params, tmp_path / file)
    assert numpy.array_equal(lstm(stepnet.load_params(tmp_path / file), x=x).h, expected)


def test_a_net_takes_the_same_files(tmp_path):
    folder = ROOT / "examples" / "char_lm"
    params = stepnet.load_params(folder / "init_net.pb")  # a net that fills them
    inputs = {
        "input": numpy.eye(65, dtype="float32")[:7, None],
        "seq_lengths": numpy.array([7], "int32"),
        "hidden_init": numpy.zeros((1, 1, 128), "float32"),
        "cell_init": numpy.zeros((1, 1, 128), "float32"),
    }
    expected = stepnet.load(folder / "net.pb", init=folder / "init_net.pb")(**inputs)
    for file in ("w.safetensors", "w.npz"):
        stepnet.save_params(params, tmp_path / file)
        found = stepnet.load(folder / "net.pb", init=tmp_path / file)(**inputs)
        assert numpy.array_equal(found.probabilities, expected.probabilities)


def test_random_parameters_of_a_net_follow_the_seed(tmp_path):
    (tmp_path / "fill.pbtxt").write_text(
        'op { type: "UniformFill" output: "w" arg { name: "shape" ints: 9 } } external_output: "w"'
    )
    first, again, other = (stepnet.load_params(tmp_path / "fill.pbtxt", seed=seed)["w"] for seed in (1, 1, 2))
    assert numpy.array_equal(first, again)
    assert not numpy.array_equal(first, other)


def test_what_cannot_be_read_or_written_is_an_error(cells, tmp_path):
    with pytest.raises(stepnet.InputOutputError, match='tensor "codes" is "U32", which is not supported'):
        stepnet.load_params(FILES / "other_types.safetensors")
    with pytest.raises(stepnet.InputOutputError, match="No such file"):
        stepnet.load_params(tmp_path / "none.npz")
    with pytest.raises(stepnet.InvalidArgumentError, match=r"lstm\.cell is a cell; stepnet\.cell\(…\)\.init\(\)"):
        stepnet.load_params(cells / "lstm.cell")
    with pytest.raises(stepnet.InvalidArgumentError, match="is it the model"):
        stepnet.load_params(ROOT / "examples" / "char_lm" / "net.pb")
    with pytest.raises(stepnet.TypeMismatchError, match=r'deflated.npz has ".*", string .*, and arrays have no strings'):
        stepnet.load_params(FILES / "deflated.npz")
    with pytest.raises(stepnet.TypeMismatchError, match='the parameter "w" has elements complex64'):
        stepnet.save_params({"w": numpy.zeros(2, "complex64")}, tmp_path / "w.npz")
    with pytest.raises(stepnet.TypeMismatchError, match="a parameter is named 1, which is no text"):
        stepnet.save_params({1: numpy.zeros(2)}, tmp_path / "w.npz")
    with pytest.raises(stepnet.InputOutputError, match="means something else there"):
        stepnet.save_params({"__metadata__": numpy.zeros(2)}, tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []


def field(number, content):
    """A field of a protobuf message that has a length."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def test_the_parameters_of_a_checkpoint(tmp_path):
    """rnn_runner's: with the tensors of the optimizer, the state of the run, a string, and a checksum."""
    w = numpy.arange(6, dtype="float32").reshape(2, 3)
    tensors = {"cell/w": w, "optimizer/cell/w/moment1": w, "optimizer/iteration": numpy.ones(1, "int64"), "crc32c": numpy.ones(1, "int64")}
    stepnet.save_params(tensors, tmp_path / "iteration-7.minidb")
    state = b"\x10\x04" + field(6, b"state")  # TensorProto: data_type STRING, string_data
    value = field(1, b"train_state") + field(2, b"Tensor") + field(3, state)
    key = b"train_state"
    with (tmp_path / "iteration-7.minidb").open("ab") as file:
        file.write(struct.pack("<ii", len(key), len(value)) + key + value)
    params = stepnet.load_params(tmp_path / "iteration-7.minidb")
    assert list(params) == ["cell/w"] and numpy.array_equal(params["cell/w"], w)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_net_takes_a_file_in_16_bits_as_a_cell_does(kind, dtype, random, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    cell = stepnet.cell(ROOT / "examples/cells/lstm.cell", D=3, H=4)
    halves = {name: torch.from_numpy(array).to(getattr(torch, dtype)) for name, array in cell.init(seed=1).items()}
    stepnet.save_params(halves, tmp_path / kind)
    x, h = random.normal(size=(5, 2, 3)).astype("float32"), numpy.zeros((1, 2, 4), "float32")
    net = stepnet.load(stepnet.expand(cell), init=tmp_path / kind)
    assert {array.dtype.name for array in net.params.values()} == {"float32"}
    params = stepnet.load_params(tmp_path / kind, widen=True)
    expect_same(net.params, params)
    starts = {"h_init": h, "c_init": h}
    assert numpy.array_equal(net(x=x, **starts).h, cell(params, x=x, **starts).h)
    _, gradients = net.value_and_grad("h", x=x, **starts)
    assert gradients.params["w"].dtype == "float32"


def test_arrays_of_float16_stay_so_in_a_net(tmp_path):
    w, x = numpy.array([[2]], "float16"), numpy.array([[3]], "float16")
    text = 'op { type: "Mul" input: "x" input: "w" output: "y" }'
    assert stepnet.load(text, init={"w": w})(x=x).y.dtype == "float16"
    stepnet.save_params({"w": w}, tmp_path / "w.npz")
    refuses(lambda: stepnet.load(text, init=tmp_path / "w.npz")(x=x), stepnet.TypeMismatchError, "w is float32 [1, 1]")


def test_a_tensor_of_bfloat16_is_kept_in_safetensors(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    stepnet.save_params({"w": torch.tensor([1.5, -3], dtype=torch.bfloat16)}, tmp_path / "w.safetensors")
    assert b'"dtype":"BF16"' in (tmp_path / "w.safetensors").read_bytes()
    assert stepnet.load_params(tmp_path / "w.safetensors")["w"].tolist() == [1.5, -3]


@pytest.mark.parametrize("name", ["", "a\0", "a\nb", "\ud800", "ü" * 501])
@pytest.mark.parametrize("file", KINDS)
def test_what_is_written_can_be_read(file, name, tmp_path):
    with pytest.raises(stepnet.InputOutputError, match="names are printable and have 1 to 1000 bytes"):
        stepnet.save_params({name: numpy.ones(2, "float32")}, tmp_path / file)
    assert not (tmp_path / file).exists()
    longest = "ü" * 500
    stepnet.save_params({longest: numpy.ones(2, "float32")}, tmp_path / file)
    assert list(stepnet.load_params(tmp_path / file)) == [longest]


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".minidb", ".pb", ".prototxt"])
def test_no_parameters_are_written_where_they_can_be_read(ending, tmp_path):
    path = tmp_path / f"none{ending}"
    if ending in (".safetensors", ".npz"):
        stepnet.save_params({}, path)
        assert stepnet.load_params(path) == {}
    else:
        message = f"there are no tensors, of which {path} would be an empty file, and nothing reads that; .safetensors and .npz can"
        refuses(lambda: stepnet.save_params({}, path), stepnet.InvalidArgumentError, message)
        assert not path.exists()


def test_a_name_that_is_no_text_is_refused_of_what_is_copied_too(tmp_path):
    columns = numpy.ones((3, 2), "float32").T
    with pytest.warns(stepnet.CopyWarning), pytest.raises(stepnet.InputOutputError, match="names are printable"):
        stepnet.save_params({"\ud800": columns}, tmp_path / "a.npz")


def safetensors(path, header, length=None):
    header = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header)
    return path


def test_sizes_that_no_array_has_are_named(tmp_path):
    path = safetensors(tmp_path / "a.safetensors", {"a": {"dtype": "F32", "shape": [0, 2**61], "data_offsets": [0, 0]}})
    with pytest.raises(stepnet.InputOutputError) as caught:
        stepnet.load_params(path)
    assert str(caught.value).startswith(f'input/output error: {path} has "a", float32 [0, {2**61}], without elements')


@pytest.mark.parametrize("length", [2**40, 2**63, 2**64 - 1])
def test_lengths_of_headers_that_lie(length, tmp_path):
    with pytest.raises(stepnet.InputOutputError, match=f"the length of the header is {length} bytes, and the file has 2"):
        stepnet.load_params(safetensors(tmp_path / "a.safetensors", {}, length))


def test_a_file_called_safetensors_that_is_none_is_told_so(lstm, tmp_path):
    stepnet.save_params(lstm.init(), tmp_path / "a.safetensors")
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(b"\1" * 8 + whole[8:])
    with pytest.raises(stepnet.InputOutputError, match=r"a\.safetensors does not hold a NetDef, nor safetensors, which begin"):
        stepnet.load_params(tmp_path / "a.safetensors")


@pytest.mark.parametrize("start", [b" ", b"\n", b"\xef\xbb\xbf"])
def test_headers_of_safetensors_begin_with_a_brace(tmp_path, start):
    header = start + b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(stepnet.InputOutputError, match=f"the header does not begin with a brace\n  in file {path}"):
        stepnet.load_params(path)


@pytest.mark.parametrize("ending", [".pt", ".pth", ".bin"])
def test_names_of_files_of_pytorch_are_refused(ending, lstm, tmp_path):
    path = tmp_path / f"model{ending}"
    with pytest.raises(stepnet.InvalidArgumentError, match="as files of torch.save are called.*it must end in .safetensors"):
        stepnet.save_params(lstm.init(), path)
    assert not path.exists()


@pytest.mark.parametrize("name", ["victim.cell", "code.py", "model.onnx", "weights.h5", "array.npy", "weights"])
def test_names_that_do_not_say_what_is_written_are_refused(name, lstm, tmp_path):
    (tmp_path / name).write_text("something else")
    for path in (tmp_path / name, str(tmp_path / name)):
        with pytest.raises(stepnet.InvalidArgumentError, match="which does not say what to write; it must end in .safetensors"):
            stepnet.save_params(lstm.init(), path)
    assert (tmp_path / name).read_text() == "something else"


def test_parameters_of_a_cell_have_its_dtype(lstm, tmp_path):
    double, params = lstm.with_options(dtype="float64"), lstm.init()
    for dtype, file in (("float16", tmp_path / "half.npz"), ("float32", tmp_path / "float.npz")):
        given = {name: array.astype(dtype) for name, array in params.items()}
        stepnet.save_params(given, file)
        expect_same(stepnet.load_params(file, cell=double, widen=True), {name: a.astype("float64") for name, a in given.items()})
        refuses(
            lambda: stepnet.load_params(file, cell=double),  # noqa: B023
            stepnet.TypeMismatchError,
            f"the parameter 'w' is {dtype} [16, 5]; that of lstm is float64: widen=True makes float64 of it",
        )
    expect_same(stepnet.load_params(tmp_path / "float.npz", cell=lstm), params)
    stepnet.save_params(double.init(), tmp_path / "double.npz")
    refuses(
        lambda: stepnet.load_params(tmp_path / "double.npz", cell=lstm, widen=True),
        stepnet.TypeMismatchError,
        "that of lstm is float32: load it without cell, and call astype('float32')",
    )


@pytest.mark.parametrize("carry", [False, True])
def test_what_states_start_from_is_no_parameter(carry, tmp_path):
    """Nets have it beside the parameters, those of ``rnn_runner train`` included."""
    text = "cell c(x[D]; h[D], s[D, 2]) {\n size D = 3\n param w[D, D]\n state h initial=0.5\n"
    cell = stepnet.cell(text + " h = Tanh(x @ w + h)\n s = s + 1\n output h\n output s\n}", carry=carry)
    params, file = cell.init(), tmp_path / "init.npz"
    starts = {"h_init": numpy.full((1, 1, 3), 0.5, "float32"), "s_init": numpy.zeros((1, 4, 3, 2), "float32")}
    stepnet.save_params({f"cell/{name}": array for name, array in {**params, **starts}.items()}, file)
    if not carry:
        expect_same(stepnet.load_params(file, cell=cell, prefix="cell/"), params)
        for shape in ((5, 1, 3), (3,), (2, 3), (1, 1, 4), (1, 1, 1, 3)):
            stepnet.save_params({**params, "h_init": numpy.full(shape, 0.5, "float32")}, file)
            with pytest.raises(stepnet.InvalidArgumentError, match="'h_init' is an input of c, and not what the cell starts from"):
                stepnet.load_params(file, cell=cell)
        starts["h_init"][0, 0, 1] = 0
        stepnet.save_params({**params, **starts}, file)
    other = "" if carry else ", and not what the cell starts from"
    with pytest.raises(stepnet.InvalidArgumentError, match=f"'h_init' is an input of c{other}: load the file without cell") as raised:
        stepnet.load_params(file, cell=cell, prefix="cell/" if carry else "")
    assert ("s_init" in str(raised.value)) == carry and "no parameter" not in str(raised.value)


GRU_IN_A_MODEL = {
    "layer0/weight_ih": "encoder.gru.weight_ih_l0",
    "layer0/weight_hh": "encoder.gru.weight_hh_l0",
    "layer0/reverse/weight_ih": "encoder.gru.weight_ih_l0_reverse",
    "layer0/reverse/weight_hh": "encoder.gru.weight_hh_l0_reverse",
    "layer1/weight_ih": "encoder.gru.weight_ih_l1",
    "layer1/weight_hh": "encoder.gru.weight_hh_l1",
    "layer1/reverse/weight_ih": "encoder.gru.weight_ih_l1_reverse",
    "layer1/reverse/weight_hh": "encoder.gru.weight_hh_l1_reverse",
}


@pytest.fixture
def model(tmp_path):
    """A cell, the file of a larger model with its parameters by PyTorch's names, and these parameters by the cell's."""
    cell = stepnet.layers("gru", 3, 4, num_layers=2, bias=False, bidirectional=True)
    params = cell.init(seed=1)
    others = {"encoder.norm.weight": numpy.ones(3, "float32"), "readout.weight": numpy.ones((2, 4), "float32")}
    named = {GRU_IN_A_MODEL[name]: array for name, array in params.items()}
    stepnet.save_params({**others, **named}, tmp_path / "model.safetensors")
    return cell, tmp_path / "model.safetensors", params


def test_the_parameters_of_a_cell_are_read_from_the_file_of_a_larger_model(model):
    cell, file, params = model
    expect_same(stepnet.load_params(file, cell=cell, prefix="encoder.gru."), params)
    readout = stepnet.load_params(file, prefix="readout.")
    assert {name: array.shape for name, array in readout.items()} == {"weight": (2, 4)}


def test_parameters_behind_other_prefixes_are_not_read(tmp_path, set_max_memory):
    file = tmp_path / "w.safetensors"
    stepnet.save_params({"a.w": numpy.zeros(20_000, "float32"), "b.w": numpy.zeros(3, "float32")}, file)
    set_max_memory(stepnet.memory().current + 60_000)
    assert list(stepnet.load_params(file, prefix="b.")) == ["w"]
    with pytest.raises(stepnet.OutOfMemoryError):
        stepnet.load_params(file, prefix="a.")


def test_a_cell_says_behind_which_prefix_its_parameters_are(model):
    cell, file, _ = model
    hint = (
        'under other names, "encoder.gru.weight_ih_l0" for "layer0/weight_ih": '
        'stepnet.load_params(PATH, cell=CELL, prefix="encoder.gru.") reads them'
    )
    with pytest.raises(stepnet.InvalidArgumentError) as raised:
        stepnet.load_params(file, cell=cell)
    assert str(raised.value).endswith(hint)
    with pytest.raises(stepnet.InvalidArgumentError) as raised:
        cell(stepnet.load_params(file), x=numpy.zeros((1, 1, 3), "float32"))
    assert str(raised.value).endswith(hint)


def test_parameters_that_are_not_those_of_the_cell_are_refused(model):
    cell, file, _ = model
    one = stepnet.layers("gru", 3, 4, bias=False)
    faults = {
        "encoder.": """encoder.' are not the parameters of gru: all .* "encoder.gru.weight_ih_l0" for .*, prefix="encoder.gru."\\) reads""",
        "readout.": "readout.' are not the parameters of gru: 'layer0/weight_ih' is missing; ",
        "encoder.gr.": r'encoder.gr."; did you mean "encoder.gru."\?; names there begin with encoder.gru., encoder.norm., readout.$',
    }
    for prefix, message in faults.items():
        with pytest.raises(stepnet.InvalidArgumentError, match=message):
            stepnet.load_params(file, cell=cell, prefix=prefix)
    # One of several layers and directions would be something else.
    with pytest.raises(stepnet.InvalidArgumentError, match="gru has no parameter 'weight_hh_l0_reverse'"):
        stepnet.load_params(file, cell=one, prefix="encoder.gru.")
    with pytest.raises(stepnet.TypeMismatchError, match="prefix is 3; it must be a text"):
        stepnet.load_params(file, prefix=3)
    refuses(
        lambda: stepnet.load_params(file, prefix="\udc80"),
        stepnet.InvalidArgumentError,
        r"prefix is '\udc80'; it must be UTF-8",
    )
    with pytest.raises(stepnet.TypeMismatchError, match="cell is 'gru'; stepnet.cell, layers and from_torch make cells"):
        stepnet.load_params(file, cell="gru")


@pytest.mark.parametrize(("end", "is_of_cell"), [(".", True), (".", False), ("/", True), ("/", False)])
def test_a_prefix_without_the_dot_at_its_end_is_refused(lstm, tmp_path, end, is_of_cell):
    file = tmp_path / "w.safetensors"
    stepnet.save_params({**{f"rnn{end}{name}": array for name, array in lstm.init().items()}, "rnn_out": numpy.ones(1)}, file)
    refuses(
        lambda: stepnet.load_params(file, cell=lstm if is_of_cell else None, prefix="rnn"),
        stepnet.InvalidArgumentError,
        f"w.safetensors go on with {end!r} behind 'rnn'; did you mean 'rnn{end}'?",
    )


def test_parameters_of_another_shape_than_the_cell_s_are_refused(model):
    cell = stepnet.layers("gru", 3, 5, num_layers=2, bias=False, bidirectional=True)
    refuses(
        lambda: stepnet.load_params(model[1], cell=cell, prefix="encoder.gru."),
        stepnet.ShapeMismatchError,
        "model.safetensors the parameter 'layer0/weight_ih' is float32 [12, 3]; that of gru is [15, 3]",
    )
