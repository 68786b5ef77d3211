from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from holoshard.shards.errors import ConfigError, UsageError
from holoshard.train.config import TrainConfig, value_of
from holoshard.train.configfile import dotted_keys, dump_config, load_config, parse_config
from holoshard.train.model.transformer import parameter_count

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_shipped_configurations_are_valid(path):
    assert load_config(path) != TrainConfig()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("sample", 99_733), ("real", 29_525), ("100m", 101_795_821), ("1b", 1_024_482_609),
        ("12.8b", 12_796_706_521),
    ],
)  # fmt: skip
def test_parameters_of_the_configurations(name, parameters):
    config = load_config(CONFIGS[0].parent / f"{name}.toml")
    assert parameter_count(config.model) == parameters  # on the meta device: nothing is allocated


def test_an_empty_file_is_the_defaults():
    assert parse_config("", "x.toml") == TrainConfig()


def test_tables_and_overrides():
    text = "seed = 3\n[data]\nbatch_size = 8\n[optimizer]\nlr = 1\n[loss.kind_weights]\nIC50 = 0.5\n"
    tokens = ["--data.batch_size", "16", "--data.path=here", "--model.uncertainty", "--data.shuffle", "false"]
    config = parse_config(text, "x.toml", [*tokens, "--optimizer.lr", "3e-4", "--seed", "4"])
    assert (config.seed, config.data.batch_size, config.data.path) == (4, 16, "here")
    assert (config.optimizer.lr, config.model.uncertainty, config.data.shuffle) == (3e-4, True, False)
    assert config.loss.kind_weights == {"IC50": 0.5}
    assert isinstance(parse_config(text, "x.toml").optimizer.lr, float)


def test_dashes_stand_for_underscores_on_the_command_line():
    assert parse_config("", "x", ["--data.batch-size", "4"]).data.batch_size == 4


def test_dumped_and_read_back():
    config = parse_config('[data]\npath = "a \\"b\\" ü"\n[loss]\nkind_weights = {Ki = 2.0}\n', "x.toml")
    assert parse_config(dump_config(config), "y.toml") == config
    assert len(dotted_keys()) == dump_config(config).count(" = ") - 1  # {Ki = 2.0} has one of its own


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("[model]\nwidht = 3", [], "x.toml: unknown key model.widht; did you mean model.width?"),
        ("[data]\nlr = 3.0", [], "x.toml: unknown key data.lr; did you mean optimizer.lr?"),
        ("[modle]\nwidth = 3", [], "x.toml: unknown key modle; expected one of"),
        ("width = 3", [], "x.toml: unknown key width; did you mean model.width?"),
        ("[model]\nwidth = 3.5", [], "x.toml: model.width = 3.5, expected a whole number"),
        ('[model]\nwidth = "3"', [], "x.toml: model.width = '3', expected a whole number"),
        ("[model]\nwidth = true", [], "x.toml: model.width = True, expected a whole number"),
        ("[model]\nuncertainty = 1", [], "x.toml: model.uncertainty = 1, expected true or false"),
        ('[optimizer]\nlr = "fast"', [], "x.toml: optimizer.lr = 'fast', expected a number"),
        ("[data]\npath = 3", [], "x.toml: data.path = 3, expected a text in quotes"),
        ('[data]\ninputs = "protein"', [], 'expected one of "complex", "ligand", "pocket"'),
        ("model = 3", [], "x.toml: model = 3, expected a table [model]"),
        ("[model", [], "x.toml: not TOML"),
        ("", ["--model.width", "wide"], "command line: --model.width = 'wide', expected a whole number"),
        ("", ["--model.widht", "3"], "command line: unknown option --model.widht; did you mean model.width?"),
        ("", ["--model", "3"], "command line: --model is a table, expected one of its keys"),
        ("", ["model.width", "3"], "command line: 'model.width', expected --table.key VALUE"),
        ("", ["--seed.x", "3"], "command line: unknown option --seed.x"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text, tokens, expected):
    with pytest.raises(ConfigError) as error:
        parse_config(text, "x.toml", tokens)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[model]\nwidth = 30", "model.heads = 4, expected a divisor of model.width = 30"),
        ("[data]\nbatch_size = 0", "data.batch_size = 0, expected at least 1"),
        ("[model]\ndropout = 1.5", "model.dropout = 1.5, expected a number from 0 to 0.99"),
        ("[optimizer]\nlr = 0.0", "optimizer.lr = 0.0, expected more than 0"),
        ("[optimizer]\nlr = nan", "optimizer.lr = nan, expected more than 0"),
        ("[optimizer]\nlr = inf", "optimizer.lr = inf, expected more than 0, at most 1"),
        ("[optimizer]\nlr = 1e9", "optimizer.lr = 1000000000.0, expected more than 0, at most 1"),
        ("[optimizer]\nclip = inf", "optimizer.clip = inf, expected a number from 0 to 1e+30"),
        ("[data]\nnoise = nan", "data.noise = nan, expected a number from 0 to 100"),
        ("[run]\nhang_seconds = inf", "run.hang_seconds = inf, expected a number from 0 to 1e+09"),
        ("[loss.kind_weights]\nKd = inf", "loss.kind_weights.Kd = inf, expected 0 to 1e6"),
        ("[data]\nnoise = -0.1", "data.noise = -0.1, expected a number from 0 to 100"),
        ("[parallel]\ntensor = 3", "parallel.tensor = 3, expected a divisor of model.heads = 4"),
        ("[parallel]\npipeline = 9", "parallel.pipeline = 9, expected at most model.layers = 4"),
        ('[parallel]\nreshard = "part"', "parallel.reshard_size = 0, expected the processes"),
        ("[parallel]\ncheckpoint_every = 3", "parallel.checkpoint_every = 3.0, expected 2.0, or"),
        ("[parallel]\ncheckpoint_every = 0.5", "parallel.checkpoint_every = 0.5, expected a number from 1"),
        ("[parallel]\ncheckpoint_every = '2/3'", "parallel.checkpoint_every = '2/3', expected a number"),
        ('[precision]\nreduce = "bf16"', "precision.reduce = 'bf16', expected \"fp32\" with"),
        ("[parallel]\nschedule = 'gpipe'", "parallel.schedule = 'gpipe', expected \"1f1b\" without"),
        ("[parallel]\nreshard_size = 2", "parallel.reshard_size = 2, expected 0"),
        ("[precision]\nwhole_model = true", "precision.whole_model = True, expected false, or"),
        ("[run]\nepochs = 0", "run.epochs = 0, expected at least 1 where run.steps = 0"),
        ("[loss]\nkind_weights = {Kx = 1.0}", "loss.kind_weights.Kx: no such kind"),
        ("[loss]\nkind_weights = {Ki = -1.0}", "loss.kind_weights.Ki = -1.0, expected 0 to 1e6"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(text, expected):
    with pytest.raises(ConfigError) as error:
        parse_config(text, "x.toml")
    assert str(error.value).startswith("x.toml")
    assert expected in str(error.value)


def test_every_whole_number_has_a_limit():
    for key in dotted_keys():
        if type(value_of(TrainConfig(), key)) is int:
            with pytest.raises(ConfigError, match=rf"{key} = 9{{20}}, expected .*\d") as error:
                parse_config("", "x.toml", [f"--{key}", "9" * 20])
            assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"threads = 1000000, expected 0 or more, at most 1024"):
        parse_config("", "x.toml", ["--run.threads", "1000000"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xfe\x00\x80", "not a text"),
        (b"[optimizer]\nlr = 0x1" + b"0" * 400, "optimizer.lr is a number of 1601 bits"),
        (b"[loss.kind_weights]\nKd = 1" + b"0" * 400, "kind_weights.Kd is a number of"),
        (b"seed = 1" + b"0" * 5000, "not TOML"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "nested too deeply|not TOML"),
    ],
    ids=["binary", "hexadecimal", "overflow", "digits", "nested"],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path, content, expected):
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=expected) as error:
        load_config(path)
    assert str(error.value).startswith(str(path))


def test_no_such_file(tmp_path):
    with pytest.raises(UsageError, match="no configuration"):
        load_config(tmp_path / "none.toml")


def test_every_key_has_a_line_that_says_what_it_is():
    import ast
    import inspect

    import holoshard.train.config as module

    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef) and node.name != "TrainConfig":
            body = [n for n in node.body if not isinstance(n, ast.FunctionDef)][1:]
            for field, text in zip(body[::2], body[1::2], strict=True):
                assert isinstance(field, ast.AnnAssign), node.name
                assert isinstance(text.value.value, str), field.target.id


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().seed = 1
