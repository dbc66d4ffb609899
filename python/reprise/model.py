# SPDX-License-Identifier: Apache-2.0
"""Models: GGUF files with their vocabulary. Any number of engines may share one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _abi
from ._library import call, encoded, lib, no_callback, reported, text
from .errors import InvalidError, UnknownNameError
from .handle import Handle, finalize
from .prompt import ROLES
from .result import copied

if TYPE_CHECKING:
    from .engine import Core


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Properties of a model. reprise.h, rp_model_info."""

    name: str
    architecture: str
    weights: str
    chat_format: str
    chat_format_guessed: bool
    parameters: int
    weight_bytes: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_embd: int
    n_ff: int
    n_vocab: int
    n_ctx_train: int
    positions: str
    movable: bool
    window: int
    n_window_layers: int
    n_experts: int
    n_experts_used: int
    kv_bytes_per_token: int
    fingerprint: str
    chat_template: str
    is_encoder: bool
    pooling: str
    n_scores: int
    n_recurrent_layers: int
    state_bytes: int
    states_compose: bool


def c_messages(messages: Iterable[Mapping[str, str]]) -> tuple[Any, int, list[bytes]]:
    """Messages as an array of rp_message, their number, and the texts that it points to."""
    listed, texts = list(messages), []
    array = (_abi.rp_message * len(listed))()
    for i, message in enumerate(listed):
        role = message.get("role", "")
        if role not in ROLES:
            raise InvalidError(f"message {i + 1}: unknown role {role!r}: use one of {', '.join(ROLES)}")
        content = message.get("content", "")
        if not isinstance(content, str):
            raise InvalidError(
                f"message {i + 1}: its content is {type(content).__name__}, not str: reprise.from_messages reads parts"
            )
        texts.append(content.encode("utf-8", "surrogatepass"))
        array[i].role, array[i].text, array[i].n = ROLES.index(role), texts[-1], len(texts[-1])
    return array, len(listed), texts


class Model:
    """A GGUF file, opened. Closing it closes its adapters and engines: `with Model(path) as model, Engine(model) as engine:`.

    chat_format      name of a chat format; None: that of the file
    vocabulary_only  load the tokenizer alone, from any model file
    Threads: any number. FileError, FormatError, UnsupportedError, UnknownNameError.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, chat_format: str | None = None, vocabulary_only: bool = False
    ) -> None:
        self.handle = Handle(f"model {os.fspath(path)}", has_threads=False)
        self.engines: set[Core] = set()
        self.adapters: set[Handle] = set()
        options = _abi.rp_model_options()
        lib.rp_model_options_init(options, ctypes.sizeof(options))
        options.chat_format = encoded(chat_format)
        options.vocabulary_only = vocabulary_only
        self.path = os.fspath(path)
        call(lib.rp_model_open, ctypes.byref(self.handle.cell), encoded(os.fspath(path)), ctypes.byref(options))

    def close(self) -> None:
        """Closes the model's adapters and engines, and its file. Again: nothing."""
        self.handle.close(lib.rp_model_close, stop=self._close_users)

    def _close_users(self, _pointer: object) -> None:
        """The model is closed to new engines; a thread that creates one now finishes that first."""
        self.handle.wait()
        for core in list(self.engines):
            core.free()
        for adapter in list(self.adapters):
            adapter.close(lib.rp_adapter_close)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "path") and not self.handle.is_freed:
            finalize(self.close)

    @property
    def info(self) -> ModelInfo:
        with self.handle as pointer:
            info: ModelInfo = copied(ModelInfo, reported(_abi.rp_model_info, lib.rp_model_describe, pointer))
        return info

    def tokenize(self, text: str, *, special: bool = False, bos: bool = True) -> list[int]:
        """Token ids. special: control tokens written in the text become tokens: for trusted text only. bos: begin with the model's
        beginning-of-text token, if it wants one."""
        data = text.encode("utf-8", "surrogatepass")
        return self._tokens(lib.rp_tokenize, data, len(data), special, bos)

    def tokenize_embedding(self, text: str, second: str | None = None, *, max_tokens: int = 0) -> list[int]:
        """Token ids for the embedding of a text, special tokens included. second: a document to rank for the query `text`. max_tokens: cut the end
        of the document, or of the only text; 0: no limit."""
        data = text.encode("utf-8", "surrogatepass")
        more = None if second is None else second.encode("utf-8", "surrogatepass")
        return self._tokens(lib.rp_tokenize_embedding, data, len(data), more, len(more or b""), max_tokens)

    def tokenize_messages(self, messages: Iterable[Mapping[str, str]], *, continues: bool = False) -> list[int]:
        """Token ids of a conversation in the model's chat format, and the generation prompt. continues: the last message is the beginning
        of the answer."""
        array, n, _texts = c_messages(messages)
        return self._tokens(lib.rp_tokenize_messages, array, n, continues)

    def _tokens(self, function: Any, *args: Any) -> list[int]:
        tokens, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        with self.handle as pointer:
            call(function, pointer, *args, ctypes.byref(tokens), ctypes.byref(n))
        try:
            return tokens[: n.value]
        finally:
            lib.rp_free(tokens)

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token; special: of a control token its name, else nothing."""
        n = ctypes.c_size_t()
        with self.handle as pointer:
            found = lib.rp_token_bytes(pointer, token, special, ctypes.byref(n)) if abs(token) < 1 << 31 else None
            if found:
                data: bytes = found[: n.value]
                return data
        raise UnknownNameError(f"token {token} is not in the vocabulary: ids are 0 to {self.info.n_vocab - 1}")

    def detokenize(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(token, special=special) for token in tokens).decode("utf-8", "replace")

    def fingerprint(self, *, n_threads: int = 0) -> str:
        """BLAKE2b of the model's files and chat format, 64 hexadecimal digits. Reads all weights, once."""
        out = ctypes.c_char_p()
        nothing = no_callback(_abi.rp_on_progress)
        with self.handle as pointer:
            call(lib.rp_model_fingerprint, pointer, n_threads, nothing, None, ctypes.byref(out))
            return text(out.value)

    def __repr__(self) -> str:
        return f"<Model {self.path}>" if not self.handle.is_closed else f"<Model {self.path}, closed>"


class Lora:
    """A LoRA adapter (GGUF) of a model: `engine.run(prompt, adapter=lora)`. Closing it again: nothing; requests that run go on.

    model  the Model, which an adapter holds, and which closes its adapters
    Threads: any number. FileError, FormatError, UnsupportedError, ConflictError (it was trained for another model).
    """

    def __init__(self, model: Model, path: str | os.PathLike[str]) -> None:
        self.handle = Handle(f"adapter {os.fspath(path)}", has_threads=False)
        self.path = os.fspath(path)
        self.model = model
        with model.handle as pointer:
            model.adapters.add(self.handle)
            call(lib.rp_adapter_open, ctypes.byref(self.handle.cell), pointer, encoded(self.path))

    def close(self) -> None:
        self.handle.close(lib.rp_adapter_close)
        self.model.adapters.discard(self.handle)

    def __enter__(self) -> Lora:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "model") and not self.handle.is_freed:
            finalize(self.close)

    def __repr__(self) -> str:
        return f"<Lora {self.path}>" if not self.handle.is_closed else f"<Lora {self.path}, closed>"
