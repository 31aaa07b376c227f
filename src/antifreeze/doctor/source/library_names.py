"""Names of other libraries that rules ask about, each under one canonical spelling."""

from __future__ import annotations

DATALOADER = "torch.utils.data.DataLoader"
ANTIFREEZE_DATALOADER = "antifreeze.DataLoader"
SAME_SIGNATURE_AS_TORCH = (
    DATALOADER,
    ANTIFREEZE_DATALOADER,
    "torchdata.stateful_dataloader.StatefulDataLoader",
)
# Loaders with torch's signature, by the name everything is brought to.
LOADERS = frozenset(
    {
        DATALOADER,
        ANTIFREEZE_DATALOADER,
        "torchdata.stateful_dataloader.StatefulDataLoader",
        "torch_geometric.loader.DataLoader",
        "monai.data.DataLoader",
        "monai.data.ThreadDataLoader",
    }
)
MAP_DATASET = "torch.utils.data.Dataset"
ITERABLE_DATASET = "torch.utils.data.IterableDataset"
# Bases that make a class a dataset, beside torch's own two.
MAP_DATASETS = frozenset(
    {
        MAP_DATASET,
        "torch.utils.data.Subset",
        "torch.utils.data.ConcatDataset",
        "torch.utils.data.TensorDataset",
        "torchvision.datasets.VisionDataset",
        "torchvision.datasets.ImageFolder",
        "torchvision.datasets.DatasetFolder",
        "torchvision.datasets.CocoDetection",
        "torchvision.datasets.CIFAR10",
        "torchvision.datasets.MNIST",
        "torch_geometric.data.Dataset",
        "torch_geometric.data.InMemoryDataset",
        "monai.data.Dataset",
    }
)
ITERABLE_DATASETS = frozenset(
    {ITERABLE_DATASET, "torch.utils.data.IterDataPipe", "torch.utils.data.ChainDataset"}
)
# Datasets around a dataset, or a list of them, which is their first argument.
WRAPPERS = frozenset(
    {"torch.utils.data.Subset", "torch.utils.data.random_split"}
    | {"torch.utils.data.ConcatDataset", "torch.utils.data.ChainDataset"}
)
DISTRIBUTED_SAMPLER = "torch.utils.data.DistributedSampler"
SAMPLERS = frozenset({"torch.utils.data.Sampler", "torch.utils.data.BatchSampler"})
DATA_MODULES = frozenset({"lightning.pytorch.LightningDataModule"})
LIGHTNING_MODULES = frozenset({"lightning.pytorch.LightningModule"}) | DATA_MODULES
# Classes at which a name is not followed further: what they are is known.
LOADING_CLASSES = LOADERS | MAP_DATASETS | ITERABLE_DATASETS | LIGHTNING_MODULES
# Classes whose subclasses are written for loading: datasets, samplers, modules with loaders.
LOADING_BASES = MAP_DATASETS | ITERABLE_DATASETS | SAMPLERS | LIGHTNING_MODULES
LOADER_HOOKS = frozenset(
    {"train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"}
)
TRAINING_ARGUMENTS = frozenset(
    {"transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"}
)

# torch's DataLoader, in order; what follows `*` in the newest versions is by keyword only.
LOADER_PARAMETERS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)
# What each takes, in order: AF706 knows the others as mistakes. A test reads the real signatures.
ACCEPTED_ARGUMENTS = {
    DATALOADER: LOADER_PARAMETERS,
    ANTIFREEZE_DATALOADER: (
        *LOADER_PARAMETERS,
        *("sample_timeout", "on_error", "fault_log", "worker_memory", "quarantine", "randomness"),
    ),
    "torchdata.stateful_dataloader.StatefulDataLoader": (
        *(each for each in LOADER_PARAMETERS if each != "in_order"),
        *("snapshot_every_n_steps", "in_order"),
    ),
}
# Of transformers 5.22.
TRAINING_LOADER_ARGUMENTS = tuple(
    f"dataloader_{each}"
    for each in (
        *("drop_last", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor"),
        *("multiprocessing_context", "in_order"),
    )
)

# (as written, as known): the longest prefix that fits is replaced.
_SPELLINGS = (
    ("torch.utils.data.dataloader.DataLoader", DATALOADER),
    ("torch.utils.data.dataset", "torch.utils.data"),
    ("torch.utils.data.distributed.DistributedSampler", DISTRIBUTED_SAMPLER),
    ("torch.utils.data.sampler", "torch.utils.data"),
    ("torch.utils.data.dataloader", "torch.utils.data"),
    ("torch.nn.parallel.distributed", "torch.nn.parallel"),
    ("torch.multiprocessing", "multiprocessing"),
    ("multiprocess", "multiprocessing"),
    ("multiprocessing.context", "multiprocessing"),
    ("multiprocessing.synchronize", "multiprocessing"),
    ("torchdata.stateful_dataloader.stateful_dataloader", "torchdata.stateful_dataloader"),
    ("torch_geometric.data.DataLoader", "torch_geometric.loader.DataLoader"),
    ("torch_geometric.loader.dataloader", "torch_geometric.loader"),
    ("torch_geometric.data.dataset", "torch_geometric.data"),
    ("torch_geometric.data.in_memory_dataset", "torch_geometric.data"),
    ("torchvision.datasets.vision", "torchvision.datasets"),
    ("torchvision.datasets.folder", "torchvision.datasets"),
    ("monai.data.dataset", "monai.data"),
    ("monai.data.dataloader", "monai.data"),
    ("antifreeze.loader.DataLoader", ANTIFREEZE_DATALOADER),
    ("pytorch_lightning", "lightning.pytorch"),
    ("lightning.LightningModule", "lightning.pytorch.LightningModule"),
    ("lightning.LightningDataModule", "lightning.pytorch.LightningDataModule"),
    ("lightning.Trainer", "lightning.pytorch.Trainer"),
    ("lightning.seed_everything", "lightning.pytorch.seed_everything"),
    ("lightning.pytorch.core.module", "lightning.pytorch"),
    ("lightning.pytorch.core.datamodule", "lightning.pytorch"),
    ("lightning.pytorch.core", "lightning.pytorch"),
    ("lightning.pytorch.trainer.trainer", "lightning.pytorch"),
    ("lightning.pytorch.trainer", "lightning.pytorch"),
    ("transformers.training_args.TrainingArguments", "transformers.TrainingArguments"),
    (
        "transformers.training_args_seq2seq.Seq2SeqTrainingArguments",
        "transformers.Seq2SeqTrainingArguments",
    ),
    ("numpy.random._generator", "numpy.random"),
    ("tqdm.auto", "tqdm"),
    ("tqdm.std", "tqdm"),
    ("tqdm.notebook", "tqdm"),
)
_BY_PREFIX = dict(_SPELLINGS)

# Packages of transforms: their objects call, and hold, all that they are given.
TRANSFORMS = ("torchvision.transforms.", "albumentations.", "monai.transforms.", "torchaudio.")

# What `from x import *` of well-known modules brings, as far as we look for it.
STAR_EXPORTS = {
    "torch.utils.data": frozenset(
        {"DataLoader", "Dataset", "IterableDataset", "Subset", "ConcatDataset", "TensorDataset"}
        | {"Sampler", "DistributedSampler", "RandomSampler", "random_split", "get_worker_info"}
    ),
    "antifreeze": frozenset({"DataLoader", "per_worker", "install", "errors", "policies"}),
}


def canonical_spelling(name: str) -> str:
    """Return a qualified name in the spelling that rules use."""
    for _ in range(3):  # one replacement may lead to another
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            known = _BY_PREFIX.get(".".join(parts[:end]))
            if known is not None:
                new = ".".join([known, *parts[end:]])
                break
        else:
            return name
        if new == name:
            return name
        name = new
    return name
