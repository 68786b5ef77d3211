"""Everything a training run can be told: one frozen dataclass a table of the TOML file.

Values that contradict each other are refused here, before anything starts; see :func:`check`. Reading
files and command lines is :mod:`.configfile`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from ..cache.errors import CacheError
from ..cache.tier import parse_size
from ..cache.tiered import parse_tier
from ..shards.complex import KINDS
from ..shards.errors import ConfigError
from .combinations import check_pipeline
from .compress.settings import CompressionConfig, check_compression
from .limits import check_limits
from .model.sharing import group_sizes
from .prune.settings import SparsityConfig, check_sparsity

Inputs = Literal["complex", "ligand", "pocket"]


@dataclass(frozen=True, slots=True)
class DataConfig:
    """What is read, and what of it the model sees."""

    path: str = "data/shards"
    """Data set folder, or one shard file."""
    batch_size: int = 32
    """Complexes in a global batch: of all processes together."""
    max_atoms: int = 256
    """Most atoms of a complex: the pocket's nearest the ligand are kept, the ligand always; 0 for all."""
    inputs: Inputs = "complex"
    """complex, or an ablation: ligand hides the pocket, pocket hides the ligand."""
    packed: bool = False
    """Compute a batch without padding, its complexes in a row; with CUDA by FlexAttention."""
    noise: float = 0.0
    """Standard deviation of the noise on training positions, angstrom."""
    shuffle: Literal["global", "local", True, False] = True
    """global or true: deal the complexes anew each epoch; local: a node keeps its blocks, so that its cache
    hits; false: in the order of the data set."""
    sample_column: str = ""
    """Name in text["columns"] of a weight by which complexes are drawn, several times or never; empty for
    each once an epoch."""
    train_split: str = "train"
    """Split to learn from."""
    valid_split: str = "valid"
    """Split that chooses the best step; a data set without it uses the last step."""
    target_column: str = "target"
    """Name in text["columns"] of the protein target."""
    cluster_column: str = "cluster"
    """Name in text["columns"] of the cluster that intervals resample."""

    def __post_init__(self) -> None:
        if self.shuffle == "global":
            object.__setattr__(self, "shuffle", True)


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """What stands between the data set's file system and the training stream."""

    tiers: tuple[str, ...] = ()
    """Fastest first, such as ["memory:2GiB", "shared:16GiB", "/local/nvme:256GiB"]: of a process, of a node's
    memory, of a node's disk."""
    decoded: str = ""
    """A tier for decoded blocks, such as "memory:4GiB" or "shared:32GiB": a warm epoch unpacks nothing."""
    policy: Literal["auto", "never", "lru", "clairvoyant"] = "auto"
    """Who leaves a full tier; auto: never for uniform epochs, clairvoyant for weighted sampling, and for data
    larger than the tiers with shuffle = "local"."""
    whole: bool = False
    """Read whole shards into the tiers in the background of a cold start, in large reads."""
    prefetch: str = "0"
    """Memory of a process for reading ahead along the known order, such as "256MiB"; "0" for none."""
    readers: int = 8
    """Threads that read ahead."""
    read_only: bool = False
    """Use what the folders of the tiers hold, write nothing to them."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Size and shape of the transformer."""

    width: int = 128
    """Channels of a token."""
    layers: int = 4
    """Attention layers."""
    heads: int = 4
    """Attention heads; each has width / heads channels."""
    layer_heads: tuple[int, ...] = ()
    """Heads that each layer has left, as `holoshard prune` writes them; empty for `heads` in every layer."""
    hidden: int = 0
    """Channels inside the feed-forward part; 0 for 4 * width."""
    share_ffn_out: str = "none"
    """Layers with one second feed-forward linear in common: none, all, pairs, or sizes as "18x2, 4x1"."""
    rbf: int = 32
    """Radial basis functions of a distance, evenly from 0 to cutoff."""
    cutoff: float = 10.0
    """Distance beyond which two atoms have no distance bias, angstrom."""
    dropout: float = 0.0
    """Share of channels dropped after attention and feed-forward while training."""
    uncertainty: bool = False
    """Predict a standard deviation too; the loss becomes the Gaussian likelihood."""
    kind_offsets: bool = False
    """Learn one offset for each kind of measurement (Kd, Ki, IC50, ...)."""

    @property
    def feed_forward(self) -> int:
        """Channels inside the feed-forward part."""
        return self.hidden or 4 * self.width

    @property
    def attention_heads(self) -> tuple[int, ...]:
        """Heads of each layer."""
        return self.layer_heads or (self.heads,) * self.layers


@dataclass(frozen=True, slots=True)
class LossConfig:
    """How a prediction is compared with its label."""

    kind: Literal["huber", "mse"] = "huber"
    """huber is linear beyond delta."""
    delta: float = 1.0
    """Where Huber becomes linear, pK units."""
    censored: bool = True
    """Learn from labels that are only a bound (Kd > 10 uM), from the wrong side alone."""
    kind_weights: dict[str, float] = field(default_factory=dict)
    """Weight of a kind of measurement, such as {IC50 = 0.5}; kinds not named weigh 1."""
    weight_column: str = ""
    """Name in text["columns"] of a weight for each complex; empty for none."""


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW with warm-up and cosine decay."""

    kind: Literal["adamw", "onebit-adam"] = "adamw"
    """onebit-adam packs its momentum between replicas, see [compression]."""
    lr: float = 1e-3
    """Learning rate after warm-up."""
    min_lr: float = 0.02
    """Learning rate of the last step, as a share of lr."""
    warmup: float = 0.05
    """Share of the steps in which the learning rate rises from 0."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.98
    """Decay of the second moment."""
    weight_decay: float = 0.01
    """Decay of matrices; never of biases, norms and embeddings."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """How many processes do what. replicate * shard * tensor * pipeline is the number of processes."""

    replicate: int = 1
    """Groups of processes that each hold the whole model (hybrid sharding)."""
    shard: int = 0
    """Processes that share one copy of the model; 0 for all that remain."""
    tensor: int = 1
    """Processes that share each matrix."""
    pipeline: int = 1
    """Processes that each hold some of the layers."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "interleaved-zb", "zbv"] = "1f1b"
    """Order of work in a pipeline; the last two are zero-bubble: weights' gradients fill the waiting."""
    stages: int = 0
    """Stages that each process of a pipeline holds; 0 for 1, or 2 where the schedule needs several."""
    micro_batches: int = 0
    """Parts in which a piece passes through a pipeline; 0 for as many as it has processes."""
    reshard: Literal["full", "grad_op", "part"] = "full"
    """After forward: full frees gathered weights, grad_op keeps them, part keeps 1/reshard_size of them."""
    reshard_size: int = 0
    """Processes that keep a gathered copy together when reshard = "part"."""
    topology: str = ""
    """Where processes sit: a topology.toml, or slurm; replicas then sum within a rack before across racks."""
    accumulate: int = 1
    """Pieces in which a process works through its share of a batch."""
    checkpointing: Literal["none", "layers", "selective", "full"] = "none"
    """Activations computed twice: layers = those of one layer in checkpoint_every, selective = all but linear
    maps that widen nothing."""
    checkpoint_every: float = 2.0
    """2.0 for every second layer, 1.5 for two of three, 1.33 for three of four."""
    offload: bool = False
    """Keep parameters and optimizer state in CPU memory."""
    prefetch: int = 1
    """Layers gathered ahead in forward and backward."""

    @property
    def stages_each(self) -> int:
        """Stages that a process of the pipeline holds."""
        return self.stages or (1 if self.schedule in ("gpipe", "1f1b") else 2)

    @property
    def recomputed_layers(self) -> Fraction:
        """Share of the layers whose activations are computed twice, in part or whole."""
        if self.checkpointing == "layers":
            return 1 / Fraction(self.checkpoint_every).limit_denominator(16)
        return Fraction(self.checkpointing != "none")

    @property
    def keeps_gradients(self) -> bool:
        """True where whole gradients wait for the last piece: the weights stay whole as well."""
        return self.reshard == "grad_op"

    @property
    def micro(self) -> int:
        """Micro-batches of a piece."""
        return self.micro_batches or self.pipeline

    @property
    def zero_bubble(self) -> bool:
        """True where the schedule computes gradients of weights apart."""
        return self.schedule in ("interleaved-zb", "zbv")


@dataclass(frozen=True, slots=True)
class PrecisionConfig:
    """Number formats. Distances, norms, losses and reductions of scores are float32 in every mode."""

    compute: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Format of matrices and activations; parameters stay float32."""
    whole_model: bool = False
    """With bf16: parameters and optimizer state in bf16 too."""
    reduce: Literal["fp32", "bf16"] = "fp32"
    """Format in which gradients are summed over processes."""
    matmul: Literal["highest", "high", "medium"] = "highest"
    """torch.set_float32_matmul_precision."""
    init_scale: float = 65536.0
    """First loss scale of fp16."""
    growth_interval: int = 2000
    """Steps without overflow after which the fp16 loss scale doubles."""


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When the state is written, and how long it is kept."""

    every: int = 500
    """Steps between checkpoints; 0 for only the last."""
    keep: int = 3
    """Newest checkpoints that are kept."""
    background: bool = False
    """Write while training goes on."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How long, how often, and on what."""

    epochs: int = 20
    """Passes over the training split."""
    steps: int = 0
    """Steps to make; 0 to count in epochs."""
    log_every: int = 10
    """Steps between lines of metrics."""
    eval_every: int = 0
    """Steps between validations; 0 for once an epoch."""
    patience: int = 0
    """Validations without a better one after which training ends; 0 for never."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes CUDA where there is one."""
    threads: int = 0
    """CPU threads of a process; 0 to divide the cores among the processes of the machine."""
    max_skipped: int = 10
    """Steps in a row with a loss or gradient that is not finite after which training stops."""
    hang_seconds: float = 600.0
    """Seconds without a step after which every process prints its stack and the job stops; 0 for never."""
    replan: Literal["never", "epoch"] = "never"
    """epoch: after each, plan [parallel] anew from what steps took, and go on in a layout that is better."""
    tensorboard: bool = False
    """Write curves for TensorBoard too."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A whole training run."""

    seed: int = 0
    """Seed of the first weights, the order of the data, noise and dropout."""
    data: DataConfig = field(default_factory=DataConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    compression: CompressionConfig = field(default_factory=CompressionConfig)
    sparsity: SparsityConfig = field(default_factory=SparsityConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def apart(self) -> bool:
        """True if replicas meet in the optimizer: packed, or rack by rack; otherwise FSDP sums over them."""
        return self.packing != "none" or (bool(self.parallel.topology) and self.parallel.replicate > 1)

    @property
    def packing(self) -> str:
        """Compressor between replicas: none, sign or eden."""
        if self.compression.kind == "auto":
            return "sign" if self.optimizer.kind == "onebit-adam" else "none"
        return self.compression.kind


def check(config: TrainConfig, source: str = "the configuration") -> None:
    """Refuse values that cannot work, alone or together.

    Raises
    ------
    ConfigError : naming `source`, the key, what was found and what would work
    """

    def refuse(key: str, expected: str) -> None:
        raise ConfigError(f"{source}: {key} = {value_of(config, key)!r}, expected {expected}")

    check_limits(config, value_of, refuse)
    try:
        for tier in (*config.cache.tiers, *filter(None, [config.cache.decoded])):
            parse_tier(tier)
        parse_size(config.cache.prefetch)
        if config.cache.whole and not config.cache.tiers:
            refuse("cache.whole", "false, or cache.tiers to read the shards into")
    except CacheError as error:
        raise ConfigError(f"{source}: [cache]: {error}") from error
    model, parallel, precision = config.model, config.parallel, config.precision
    if model.width % model.heads:
        refuse("model.heads", f"a divisor of model.width = {model.width}")
    if model.layer_heads and (
        len(model.layer_heads) != model.layers
        or not all(1 <= heads <= model.heads for heads in model.layer_heads)
    ):
        refuse("model.layer_heads", f"{model.layers} numbers from 1 to model.heads = {model.heads}, or []")
    try:
        group_sizes(model.share_ffn_out, model.layers)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if any(heads % parallel.tensor for heads in model.attention_heads):
        refuse(
            "parallel.tensor",
            f"a divisor of model.heads = {model.heads} and all of model.layer_heads: heads are never cut",
        )
    if model.feed_forward % parallel.tensor:
        refuse("parallel.tensor", f"a divisor of the feed-forward width {model.feed_forward}")
    if parallel.pipeline > model.layers:
        refuse("parallel.pipeline", f"at most model.layers = {model.layers}: a stage holds a layer or more")
    if parallel.reshard == "part" and parallel.reshard_size < 2:
        refuse("parallel.reshard_size", 'the processes that keep a copy, at least 2, with reshard = "part"')
    if parallel.reshard != "part" and parallel.reshard_size:
        refuse("parallel.reshard_size", f'0 with reshard = "{parallel.reshard}", or reshard = "part"')
    if precision.whole_model and precision.compute != "bf16":
        refuse("precision.whole_model", 'false, or precision.compute = "bf16"')
    if config.run.steps == 0 and config.run.epochs == 0:
        refuse("run.epochs", "at least 1 where run.steps = 0")
    if config.data.packed and parallel.pipeline > 1:
        refuse("data.packed", "false in a pipeline, whose stages exchange padded tokens")
    check_pipeline(config, refuse)
    check_compression(config, refuse)
    check_sparsity(config.sparsity, config.parallel.pipeline, refuse)
    if parallel.checkpointing != "layers" and parallel.checkpoint_every != ParallelConfig().checkpoint_every:
        refuse("parallel.checkpoint_every", '2.0, or parallel.checkpointing = "layers"')
    if precision.compute == "fp32" and precision.reduce != "fp32":
        refuse("precision.reduce", '"fp32" with precision.compute = "fp32"')
    for kind, weight in config.loss.kind_weights.items():
        if kind not in KINDS:
            raise ConfigError(f"{source}: loss.kind_weights.{kind}: no such kind, expected one of {KINDS}")
        if not 0 <= weight <= 1e6:
            raise ConfigError(f"{source}: loss.kind_weights.{kind} = {weight}, expected 0 to 1e6")


def value_of(config: TrainConfig, key: str) -> object:
    """Value of a dotted key such as ``model.width``."""
    value: object = config
    for name in key.split("."):
        value = getattr(value, name)
    return value
