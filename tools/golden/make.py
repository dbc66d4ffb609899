# SPDX-License-Identifier: Apache-2.0
"""Generates tests/golden: tiny random models of every family as GGUF, and their logits, computed by transformers.

    python3 tools/golden/make.py [NAME...]     in the lab (tools/lab.sh); default: all families

The weights are random, with the family's name as seed. llama.cpp's converter writes the GGUF; only the vocabulary is
our own. tests/golden/README.md describes the files.
"""
import json
import logging
import os
import sys
import tempfile
import zlib
from pathlib import Path

os.environ.update(NO_LOCAL_GGUF="1", TQDM_DISABLE="1")
sys.path.insert(1, "/usr/share/llama.cpp/llama.cpp-tools")  # Debian's folder of the converter

import gguf
import numpy as np
import torch
import transformers
from conversion import ModelBase, get_model_class

import index
import kimi_linear
import vocabulary
from families import FAMILIES, REMOVED, VOCAB

transformers.AutoModelForCausalLM.register(transformers.Mistral4Config, transformers.Mistral4ForCausalLM)  # not in its list

ROWS = 4     # logits are stored for the last positions of a prompt
GREEDY = 64  # tokens of the greedy continuation


def build(family):
    """The model, with weights large enough that every part of it affects the logits."""
    classes = kimi_linear if family.model == "KimiLinear" else transformers
    config = getattr(classes, family.model + "Config")(
        vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0, **family.config)
    config._attn_implementation = "eager"
    seed = zlib.crc32(family.name.encode())
    torch.manual_seed(seed)                     # transformers draws some biases
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    random = torch.Generator().manual_seed(seed)
    width = config.hidden_size
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=random)
        if name.endswith("sinks"):
            p.data = 6 + 2 * noise              # as large as the scores of a window
        elif name.endswith("A_log"):
            p.data = noise - 2                  # a head forgets half of its state within 1 to 40 tokens
        elif "conv" in name and p.ndim == 3:
            p.data = 0.5 * noise                # a few taps a channel
        elif p.ndim == 1 or name.endswith("_bias"):
            p.data += 0.2 * noise               # norms stay near 1, or near 0 if 1 is added to them; biases near 0
        elif name.endswith(("embed_tokens.weight", "embed_in.weight", "wte.weight", "wpe.weight", "word_embeddings.weight",
                            ".embeddings.weight")):
            p.data = 0.4 * noise
        else:
            p.data = noise * (1.5 if "attn" in name or "attention" in name else 1.0) / width ** 0.5
        if name.endswith("gate_up_proj"):
            p.data *= family.gates
        for part, factor in family.factors.items():
            if part in name:
                p.data *= factor
        if family.experts != "F32" and ".experts." in name and p.ndim == 3 and not name.endswith("_bias"):
            p.data = rounded(p.data.transpose(1, 2), family.experts).transpose(1, 2)
    for name, b in model.named_buffers():
        if name.endswith(("correction_bias", "expert_bias")):    # of routers
            b.data = 0.2 * torch.randn(b.shape, generator=random)
        elif name.endswith("layer_scalar"):     # of a layer's output
            b.data = 0.8 + 0.2 * torch.randn(b.shape, generator=random)
    return model


def rounded(x, kind):
    """The values of a tensor after quantization."""
    kind = gguf.GGMLQuantizationType[kind]
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(x.contiguous().numpy(), kind), kind))


def convert(family, model, folder, out):
    """Saves the model with transformers and converts it with llama.cpp's converter."""
    folder = Path(folder)
    model.save_pretrained(folder)
    hparams = {k: v for k, v in {**ModelBase.load_hparams(folder, False), **family.patch}.items() if v is not REMOVED}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(VOCAB)}}, "added_tokens": []}))
    name, *inner = (family.converter or hparams["architectures"][0]).split(".")
    converter = get_model_class(name)
    for part in inner:
        converter = getattr(converter, part)

    class Converter(converter):
        model_arch = gguf.MODEL_ARCH[family.arch] if family.arch else converter.model_arch
        # transformers' Qwen has no layers for drafts, which this converter wants unless it is told so
        no_mtp = converter.no_mtp or hasattr(converter, "opt_num_mtp_layers")

        def set_vocab(self):
            vocabulary.write(self.gguf_writer, family.vocabulary)
            for key, value in family.metadata.items():
                add = self.gguf_writer.add_float32 if isinstance(value, float) else self.gguf_writer.add_uint32
                add(key, value)

        def index_tensors(self, **options):
            return family.tensors(stack_norms(super().index_tensors(**options)))

        def tensor_force_quant(self, name, new_name, bid, n_dims):
            if family.experts != "F32" and "_exps.weight" in new_name:
                return gguf.GGMLQuantizationType[family.experts]
            return super().tensor_force_quant(name, new_name, bid, n_dims)

    with torch.inference_mode():
        Converter(folder, gguf.LlamaFileType.ALL_F32, out, eager=True, model_name="Reprise golden test", hparams=hparams).write()
    return gguf.MODEL_ARCH_NAMES[Converter.model_arch]


def check_experts(family, model):
    """Checks that the reference computes with the stored values of quantized tensors, to the bit."""
    if family.experts == "F32":
        return
    stored = {t.name: t for t in gguf.GGUFReader(index.FOLDER / f"{family.name}.gguf").tensors}
    for i, layer in enumerate(model.model.layers):
        both = layer.mlp.experts.gate_up_proj.detach().transpose(1, 2)
        parts = {"gate": both[:, ::2], "up": both[:, 1::2], "down": layer.mlp.experts.down_proj.detach().transpose(1, 2)}
        for name, x in parts.items():
            tensor = stored[f"blk.{i}.ffn_{name}_exps.weight"]
            assert tensor.tensor_type.name == family.experts
            assert np.array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), x.numpy()), tensor.name


def stack_norms(tensors):
    """StableLM's norms of single heads as one tensor: the converter of llama.cpp 0.7.0 should stack them and loses them."""
    heads = {}
    for name in [n for n in tensors if "_layernorm.norms." in n]:
        heads.setdefault(name.split(".norms.")[0], []).append(tensors.pop(name))
    for name, norms in heads.items():
        tensors[name + ".weight"] = lambda norms=norms: torch.stack([norm() for norm in norms])
    return tensors


def tokens_of(name, n):
    """Random ids without control tokens."""
    random = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return torch.randint(3, VOCAB, (n,), generator=random).tolist()


@torch.inference_mode()
def logits_of(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


def greedy(model, tokens):
    tokens = list(tokens)
    for _ in range(GREEDY):
        tokens.append(int(logits_of(model, tokens)[-1].argmax()))
    return tokens[-GREEDY:]


def make(family):
    folder = index.FOLDER
    model = build(family)
    with tempfile.TemporaryDirectory() as temporary:
        arch = convert(family, model, temporary, folder / f"{family.name}.gguf")
    check_experts(family, model)
    family.reference(model)
    prompts, kept = [], []
    for name, n in family.prompts:
        tokens = tokens_of(f"{family.name} {name}", n)
        rows = logits_of(model, tokens)[-ROWS:]
        assert np.isfinite(rows).all(), f"{family.name}: logits are not finite"
        prompts.append({"name": name, "tokens": tokens, "rows": len(rows), "offset": sum(map(len, kept)), "greedy": greedy(model, tokens)})
        kept.append(rows)
    np.concatenate(kept).astype("<f4").tofile(folder / f"{family.name}.logits")
    entry = {"name": family.name, "architecture": arch, "covers": family.note, "vocabulary": VOCAB, "prompts": prompts}
    return {**entry, "differs": family.differs} if family.differs else entry


def main():
    wanted = set(sys.argv[1:])
    unknown = wanted - {f.name for f in FAMILIES}
    if unknown:
        sys.exit(f"make: no such family: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for name in ("hf-to-gguf", "gguf"):
        logging.getLogger(name).setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    index.FOLDER.mkdir(exist_ok=True)
    models = {m["name"]: m for m in index.read()["models"]}
    for family in FAMILIES:
        if not wanted or family.name in wanted:
            print(f"make: {family.name}", flush=True)
            models[family.name] = make(family)
    made_with = {"transformers": transformers.__version__, "torch": torch.__version__, "gguf": index.gguf_version()}
    index.write(made_with, [models[f.name] for f in FAMILIES if f.name in models])


if __name__ == "__main__":
    main()
