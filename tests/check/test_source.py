"""What rules are told about source is what the source says."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from antifreeze.doctor.check.checker import check, check_text
from antifreeze.doctor.check.file_check import Source, first_pass
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.source.definitions import DatasetKind
from antifreeze.doctor.source.file_summary import Workers
from antifreeze.doctor.source.project import MOST_KEPT_MODULES, Project
from antifreeze.doctor.source.syntax.node_text import mentions_evaluation
from antifreeze.doctor.source.syntax.notebooks import read_notebook
from antifreeze.doctor.source.view import View


def views(**files: str) -> dict[str, View]:
    """Give a view of each file; `pkg__data` is pkg/data.py of the package pkg."""
    texts = {Path(f"{name.replace('__', '/')}.py"): dedent(text) for name, text in files.items()}
    summaries = []
    modules = {}
    for path, text in texts.items():
        name = ".".join(path.with_suffix("").parts)
        module, summary = first_pass(Source(path, text), name, is_package=False)
        modules[path] = module
        summaries.append(summary)
    project = Project(summaries, lambda path: texts[path])
    found = {}
    for name, path, summary in zip(files, texts, summaries, strict=True):
        module = modules[path] or project.load(summary)
        assert module is not None
        found[name] = View(module, project)
    return found


def view(text: str) -> View:
    return views(program=text)["program"]


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from torch.utils.data import DataLoader", "DataLoader(x, 4, num_workers=2)"),
        ("from torch.utils.data import DataLoader as D", "D(x, 4, num_workers=2)"),
        ("import torch", "torch.utils.data.DataLoader(x, 4, num_workers=2)"),
        ("import torch.utils.data as data", "data.DataLoader(x, 4, False, None, None, 2)"),
        ("from torch.utils import data", "data.DataLoader(x, batch_size=4, **{'num_workers': 2})"),
        ("from torch.utils.data.dataloader import DataLoader", "DataLoader(x, 4, num_workers=2)"),
        ("from torch.utils.data import *", "DataLoader(x, 4, num_workers=2)"),
        ("import torch\nD = torch.utils.data.DataLoader", "D(x, 4, num_workers=2)"),
        (
            "from functools import partial\nfrom torch.utils.data import DataLoader\n"
            "D = partial(DataLoader, num_workers=2)",
            "D(x, 4)",
        ),
        (
            "from torch.utils.data import DataLoader\nclass D(DataLoader):\n    pass",
            "D(x, 4, num_workers=2)",
        ),
        (
            "from torch.utils.data import DataLoader\nN = 2\nkw = dict(num_workers=N)",
            "DataLoader(x, 4, **kw)",
        ),
    ],
)
def test_a_loader_is_known_by_whatever_name(imports: str, call: str) -> None:
    (loader,) = view(f"{imports}\nx = [1]\nloader = {call}\n").loaders
    assert loader["num_workers"].is_(2) and loader["batch_size"].is_(4)
    assert loader.workers is Workers.SOME
    assert loader["pin_memory"].absent
    assert loader.variable == "loader" and not loader.ours


def test_what_cannot_be_seen_is_not_guessed() -> None:
    found = view(
        """
        from torch.utils.data import DataLoader
        def one(x, workers, **options):
            return DataLoader(x, num_workers=workers), DataLoader(x, **options)
        kw = {}
        kw.update(n=3)
        last = DataLoader([], **kw)
        either = DataLoader([], num_workers=0 if kw else 4)
        """
    )
    given, hidden, updated, either = found.loaders
    assert given.workers is Workers.LIKELY and given["num_workers"].given
    assert hidden["shuffle"].hidden and not hidden["shuffle"].absent
    assert updated["num_workers"].hidden
    assert either.workers is Workers.LIKELY


def test_datasets_are_seen_through_bases_wrappers_and_parameters_of_other_files() -> None:
    found = views(
        pkg__base="""
            from torch.utils.data import Dataset
            class Base(Dataset):
                def __len__(self): return 3
                def __getitem__(self, index): return self.load(index)
            """,
        pkg__data="""
            from .base import Base
            class Rows(Base):
                def load(self, index): return index
            """,
        train="""
            from torch.utils.data import DataLoader, random_split
            from pkg.data import Rows
            def make(dataset, count):
                return DataLoader(dataset, num_workers=count)
            def main():
                first, second = random_split(Rows(), [2, 1])
                make(first, 3)
            """,
    )
    (rows,) = found["pkg__data"].datasets
    assert rows.kind is DatasetKind.MAP
    assert [each.name for each in rows.loading] == ["__getitem__", "load"]
    assert rows.workers is Workers.LIKELY  # of another file
    (loader,) = found["train"].loaders
    assert loader.dataset is not None and loader.dataset.qualified == "pkg.data.Rows"
    assert rows.is_known_whole


def test_attributes_lead_to_what_they_were_given() -> None:
    found = view(
        """
        import h5py
        from torch.utils.data import Dataset
        class Rows(Dataset):
            def __init__(self, path):
                file = h5py.File(path)
                self.file, self.path = file, path
            def __getitem__(self, index):
                return self.file[index]
        """
    )
    (rows,) = found.datasets
    (given,) = rows.assignments("file")
    assert given.value is not None and found.type_of(given.value) == "h5py.File"
    assert len(rows.uses("file")) == 1 and not rows.uses("path")
    assert not rows.sets_anew("file")


def test_loops_over_loaders_are_found_through_what_is_wrapped_around() -> None:
    found = view(
        """
        from torch.utils.data import DataLoader
        from tqdm.auto import tqdm
        class Trainer:
            def __init__(self, data):
                self.batches = DataLoader(data, num_workers=2)
            def fit(self, other_loader):
                for epoch in range(3):
                    for step, batch in enumerate(tqdm(self.batches)):
                        pass
                for batch in other_loader: pass
                for row in self.rows: pass
        """
    )
    mine, other = found.loops
    assert mine.loader is found.loaders[0] and mine.epochs is not None
    assert other.loader is None and other.epochs is None


def test_what_runs_on_import_is_told_from_what_does_not() -> None:
    found = view(
        """
        def called(): a()
        def guarded(): b()
        called()
        if __name__ == "__main__":
            guarded()
        else:
            c()
        """
    )
    told = {
        ast.unparse(call.func): found.runs_on_import(call) for call in found.module.nodes(ast.Call)
    }
    assert told == {"a": True, "b": False, "called": True, "guarded": False, "c": True}


def test_calls_that_cannot_work_and_names_that_are_not_there_are_seen() -> None:
    found = view(
        """
        from torch.utils.data import Dataset
        class One(Dataset):
            def __init__(self, path, *, size=3): self.path = path
            def __getitem__(self, index):
                import math
                return [os.path.join(self.path, x, math.pi) for x in range(index)] + missing
        class Two(Dataset):
            def __getitem__(self, index): return index
        One(); One("a", 3); One("a", size=3); One("a", depth=3); One(*x); Two(10); Two()
        """
    )
    assert [found.signature_mismatch(call) for call in found.module.nodes(ast.Call)[-7:]] == [
        "lacks 'path'",
        "takes 1 positional argument, gets 2",
        "",
        "takes no argument 'depth'",
        "",
        "takes no arguments",
        "",
    ]
    function = found.datasets[0].method("__getitem__")
    assert function is not None
    assert [name.id for name in found.undefined(function)] == ["os", "missing"]


def test_a_name_of_itself_ends() -> None:
    found = view(
        """
        from functools import partial
        from torch.utils.data import DataLoader
        f = partial(f, 1)
        a = b
        b = a
        class C:
            def __init__(self): self.x = self.x
        DataLoader(a, collate_fn=f, num_workers=b)
        """
    )
    (loader,) = found.loaders
    assert loader.dataset is None and loader.collate is None


def test_a_notebook_is_read_by_cell_and_its_magics_are_put_aside() -> None:
    cells = [
        ("code", "%matplotlib inline\n!pip install torch\nfiles = !ls\nimport torch"),
        ("markdown", "# no code"),
        ("code", "%%bash\nrm -rf x"),
        ("code", "if torch:\n    %time y = 3\nx?"),
    ]
    import json

    text = json.dumps({"cells": [{"cell_type": kind, "source": src} for kind, src in cells]})
    notebook = read_notebook(text)
    ast.parse(notebook.text)
    line = notebook.text.split("\n").index("if torch:") + 1
    assert notebook.locate(line) == (4, 1)
    assert notebook.locate(1) == (1, 1)
    with pytest.raises(ValueError, match="no notebook"):
        read_notebook("{}")


def test_a_file_that_leads_to_many_others_stays_the_one_that_is_looked_at() -> None:
    """Its tree was parsed again as another, and what was compared by identity was not found."""
    many = MOST_KEPT_MODULES + 12
    imports = "\n".join(f"from m{i} import D{i}" for i in range(many))
    loaders = "\n".join(f"L{i} = DataLoader(D{i}('x'), num_workers=2)" for i in range(many))
    one = (
        "from torch.utils.data import Dataset\n"
        "class D{}(Dataset):\n    def __getitem__(self, i): return i\n"
    )
    main = dedent(
        """
        class Mine:
            def __init__(self, p):
                self.file = h5py.File(p)
            def __getitem__(self, i):
                return self.file["x"][i]
            def __len__(self):
                return 5
        loader = DataLoader(Mine("a.h5"), num_workers=2)
        """
    )
    start = f"import h5py\nfrom torch.utils.data import DataLoader\n{imports}\n"
    texts = {Path("main.py"): f"{start}{loaders}\n{main}"}
    texts |= {Path(f"m{i}.py"): one.format(i) for i in range(many)}
    found = check(list(texts), Settings(), texts).found
    assert [each.code for each in found if each.path == Path("main.py")].count("AF201") == 1


def test_a_node_of_no_file_is_not_taken_for_one_of_this() -> None:
    with pytest.raises(LookupError):
        view("x = 1\n").resolve(ast.Name("x", ast.Load()))


LOADS = "from torch.utils.data import DataLoader, Dataset\n"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("import os\nx = os.environ['RANK']\n", True),
        ("import os\nx = os.environ.get('RANK', 0)\n", True),
        ("import os\nx = os.getenv('WORLD_SIZE')\n", True),
        ("from os import environ\nx = 'LOCAL_RANK' in environ\n", True),
        ("frame = {}\nx = frame['RANK']\n", False),
        ("columns = ['RANK', 'WORLD_SIZE']\n", False),
        ("x = frame.get('RANK')\n", False),
    ],
)
def test_ranks_are_shown_by_the_environment_not_by_a_word(text: str, ranks: bool) -> None:
    assert bool(view(LOADS + text).distributed) is ranks


@pytest.mark.parametrize(
    ("condition", "method"),
    [
        ("if __name__ == '__main__':", "spawn"),
        ("if __name__ == '__main__' and x:", "spawn"),
        ("if mp.get_start_method() != 'spawn':", "spawn"),
        ("if sys.platform == 'win32':", ""),
        ("if args.debug:", ""),
    ],
)
def test_a_start_method_set_on_a_condition_is_not_known(condition: str, method: str) -> None:
    said = f"{condition}\n    mp.set_start_method('spawn')\n"
    found = view(f"{LOADS}import multiprocessing as mp\n{said}")
    assert found.start_method == method


@pytest.mark.parametrize(
    ("guard", "runs"),
    [
        ("if __name__ == '__main__':", False),
        ("if __name__ == '__main__' and len(argv) > 1:", False),
        ("if __name__ == '__main__' or x:", True),
        ("if x:", True),
    ],
)
def test_what_is_under_the_main_guard_does_not_run_on_import(guard: str, runs: bool) -> None:
    found = view(f"{LOADS}def main():\n    return DataLoader([1])\n{guard}\n    main()\n")
    assert found.runs_on_import(found.loaders[0].node) is runs


def test_what_functions_call_at_whatever_depth_runs_on_import() -> None:
    steps = "".join(f"def f{i}():\n    f{i + 1}()\n" for i in range(20))
    found = view(f"{LOADS}{steps}def f20():\n    return DataLoader([1])\nf0()\n")
    assert found.runs_on_import(found.loaders[0].node)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((each, True) for each in ("val_loader", "testloader", "self.valSet", "eval_dl")),
        *((each, True) for each in ("validation", "predictions", "inference_data", "TestData")),
        *((each, False) for each in ("retrieval_loader", "interval", "values", "latest")),
        *((each, False) for each in ("train_loader", "contest_loader", "evaluated_on", "loader")),
    ],
)
def test_a_name_of_evaluation_is_one_by_its_words(name: str, is_one: bool) -> None:
    assert mentions_evaluation(name) is is_one


@pytest.mark.parametrize(
    "wrapped",
    [
        "Subset({}, [1, 2])",
        "ConcatDataset([{}])",
        "ConcatDataset(datasets=[{0}, {0}])",
        "random_split(ConcatDataset([{}]), [1, 2])[0]",
        "ConcatDataset([Subset({}, [1])])",
        "ConcatDataset([{} for part in 'ab'])",
    ],
)
def test_transforms_are_seen_through_every_wrapper(wrapped: str) -> None:
    made = wrapped.format("ImageFolder('a', transform=augment)")
    found = view(
        f"{LOADS}from torch.utils.data import ConcatDataset, Subset, random_split\n"
        f"from torchvision.datasets import ImageFolder\ndef augment(x):\n    return x\n"
        f"loader = DataLoader({made}, num_workers=2)\n"
    )
    assert [each.function.name for each in found.worker_code] == ["augment"]


def test_of_a_dictionary_of_datasets_only_the_entry_is_loaded() -> None:
    found = view(
        f"{LOADS}from torchvision.datasets import ImageFolder\ndef f(x): pass\ndef g(x): pass\n"
        "both = {'a': ImageFolder('a', transform=f), 'b': ImageFolder('b', transform=g)}\n"
        "loader = DataLoader(both['b'], num_workers=2)\n"
    )
    assert [each.function.name for each in found.worker_code] == ["g"]


def test_an_option_may_have_the_name_of_a_parameter_before_the_slash() -> None:
    found = view(
        """
        class D:
            def __init__(self, a, /, **options): pass
        D(1, a=2), D(a=2)
        """
    )
    fits, lacks = found.module.nodes(ast.Call)
    assert found.signature_mismatch(fits) == "" and found.signature_mismatch(lacks) == "lacks 'a'"


def test_what_a_profiler_puts_among_the_builtins_is_at_most_possible() -> None:
    text = f"{LOADS}class D(Dataset):\n    @profile\n    def __getitem__(self, i): pass\n"
    assert not [e for e in check_text(text).found if e.code == "AF705"]


def test_a_handler_with_a_star_is_one() -> None:
    text = (
        f"{LOADS}class D(Dataset):\n    def __len__(self):\n        return 3\n"
        "    def __getitem__(self, i):\n        try:\n            x = open(self.paths[i])\n"
        "        except{} Exception:\n            x = None\n        return x\n"
        "DataLoader(D(), num_workers=2)\n"
    )
    plain, starred = (check_text(text.replace("{}", each)).found for each in ("", "*"))
    assert [each.code for each in plain] == [each.code for each in starred] != []
