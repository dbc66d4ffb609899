# SPDX-License-Identifier: Apache-2.0
"""Generates tests/golden/embeddings: tiny random encoders as GGUF, their embeddings and those of two causal models of tests/golden, computed by
transformers, and the tokens of a WordPiece vocabulary by Hugging Face's tokenizers.

    python3 tools/golden/embeddings.py     in the lab (tools/lab.sh embeddings)

tests/golden/README.md describes the files. llama.cpp's converter writes all but nomic-bert and jina-bert-v3: it reads the names of tensors of their
own code and not those of transformers, so these are written here, with the names that published files have.
"""
import itertools
import json
import os
import random
import sys
import tempfile
import zlib
from pathlib import Path

os.environ.update(NO_LOCAL_GGUF="1", TQDM_DISABLE="1")
sys.path.insert(1, "/usr/share/llama.cpp/llama.cpp-tools")

import gguf
import numpy as np
import torch
import transformers
from conversion import ModelBase, get_model_class
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import difficult_text
import index
import make
from families import EPS, FAMILIES
from vocabularies import CORPUS, TEXTS, escape

OUT = index.FOLDER / "embeddings"
SPECIALS = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = 0, 2, 3, 4, 5

# Besides those of SentencePiece: normalisation, accents, scripts, controls, long words, text that looks like tokens.
WORDPIECE_TEXTS = TEXTS + [
    "", "   ", "unaffable", "The quick brown fox.", "ÀÉÎÕÜ àéîõü Ångström façade Zürich Škoda", "İstanbul ıI ŞŞ", "ΣΊΣΥΦΟΣ Ὀδυσσεύς", "ЁЖИК ёжик й",
    "中文和English混合，日本語。한국어", "豈更\U00020000\U0002b820\U0002b920\U0002f800", "a\u0300\u0301b\u0323", "x" * 100, "x" * 101, "é" * 100, "the" * 34,
    "[CLS] the [SEP] [MASK] [UNK] [unused1]", "##ing ing # # #", "▁the the▁cat ▁", "a\u0000b\u0007c\ufffdd", "soft\u00adhyphen zero\u200bwidth \u2066bidi\u2069",
    "tab\tnew\nline\vvt\ffeed\u0085nel\u2028ls", "\u037e \u1fef \u2000\u2001", "½ ² ﬁ ﬀ Ａ ㎏ №", "don't, can't; it's...!?", "$100 + 5% = ~^`|<>", "😀 🦙 ❤️ 👩‍👩‍👧",
    "A\ue000B \U000f0000", "क्षि नमस्ते", "ภาษาไทย", "Ⓐ Ⅷ ǅ", "e-mail@example.org/path_x",
]


RANDOM_TEXTS = 200


def normalise(cased):
    return normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=not cased)


def pieces(cased):
    """Characters that occur, short beginnings and ends of words, and short words, in a fixed order."""
    words = set()
    for text in CORPUS:
        words |= {w for w, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalise(cased).normalize_str(text))}
    starts = {w[:n] for w in words for n in (1, 2, 3)} | {w for w in words if len(w) < 9}
    ends = {"##" + c for w in words for c in w[1:]} | {"##" + w[-n:] for w in words for n in (2, 3) if len(w) > n}
    chosen = [p for p in sorted(starts) if zlib.crc32(p.encode()) % 8] + [p for p in sorted(ends) if zlib.crc32(p.encode()) % 8]
    return SPECIALS + chosen


def tokenizer(vocabulary, cased):
    t = Tokenizer(models.WordPiece({p: i for i, p in enumerate(vocabulary)}, unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalise(cased)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return t


def write_vocabulary(w, vocabulary):
    """As llama.cpp's converter does: U+2581 at the start of a word, nothing in it."""
    special = set(SPECIALS) - {"[unused1]"}
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("default")
    w.add_token_list([p if p in special else p[2:] if p.startswith("##") else "▁" + p for p in vocabulary])
    w.add_token_types([3 if p in special else 1 for p in vocabulary])
    w.add_unk_token_id(UNK)
    w.add_sep_token_id(SEP)
    w.add_pad_token_id(PAD)
    w.add_bos_token_id(CLS)
    w.add_mask_token_id(MASK)
    w.add_token_type_count(2)


def save_vocabulary(name, vocabulary, cased):
    w = gguf.GGUFWriter(index.FOLDER / "vocab" / f"{name}.gguf", "bert")
    write_vocabulary(w, vocabulary)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    t, r = tokenizer(vocabulary, cased), random.Random(name)
    texts = WORDPIECE_TEXTS + [difficult_text.text(r) for _ in range(RANDOM_TEXTS)]
    lines = [f"{escape(text)}\t" + "|".join(map(str, t.encode(text, add_special_tokens=False).ids)) for text in texts]
    (index.FOLDER / "vocab" / f"{name}.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")


def draw(name, model, width):
    """As make.build: weights large enough that every part of the model shows."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    for key, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.ndim == 1:
            p.data += 0.2 * noise
        elif "embeddings.weight" in key:
            p.data = 0.4 * noise
        else:
            p.data = noise * (1.5 if "attention" in key or "attn" in key else 1.0) / width ** 0.5
    return model.float().eval()


def convert(model, out, vocabulary, pooling=None, extra=(), **patch):
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        folder = Path(folder)
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **patch}))
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(len(vocabulary))}}, "added_tokens": []}))
        if pooling:
            (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]))
            (folder / "1_Pooling").mkdir()
            (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
        hparams = ModelBase.load_hparams(folder, False)
        converter = get_model_class(hparams["architectures"][0])

        class Converter(converter):
            model_arch = converter.model_arch

            def set_vocab(self):
                write_vocabulary(self.gguf_writer, vocabulary)
                if pooling is None:
                    self.gguf_writer.add_pooling_type(gguf.PoolingType.RANK)

            def generate_extra_tensors(self):
                yield from super().generate_extra_tensors()
                yield from extra

        Converter(folder, gguf.LlamaFileType.ALL_F32, out, eager=True, model_name="Reprise golden test", hparams=hparams).write()


def write_encoder(arch, model, out, vocabulary):
    c = model.config
    w = gguf.GGUFWriter(out, arch)
    w.add_name("Reprise golden test")
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_layer_norm_eps(c.layer_norm_eps)
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    write_vocabulary(w, vocabulary)
    s = {k: v.numpy() for k, v in model.state_dict().items()}
    w.add_tensor("token_embd.weight", s["embeddings.word_embeddings.weight"])
    w.add_tensor("token_types.weight", s["embeddings.token_type_embeddings.weight"])
    for part in ("weight", "bias"):
        w.add_tensor(f"token_embd_norm.{part}", s[f"embeddings.LayerNorm.{part}"])
    for i in range(c.num_hidden_layers):
        layer = f"layers.{i}."
        attention = layer + "self_attn."
        for part in ("weight", "bias"):
            if attention + f"q_proj.{part}" in s:
                w.add_tensor(f"blk.{i}.attn_qkv.{part}", np.concatenate([s[attention + f"{p}_proj.{part}"] for p in "qkv"]))
                w.add_tensor(f"blk.{i}.attn_output.{part}", s[attention + f"o_proj.{part}"])
        for part in ("weight", "bias"):
            w.add_tensor(f"blk.{i}.attn_output_norm.{part}", s[layer + f"post_attention_layernorm.{part}"])
            w.add_tensor(f"blk.{i}.layer_output_norm.{part}", s[layer + f"post_mlp_layernorm.{part}"])
        for name, other in (("up", "fc1"), ("gate", None), ("down", "fc2")):
            for part in ("weight", "bias"):
                x = s.get(layer + f"mlp.{name}_proj.{part}", s.get(layer + f"mlp.{other}.{part}"))
                if x is not None:
                    w.add_tensor(f"blk.{i}.ffn_{name}.{part}", x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def tokens_of(name, n, first, vocabulary):
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.randint(first, vocabulary, (n,), generator=generator).tolist()


def unit(x):
    return x / np.linalg.norm(x)


def line(model, pooling, tokens, values):
    return f"{model} {pooling}\t" + "|".join(map(str, tokens)) + "\t" + "|".join("%.8g" % v for v in values)


def pooled(name, states, tokens, poolings, dense=()):
    rows = states.double().numpy()
    of = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}
    for p in poolings:
        for _, matrix in dense:  # of sentence-transformers, after pooling
            of[p] = matrix.double().numpy() @ of[p]
    return [line(name, p, tokens, unit(of[p])) for p in poolings]


@torch.inference_mode()
def encoder_lines(name, model, vocabulary, has_types=True, dense=()):
    """Texts of several lengths, and a pair, whose second text has type 1."""
    n, lines = len(vocabulary), []
    for length in (1, 11, 70, 300):
        tokens = [CLS] + tokens_of(f"{name} {length}", length, 6, n) + [SEP]
        lines += pooled(name, model(torch.tensor([tokens])).last_hidden_state[0], tokens, ("mean", "cls"), dense)
    if not has_types:
        return lines
    first, second = [CLS] + tokens_of(f"{name} a", 9, 6, n) + [SEP], tokens_of(f"{name} b", 20, 6, n) + [SEP]
    types = torch.tensor([[0] * len(first) + [1] * len(second)])
    states = model(torch.tensor([first + second]), token_type_ids=types).last_hidden_state[0]
    return lines + pooled(name, states, first + second, ("mean", "cls"))


@torch.inference_mode()
def causal_lines(name):
    model = make.build(next(f for f in FAMILIES if f.name == name))
    stored = {t.name: t.data for t in gguf.GGUFReader(index.FOLDER / f"{name}.gguf").tensors}
    assert np.array_equal(stored["output_norm.weight"], model.model.norm.weight.numpy()), f"{name}.gguf has other weights"
    lines = []
    for length in (1, 11, 150):
        tokens = make.tokens_of(f"{name} embedding {length}", length)
        lines += pooled(name, model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0], tokens, ("mean", "cls", "last"))
    return lines


@torch.inference_mode()
def rank_lines(name, model, vocabulary):
    lines = []
    for k, length in itertools.product(range(3), (5, 80)):
        tokens = [CLS] + tokens_of(f"{name} q{k}", 7, 6, len(vocabulary)) + [SEP, SEP] + tokens_of(f"{name} d{k} {length}", length, 6, len(vocabulary)) + [SEP]
        lines.append(line(name, "rank", tokens, model(torch.tensor([tokens])).logits[0].double().numpy()))
    return lines


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    OUT.mkdir(exist_ok=True)
    vocabulary = pieces(False)
    save_vocabulary("wordpiece", vocabulary, False)
    save_vocabulary("wordpiece-cased", pieces(True), True)
    shape = dict(vocab_size=len(vocabulary), num_hidden_layers=3, num_attention_heads=4, intermediate_size=96, hidden_size=64, layer_norm_eps=EPS, pad_token_id=PAD)
    bert = draw("bert", transformers.BertModel(transformers.BertConfig(**shape, max_position_embeddings=320, type_vocab_size=2), add_pooling_layer=False), 64)
    nomic = draw("nomic-bert", transformers.NomicBertModel(transformers.NomicBertConfig(
        **shape, max_position_embeddings=512, type_vocab_size=2, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}), add_pooling_layer=False), 64)
    rank = draw("reranker", transformers.XLMRobertaForSequenceClassification(transformers.XLMRobertaConfig(
        **{**shape, "pad_token_id": 1}, max_position_embeddings=322, type_vocab_size=1, num_labels=1)), 64)
    convert(bert, OUT / "bert.gguf", vocabulary, "cls_token")
    write_encoder("nomic-bert", nomic, OUT / "nomic-bert.gguf", vocabulary)
    small = dict(vocab_size=len(vocabulary), num_attention_heads=4, intermediate_size=96, hidden_size=64, pad_token_id=PAD)
    jina = draw("jina-bert-v3", transformers.JinaEmbeddingsV3Model(transformers.JinaEmbeddingsV3Config(
        **shape, max_position_embeddings=512, type_vocab_size=1, rope_parameters={"rope_type": "default", "rope_theta": 20000.0}),
        add_pooling_layer=False), 64)
    write_encoder("jina-bert-v3", jina, OUT / "jina-bert-v3.gguf", vocabulary)
    modern = draw("modern-bert", transformers.ModernBertModel(transformers.ModernBertConfig(
        **small, num_hidden_layers=5, max_position_embeddings=512, norm_eps=EPS, local_attention=24, attn_implementation="eager")), 64)
    convert(modern, OUT / "modern-bert.gguf", vocabulary, "cls_token", local_attention=24, layer_norm_eps=EPS)
    gemma = draw("gemma-embedding", transformers.Gemma3TextModel(transformers.Gemma3TextConfig(
        **{**small, "intermediate_size": 64}, num_hidden_layers=7, num_key_value_heads=2, head_dim=12, query_pre_attn_scalar=12, rms_norm_eps=EPS, max_position_embeddings=512,
        sliding_window=24, use_bidirectional_attention=True, attn_implementation="eager")), 64)
    euro = draw("eurobert", transformers.EuroBertModel(transformers.EuroBertConfig(
        **small, num_hidden_layers=3, num_key_value_heads=2, rms_norm_eps=EPS, max_position_embeddings=512, attn_implementation="eager")), 64)
    convert(euro, OUT / "eurobert.gguf", vocabulary, "mean_tokens", classifier_pooling=None)
    generator = torch.Generator().manual_seed(64)
    dense = [("dense_2.weight", torch.randn(96, 64, generator=generator) / 8), ("dense_3.weight", torch.randn(64, 96, generator=generator) / 8)]
    convert(gemma, OUT / "gemma-embedding.gguf", vocabulary, "mean_tokens", dense, sliding_window=24)
    convert(rank, OUT / "reranker.gguf", vocabulary)
    lines = encoder_lines("bert", bert, vocabulary) + encoder_lines("nomic-bert", nomic, vocabulary) + rank_lines("reranker", rank, vocabulary)
    for name, model, after in (("jina-bert-v3", jina, ()), ("modern-bert", modern, ()), ("eurobert", euro, ()), ("gemma-embedding", gemma, dense)):
        lines += encoder_lines(name, model, vocabulary, False, after)
    for name in ("llama", "qwen3"):
        lines += causal_lines(name)
    (OUT / "embeddings.txt").write_text("".join(x + "\n" for x in lines))


if __name__ == "__main__":
    main()
