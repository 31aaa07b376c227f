"""A program that encodes batches with tokenizers."""

import two_epochs
from tokenizers import Tokenizer, models, pre_tokenizers

TOKENIZER = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
TOKENIZER.pre_tokenizer = pre_tokenizers.Whitespace()


def count(index):
    return sum(len(each.ids) for each in TOKENIZER.encode_batch(["a b"] * (100 + index)))


class Used(two_epochs.Job):
    def __getitem__(self, index):
        return count(index)


class Late(two_epochs.Job):
    def __getitem__(self, index):
        if index < two_epochs.LATE:
            return index
        from tokenizers import Tokenizer, models

        tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
        return sum(len(each.ids) for each in tokenizer.encode_batch(["a"] * (100 + index)))


if __name__ == "__main__":
    cases = {"used": Used, "late": Late, "persistent": Used, "imported": Used}
    two_epochs.run(count, cases)
