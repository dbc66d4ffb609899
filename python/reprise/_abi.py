# SPDX-License-Identifier: Apache-2.0
# Generated from include/*.h by tools/python_abi: do not edit.
"""The C interface for ctypes: structs, callbacks, constants, and FUNCTIONS, name -> (result, arguments). reprise.h documents them."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

Bytes = bytes  # structs have fields named bytes

VERSION = "0.3.0"

RP_MAX_LINK_TOKENS = 4096
RP_QUALITY_BYTES = 24
RP_MAX_WARNINGS = 16
RP_MAX_KEPT_SHARES = 4096
RP_N_STEP_KINDS = 4
RP_N_ROLES = 4
RP_MAX_MESSAGES = 65536
RP_MAX_TENANT_BYTES = 256
RP_MAX_STOPS = 64
RP_MAX_STOP_BYTES = 1024
RP_MAX_TRIGGER_BYTES = 1024
RP_MAX_LOGPROBS = 100
RP_MAX_DRAFT = 15
RP_DRAFT_AUTO = -1
RP_MAX_SESSION_BYTES = 1024
RP_CHOOSE_SAMPLED = -1
RP_N_POOLINGS = 6
RP_MAX_DOCUMENTS = 1024
RP_MAX_TOOLS = 512
RP_MAX_TOOL_NAME_BYTES = 128
RP_N_STORE_FLAWS = 8
RP_N_STORE_STATES = 5
RP_N_LINT_SEVERITIES = 3
RP_MAX_SPLIT_PROMPTS = 65536
RP_N_POLICIES = 6

KV_FORMATS = ("f16", "f32", "int8", "kivi4", "k4v2", "kivi2")

RP_OK = 0
RP_ERR_INVALID = -1
RP_ERR_MEMORY = -2
RP_ERR_IO = -3
RP_ERR_FORMAT = -4
RP_ERR_UNSUPPORTED = -5
RP_ERR_SYNTAX = -6
RP_ERR_NAME = -7
RP_ERR_CONFLICT = -8
RP_ERR_LENGTH = -9
RP_ERR_CONTEXT = -10
RP_ERR_LIMIT = -11
RP_ERR_CANCELLED = -12
RP_ERR_INTERNAL = -13
RP_ERR_BUSY = -14
RP_ERR_DEADLINE = -15
RP_ERR_BUDGET = -16

RP_LOG_OFF = -1
RP_LOG_ERROR = 0
RP_LOG_WARN = 1
RP_LOG_INFO = 2
RP_LOG_DEBUG = 3

RP_QUALITY_AS_WRITTEN = 0
RP_QUALITY_REUSE = 1
RP_QUALITY_LINK = 2
RP_QUALITY_BLEND = 3
RP_QUALITY_SCAFFOLD = 4
RP_QUALITY_EXACT = 5
RP_QUALITY_FOCUS = 6

RP_KV_F16 = 0
RP_KV_F32 = 1
RP_KV_INT8 = 2
RP_KV_KIVI4 = 3
RP_KV_K4V2 = 4
RP_KV_KIVI2 = 5
RP_N_KV_FORMATS = 6

RP_ADVISES_TEMPERATURE = 1
RP_ADVISES_TOP_K = 2
RP_ADVISES_TOP_P = 4
RP_ADVISES_MIN_P = 8
RP_ADVISES_REPEAT_PENALTY = 16
RP_ADVISES_REPEAT_LAST = 32

RP_STEP_MODULE = 0
RP_STEP_PREFILL = 1
RP_STEP_DECODE = 2
RP_STEP_BACKGROUND = 3

RP_ROLE_SYSTEM = 0
RP_ROLE_USER = 1
RP_ROLE_ASSISTANT = 2
RP_ROLE_TOOL = 3

RP_STORE_WRITE_BACK = 0
RP_STORE_WRITE_THROUGH = 1
RP_STORE_WRITE_OFF = 2

RP_MODULE_STATES_EXACT = 0
RP_MODULE_STATES_LAST = 1
RP_MODULE_STATES_COMPOSED = 2

RP_PROMPT_NONE = 0
RP_PROMPT_TEXT = 1
RP_PROMPT_TOKENS = 2
RP_PROMPT_MESSAGES = 3
RP_PROMPT_RENDERED = 4
RP_PROMPT_PML = 5
RP_PROMPT_BUILT = 6

RP_REUSE_ON = 0
RP_REUSE_OFF = 1
RP_REUSE_EXACT = 2
RP_REUSE_AUTO = 3

RP_STOP_COUNTS = 0
RP_STOP_IS_TEXT = 1
RP_STOP_UNDECIDED = 2

RP_POOLING_OFF = 0
RP_POOLING_MODEL = 1
RP_POOLING_MEAN = 2
RP_POOLING_CLS = 3
RP_POOLING_LAST = 4
RP_POOLING_RANK = 5

RP_JOB_WAITING = 0
RP_JOB_PREFILL = 1
RP_JOB_DECODE = 2
RP_JOB_DONE = 3

RP_SCOPE_AS_WRITTEN = 0
RP_SCOPE_PATH = 1
RP_SCOPE_MODULE = 2

RP_ANCHOR_AS_WRITTEN = 0
RP_ANCHOR_NONE = 1
RP_ANCHOR_BOS = 2

RP_LAYOUT_AS_WRITTEN = 0
RP_LAYOUT_PACKED = 1
RP_LAYOUT_FIXED = 2

RP_TEMPLATE_RENDERED = 0
RP_TEMPLATE_REFUSED = 1
RP_TEMPLATE_WRONG_TYPE = 2
RP_TEMPLATE_FAILED = 3

RP_TOOL_CHOICE_AUTO = 0
RP_TOOL_CHOICE_NONE = 1
RP_TOOL_CHOICE_REQUIRED = 2

RP_THINKING_DEFAULT = 0
RP_THINKING_OFF = 1
RP_THINKING_ON = 2

RP_CHAT_TEXT = 0
RP_CHAT_REASONING = 1
RP_CHAT_CALL = 2
RP_CHAT_ARGUMENTS = 3
RP_CHAT_CALL_END = 4

RP_STORE_MODULE = 0
RP_STORE_TEXT = 1
RP_STORE_UNKNOWN = 2
RP_STORE_REDUCED = 3
RP_STORE_STATES = 4
RP_N_STORE_KINDS = 5

RP_STORE_BY_KEY = 0
RP_STORE_BY_BYTES = 1

RP_STORE_BAD_RECORD = 0
RP_STORE_BAD_ROW = 1
RP_STORE_BAD_INDEX = 2
RP_STORE_WITHOUT_FILE = 3
RP_STORE_WITHOUT_ROW = 4
RP_STORE_LEFTOVER = 5
RP_STORE_OTHER_KV = 6
RP_STORE_OLD_ROW = 7

RP_STORE_OFF = 0
RP_STORE_WORKS = 1
RP_STORE_UNWRITTEN = 2
RP_STORE_READ_ONLY = 3
RP_STORE_UNUSABLE = 4

RP_KV_IN_PLACE_AUTO = 0
RP_KV_IN_PLACE_ALWAYS = 1
RP_KV_IN_PLACE_NEVER = 2

RP_DEVICE_ARITHMETIC_INT8 = 0
RP_DEVICE_ARITHMETIC_F32 = 1

RP_LINT_ERROR = 0
RP_LINT_WARNING = 1
RP_LINT_NOTE = 2

RP_LINT_INVALID_PROMPT = 0
RP_LINT_LONG_ARGUMENT = 1
RP_LINT_EXCEEDS_CONTEXT = 2
RP_LINT_JOINED_WORDS = 3
RP_LINT_CUT_TOKEN = 4
RP_LINT_INDENTATION = 5
RP_LINT_OUTSIDE_REFERENCE = 6
RP_LINT_EMPTY_MODULE = 7
RP_LINT_SMALL_MODULE = 8
RP_LINT_IMPORTED_TOGETHER = 9
RP_LINT_ALWAYS_IMPORTED = 10
RP_LINT_UNEVEN_UNION = 11
RP_LINT_OUTSIDE_NAME = 12
RP_LINT_LONG_PARAMETER = 13
RP_LINT_TEXT_AFTER_PARAMETER = 14
RP_LINT_SHORT_BEGINNING = 15
RP_LINT_MODULE_SCOPE = 16
RP_LINT_SCHEMA_EXCEEDS_CONTEXT = 17
RP_LINT_UNSTABLE_TEMPLATE = 18
RP_LINT_RECURRENT_MODEL = 19
RP_N_LINTS = 20

RP_POLICY_LRU = 0
RP_POLICY_LFU = 1
RP_POLICY_ARC = 2
RP_POLICY_S3_FIFO = 3
RP_POLICY_REPRISE = 4
RP_POLICY_OPTIMUM = 5

RP_SESSIONS_KNOWN = 0
RP_SESSIONS_IGNORED = 1
RP_SESSIONS_ENDED = 2

RP_CLUSTER_TRACE = 0
RP_CLUSTER_SHARED_PREFIX = 1
RP_CLUSTER_RETRIEVAL = 2
RP_CLUSTER_CONVERSATIONS = 3

RP_CLUSTER_POOL_SECOND_USE = 0
RP_CLUSTER_POOL_EVICTED = 1
RP_CLUSTER_POOL_ALWAYS = 2

RP_CLUSTER_TOGETHER = 0
RP_CLUSTER_APART = 1
RP_CLUSTER_APART_BY_COST = 2


class rp_error(Structure):
    code: int
    message: Bytes
    where: Bytes
    offset: int
    retry_after_ms: int
    context_tokens: int
    prompt_tokens: int
    _fields_ = [
        ("code", c_int),
        ("message", c_char * 512),
        ("where", c_char * 256),
        ("offset", c_uint64),
        ("retry_after_ms", c_uint32),
        ("context_tokens", c_int32),
        ("prompt_tokens", c_int64),
    ]

rp_on_progress = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)

rp_on_log = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class rp_quality(Structure):
    mode: int
    amount: int
    _fields_ = [
        ("mode", c_int),
        ("amount", c_int32),
    ]


class rp_logit_bias(Structure):
    token: int
    bias: float
    _fields_ = [
        ("token", c_int32),
        ("bias", c_float),
    ]


class rp_sampling(Structure):
    temperature: float
    top_k: int
    typical: float
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last: int
    bias: Any
    n_bias: int
    seed: int
    reserved: Any
    _fields_ = [
        ("temperature", c_float),
        ("top_k", c_int32),
        ("typical", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repeat_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("repeat_last", c_int32),
        ("bias", POINTER(rp_logit_bias)),
        ("n_bias", c_int32),
        ("seed", c_uint64),
        ("reserved", c_uint64 * 6),
    ]


class rp_token_logprob(Structure):
    token: int
    logprob: float
    _fields_ = [
        ("token", c_int32),
        ("logprob", c_float),
    ]


class rp_plan_item(Structure):
    is_view: bool
    exact: bool
    module: Bytes | None
    n_tokens: int
    position: int
    shift: int
    tier: Bytes | None
    reason: Bytes | None
    key: Bytes
    kept: float
    kept_by: Bytes | None
    full_reason: Bytes | None
    first_kept_share: int
    n_kept_shares: int
    reserved: Any
    _fields_ = [
        ("is_view", c_bool),
        ("exact", c_bool),
        ("module", c_char_p),
        ("n_tokens", c_int32),
        ("position", c_int32),
        ("shift", c_int32),
        ("tier", c_char_p),
        ("reason", c_char_p),
        ("key", c_char * 17),
        ("kept", c_float),
        ("kept_by", c_char_p),
        ("full_reason", c_char_p),
        ("first_kept_share", c_int32),
        ("n_kept_shares", c_int32),
        ("reserved", c_uint64 * 1),
    ]


class rp_mismatch(Structure):
    token: int
    position: int
    module: Bytes | None
    message: Bytes
    before: Bytes | None
    prompt: Bytes | None
    cached: Bytes | None
    reserved: Any
    _fields_ = [
        ("token", c_int32),
        ("position", c_int32),
        ("module", c_char_p),
        ("message", c_char * 24),
        ("before", c_char_p),
        ("prompt", c_char_p),
        ("cached", c_char_p),
        ("reserved", c_uint64 * 4),
    ]


class rp_quality_report(Structure):
    asked: rp_quality
    used: rp_quality
    reason: Bytes | None
    recomputed_tokens: int
    probed_tokens: int
    ms: float
    focus_token: int
    reserved: Any
    _fields_ = [
        ("asked", rp_quality),
        ("used", rp_quality),
        ("reason", c_char_p),
        ("recomputed_tokens", c_int32),
        ("probed_tokens", c_int32),
        ("ms", c_double),
        ("focus_token", c_int64),
        ("reserved", c_uint64 * 3),
    ]


class rp_kv_reduction(Structure):
    method: Bytes | None
    share: float
    bytes_before: int
    bytes: int
    ms: float
    reason: Bytes | None
    reserved: Any
    _fields_ = [
        ("method", c_char_p),
        ("share", c_double),
        ("bytes_before", c_uint64),
        ("bytes", c_uint64),
        ("ms", c_double),
        ("reason", c_char_p),
        ("reserved", c_uint64 * 3),
    ]


class rp_timings(Structure):
    queue_ms: float
    module_prefill_ms: float
    plan_ms: float
    prompt_prefill_ms: float
    ttft_ms: float
    decode_ms: float
    saved_ms: float
    decode_tokens_per_second: float
    reserved: Any
    _fields_ = [
        ("queue_ms", c_double),
        ("module_prefill_ms", c_double),
        ("plan_ms", c_double),
        ("prompt_prefill_ms", c_double),
        ("ttft_ms", c_double),
        ("decode_ms", c_double),
        ("saved_ms", c_double),
        ("decode_tokens_per_second", c_double),
        ("reserved", c_double * 4),
    ]


class rp_result(Structure):
    struct_size: int
    text: Bytes | None
    tokens: Any
    n_tokens: int
    logprobs: Any
    top_logprobs: Any
    n_top: int
    finish_reason: Bytes | None
    stop: Bytes | None
    prompt_tokens: int
    cached_tokens: int
    fresh_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    bytes_copied: int
    kv_bytes: int
    timings: rp_timings
    quality: rp_quality_report
    plan: Any
    n_plan: int
    mismatch: rp_mismatch
    warnings: Any
    n_warnings: int
    owner: int | None
    kv_reduction: rp_kv_reduction
    dropped_messages: int
    context_shifts: int
    kept_step: int
    kept_shares: Any
    n_kept_shares: int
    embedding: Any
    n_embedding: int
    n_prompt_top: int
    prompt_ids: Any
    prompt_logprobs: Any
    prompt_ranks: Any
    prompt_top_logprobs: Any
    adapter_from: int
    inexact_tokens: int
    model_drafted_tokens: int
    model_accepted_tokens: int
    draft_reason: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("text", c_char_p),
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_int32),
        ("logprobs", POINTER(c_float)),
        ("top_logprobs", POINTER(rp_token_logprob)),
        ("n_top", c_int32),
        ("finish_reason", c_char_p),
        ("stop", c_char_p),
        ("prompt_tokens", c_int32),
        ("cached_tokens", c_int32),
        ("fresh_tokens", c_int32),
        ("drafted_tokens", c_int32),
        ("accepted_tokens", c_int32),
        ("bytes_copied", c_uint64),
        ("kv_bytes", c_uint64),
        ("timings", rp_timings),
        ("quality", rp_quality_report),
        ("plan", POINTER(rp_plan_item)),
        ("n_plan", c_int32),
        ("mismatch", rp_mismatch),
        ("warnings", POINTER(c_char_p)),
        ("n_warnings", c_int32),
        ("owner", c_void_p),
        ("kv_reduction", rp_kv_reduction),
        ("dropped_messages", c_int32),
        ("context_shifts", c_int32),
        ("kept_step", c_int32),
        ("kept_shares", POINTER(c_float)),
        ("n_kept_shares", c_int32),
        ("embedding", POINTER(c_float)),
        ("n_embedding", c_int32),
        ("n_prompt_top", c_int32),
        ("prompt_ids", POINTER(c_int32)),
        ("prompt_logprobs", POINTER(c_float)),
        ("prompt_ranks", POINTER(c_int32)),
        ("prompt_top_logprobs", POINTER(rp_token_logprob)),
        ("adapter_from", c_int32),
        ("inexact_tokens", c_int32),
        ("model_drafted_tokens", c_int32),
        ("model_accepted_tokens", c_int32),
        ("draft_reason", c_char_p),
    ]


class rp_step_part(Structure):
    job: int
    kind: int
    n_rows: int
    context_tokens: int
    _fields_ = [
        ("job", c_uint64),
        ("kind", c_int),
        ("n_rows", c_int32),
        ("context_tokens", c_int32),
    ]


class rp_step(Structure):
    struct_size: int
    n_parts: int
    number: int
    start_us: int
    end_us: int
    predicted_us: int
    parts: Any
    n_running: int
    n_waiting: int
    kv_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_parts", c_int32),
        ("number", c_uint64),
        ("start_us", c_uint64),
        ("end_us", c_uint64),
        ("predicted_us", c_uint64),
        ("parts", POINTER(rp_step_part)),
        ("n_running", c_int32),
        ("n_waiting", c_int32),
        ("kv_bytes", c_uint64),
    ]

rp_on_step = CFUNCTYPE(None, c_void_p, POINTER(rp_step))


class rp_model_options(Structure):
    struct_size: int
    chat_format: Bytes | None
    vocabulary_only: bool
    _fields_ = [
        ("struct_size", c_uint32),
        ("chat_format", c_char_p),
        ("vocabulary_only", c_bool),
    ]


class rp_model_info(Structure):
    struct_size: int
    name: Bytes | None
    architecture: Bytes | None
    weights: Bytes | None
    chat_format: Bytes | None
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
    positions: Bytes | None
    movable: bool
    window: int
    n_window_layers: int
    n_experts: int
    n_experts_used: int
    kv_bytes_per_token: int
    fingerprint: Bytes | None
    chat_template: Bytes | None
    is_encoder: bool
    pooling: Bytes | None
    n_scores: int
    infills: bool
    n_recurrent_layers: int
    state_bytes: int
    states_compose: bool
    _fields_ = [
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("architecture", c_char_p),
        ("weights", c_char_p),
        ("chat_format", c_char_p),
        ("chat_format_guessed", c_bool),
        ("parameters", c_uint64),
        ("weight_bytes", c_uint64),
        ("n_layers", c_int32),
        ("n_heads", c_int32),
        ("n_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("n_embd", c_int32),
        ("n_ff", c_int32),
        ("n_vocab", c_int32),
        ("n_ctx_train", c_int32),
        ("positions", c_char_p),
        ("movable", c_bool),
        ("window", c_int32),
        ("n_window_layers", c_int32),
        ("n_experts", c_int32),
        ("n_experts_used", c_int32),
        ("kv_bytes_per_token", c_uint64),
        ("fingerprint", c_char_p),
        ("chat_template", c_char_p),
        ("is_encoder", c_bool),
        ("pooling", c_char_p),
        ("n_scores", c_int32),
        ("infills", c_bool),
        ("n_recurrent_layers", c_int32),
        ("state_bytes", c_uint64),
        ("states_compose", c_bool),
    ]


class rp_message(Structure):
    role: int
    text: Bytes | None
    n: int
    _fields_ = [
        ("role", c_int),
        ("text", c_char_p),
        ("n", c_size_t),
    ]


class rp_engine_options(Structure):
    struct_size: int
    n_threads: int
    n_ctx: int
    ram_bytes: int
    kv_budget_bytes: int
    kv_min_bytes: int
    chunk_tokens: int
    max_sequences: int
    max_queue: int
    token_goal_ms: float
    on_step: Any
    step_user: int | None
    kv_format: int
    kv_f16_layers: Bytes | None
    keep_share: Bytes | None
    keep_method: Bytes | None
    kv_keep: Bytes | None
    kv_method: Bytes | None
    store_dir: Bytes | None
    store_budget_bytes: int
    store_key_file: Bytes | None
    store_write: int
    store_read_only: bool
    weights_dir: Bytes | None
    weights_budget_bytes: int
    weights_min_bytes: int
    scaffold_bytes: int
    audit_every: int
    max_divergence: float
    audit_raises: bool
    cluster: int | None
    experiment: int | None
    draft_model: int | None
    draft_kv_bytes: int
    module_states: int
    device: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_threads", c_int32),
        ("n_ctx", c_int32),
        ("ram_bytes", c_uint64),
        ("kv_budget_bytes", c_uint64),
        ("kv_min_bytes", c_uint64),
        ("chunk_tokens", c_int32),
        ("max_sequences", c_int32),
        ("max_queue", c_int32),
        ("token_goal_ms", c_float),
        ("on_step", rp_on_step),
        ("step_user", c_void_p),
        ("kv_format", c_int),
        ("kv_f16_layers", c_char_p),
        ("keep_share", c_char_p),
        ("keep_method", c_char_p),
        ("kv_keep", c_char_p),
        ("kv_method", c_char_p),
        ("store_dir", c_char_p),
        ("store_budget_bytes", c_uint64),
        ("store_key_file", c_char_p),
        ("store_write", c_int),
        ("store_read_only", c_bool),
        ("weights_dir", c_char_p),
        ("weights_budget_bytes", c_uint64),
        ("weights_min_bytes", c_uint64),
        ("scaffold_bytes", c_uint64),
        ("audit_every", c_int32),
        ("max_divergence", c_float),
        ("audit_raises", c_bool),
        ("cluster", c_void_p),
        ("experiment", c_void_p),
        ("draft_model", c_void_p),
        ("draft_kv_bytes", c_uint64),
        ("module_states", c_int),
        ("device", c_void_p),
    ]


class rp_engine_info(Structure):
    struct_size: int
    n_threads: int
    n_ctx: int
    chunk_tokens: int
    max_sequences: int
    max_queue: int
    kv_format: int
    prepared: bool
    running: int
    waiting: int
    background: int
    kv_bytes_per_token: int
    weights_cache: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_threads", c_int32),
        ("n_ctx", c_int32),
        ("chunk_tokens", c_int32),
        ("max_sequences", c_int32),
        ("max_queue", c_int32),
        ("kv_format", c_int),
        ("prepared", c_bool),
        ("running", c_int32),
        ("waiting", c_int32),
        ("background", c_int32),
        ("kv_bytes_per_token", c_uint64),
        ("weights_cache", c_char_p),
    ]


class rp_memory(Structure):
    struct_size: int
    weights: int
    file: int
    activations: int
    token_trie: int
    kv: int
    kv_limit: int
    weights_file: int
    most: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("weights", c_uint64),
        ("file", c_uint64),
        ("activations", c_uint64),
        ("token_trie", c_uint64),
        ("kv", c_uint64),
        ("kv_limit", c_uint64),
        ("weights_file", c_uint64),
        ("most", c_uint64),
    ]


class rp_quota(Structure):
    kv_bytes: int
    store_bytes: int
    _fields_ = [
        ("kv_bytes", c_uint64),
        ("store_bytes", c_uint64),
    ]


class rp_prompt(Structure):
    kind: int
    continues_last: bool
    content: int | None
    n: int
    turns: int | None
    n_turns: int
    name: Bytes | None
    schema: Bytes | None
    reserved: Any
    _fields_ = [
        ("kind", c_int),
        ("continues_last", c_bool),
        ("content", c_void_p),
        ("n", c_size_t),
        ("turns", c_void_p),
        ("n_turns", c_size_t),
        ("name", c_char_p),
        ("schema", c_char_p),
        ("reserved", c_uint64 * 2),
    ]

rp_on_text = CFUNCTYPE(c_bool, c_void_p, c_char_p, c_size_t)

rp_on_logits = CFUNCTYPE(None, c_void_p, POINTER(c_float), c_int32)

rp_on_choose = CFUNCTYPE(c_int32, c_void_p, POINTER(c_float), c_int32)


class rp_token(Structure):
    struct_size: int
    id: int
    logprob: float
    top: Any
    n_top: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("id", c_int32),
        ("logprob", c_float),
        ("top", POINTER(rp_token_logprob)),
        ("n_top", c_int32),
    ]

rp_on_token = CFUNCTYPE(c_bool, c_void_p, POINTER(rp_token))

rp_on_stop = CFUNCTYPE(c_int, c_void_p, c_char_p, c_char_p, c_size_t, c_size_t)

rp_on_meaning = CFUNCTYPE(c_bool, c_void_p, c_char_p, c_char_p, c_size_t, POINTER(c_uint8))

rp_on_done = CFUNCTYPE(None, c_void_p)


class rp_request(Structure):
    struct_size: int
    prompt: rp_prompt
    tenant: Bytes | None
    flow: Bytes | None
    priority: int
    deadline_ms: int
    turn_tokens: int
    max_tokens: int
    ignore_eos: bool
    sampling: rp_sampling
    stops: Any
    n_stops: int
    on_stop: Any
    grammar: Bytes | None
    grammar_trigger: Bytes | None
    special_text: bool
    n_draft: int
    resumed: Any
    n_resumed: int
    reuse: int
    quality: rp_quality
    shifted_reuse: int
    kv_format: Bytes | None
    kv_keep: Bytes | None
    kv_method: Bytes | None
    adapter: int | None
    adapter_scale: float
    on_meaning: Any
    session: Bytes | None
    parent_session: Bytes | None
    ends_session: bool
    adds_nothing: bool
    retain_s: int
    truncates: bool
    context_shift: bool
    pooling: int
    raw_embedding: bool
    n_logprobs: int
    n_prompt_logprobs: int
    n_kept_shares: int
    on_text: Any
    on_token: Any
    on_logits: Any
    on_choose: Any
    on_progress: Any
    on_done: Any
    user: int | None
    stream: int | None
    stream_tag: int
    experiment: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("prompt", rp_prompt),
        ("tenant", c_char_p),
        ("flow", c_char_p),
        ("priority", c_int32),
        ("deadline_ms", c_int64),
        ("turn_tokens", c_int32),
        ("max_tokens", c_int32),
        ("ignore_eos", c_bool),
        ("sampling", rp_sampling),
        ("stops", POINTER(c_char_p)),
        ("n_stops", c_int32),
        ("on_stop", rp_on_stop),
        ("grammar", c_char_p),
        ("grammar_trigger", c_char_p),
        ("special_text", c_bool),
        ("n_draft", c_int32),
        ("resumed", POINTER(c_int32)),
        ("n_resumed", c_int32),
        ("reuse", c_int),
        ("quality", rp_quality),
        ("shifted_reuse", c_int32),
        ("kv_format", c_char_p),
        ("kv_keep", c_char_p),
        ("kv_method", c_char_p),
        ("adapter", c_void_p),
        ("adapter_scale", c_float),
        ("on_meaning", rp_on_meaning),
        ("session", c_char_p),
        ("parent_session", c_char_p),
        ("ends_session", c_bool),
        ("adds_nothing", c_bool),
        ("retain_s", c_int32),
        ("truncates", c_bool),
        ("context_shift", c_bool),
        ("pooling", c_int),
        ("raw_embedding", c_bool),
        ("n_logprobs", c_int32),
        ("n_prompt_logprobs", c_int32),
        ("n_kept_shares", c_int32),
        ("on_text", rp_on_text),
        ("on_token", rp_on_token),
        ("on_logits", rp_on_logits),
        ("on_choose", rp_on_choose),
        ("on_progress", rp_on_progress),
        ("on_done", rp_on_done),
        ("user", c_void_p),
        ("stream", c_void_p),
        ("stream_tag", c_uint64),
        ("experiment", c_void_p),
    ]


class rp_job_status(Structure):
    struct_size: int
    state: int
    queue_position: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    answer_tokens: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("state", c_int),
        ("queue_position", c_int32),
        ("prompt_tokens", c_int32),
        ("cached_tokens", c_int32),
        ("computed_tokens", c_int32),
        ("answer_tokens", c_int32),
    ]


class rp_stream_event(Structure):
    tag: int
    text: Any
    n_bytes: int
    ended: bool
    incomplete: bool
    reserved: Any
    _fields_ = [
        ("tag", c_uint64),
        ("text", POINTER(c_char)),
        ("n_bytes", c_size_t),
        ("ended", c_bool),
        ("incomplete", c_bool),
        ("reserved", c_uint64 * 2),
    ]


class rp_adapter_info(Structure):
    struct_size: int
    name: Bytes | None
    fingerprint: Bytes | None
    rank: int
    alpha: float
    n_tensors: int
    bytes: int
    invocation_tokens: Any
    n_invocation_tokens: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("fingerprint", c_char_p),
        ("rank", c_int32),
        ("alpha", c_float),
        ("n_tensors", c_int32),
        ("bytes", c_uint64),
        ("invocation_tokens", POINTER(c_int32)),
        ("n_invocation_tokens", c_int32),
    ]


class rp_embedding_input(Structure):
    text: Bytes | None
    n_bytes: int
    second: Bytes | None
    n_second: int
    tokens: Any
    n_tokens: int
    reserved: Any
    _fields_ = [
        ("text", c_char_p),
        ("n_bytes", c_size_t),
        ("second", c_char_p),
        ("n_second", c_size_t),
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_size_t),
        ("reserved", c_uint64 * 2),
    ]


class rp_schema_options(Structure):
    struct_size: int
    tenant: Bytes | None
    name: Bytes | None
    scope: int
    anchor: int
    layout: int
    quality: rp_quality
    scaffold: Bytes | None
    kv_format: Bytes | None
    keep_share: Bytes | None
    keep_method: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("tenant", c_char_p),
        ("name", c_char_p),
        ("scope", c_int),
        ("anchor", c_int),
        ("layout", c_int),
        ("quality", rp_quality),
        ("scaffold", c_char_p),
        ("kv_format", c_char_p),
        ("keep_share", c_char_p),
        ("keep_method", c_char_p),
    ]


class rp_tool(Structure):
    name: Bytes | None
    description: Bytes | None
    parameters: Bytes | None
    strict: bool
    _fields_ = [
        ("name", c_char_p),
        ("description", c_char_p),
        ("parameters", c_char_p),
        ("strict", c_bool),
    ]


class rp_tool_call(Structure):
    id: Bytes | None
    name: Bytes | None
    arguments: Bytes | None
    is_whole: bool
    _fields_ = [
        ("id", c_char_p),
        ("name", c_char_p),
        ("arguments", c_char_p),
        ("is_whole", c_bool),
    ]


class rp_chat_message(Structure):
    role: int
    text: Bytes | None
    reasoning: Bytes | None
    calls: Any
    n_calls: int
    call_id: Bytes | None
    _fields_ = [
        ("role", c_int),
        ("text", c_char_p),
        ("reasoning", c_char_p),
        ("calls", POINTER(rp_tool_call)),
        ("n_calls", c_size_t),
        ("call_id", c_char_p),
    ]


class rp_template_run(Structure):
    end: int
    offset: int
    origin: int
    _fields_ = [
        ("end", c_size_t),
        ("offset", c_size_t),
        ("origin", c_uint32),
    ]


class rp_template_text(Structure):
    bytes: Bytes | None
    n: int
    runs: Any
    n_runs: int
    _fields_ = [
        ("bytes", c_char_p),
        ("n", c_size_t),
        ("runs", POINTER(rp_template_run)),
        ("n_runs", c_size_t),
    ]


class rp_rendered_turn(Structure):
    end: int
    role: int
    _fields_ = [
        ("end", c_size_t),
        ("role", c_int),
    ]

rp_on_look = CFUNCTYPE(c_bool, c_void_p)


class rp_template_options(Structure):
    struct_size: int
    has_time: bool
    time: int
    steps_left: Any
    on_look: Any
    user: int | None
    trusted: Any
    n_trusted: int
    failure: Any
    _fields_ = [
        ("struct_size", c_uint32),
        ("has_time", c_bool),
        ("time", c_int64),
        ("steps_left", POINTER(c_uint64)),
        ("on_look", rp_on_look),
        ("user", c_void_p),
        ("trusted", POINTER(c_char_p)),
        ("n_trusted", c_size_t),
        ("failure", POINTER(c_int)),
    ]


class rp_chat_options(Structure):
    struct_size: int
    messages: Any
    n_messages: int
    tools: Any
    n_tools: int
    tool_choice: int
    tool_name: Bytes | None
    one_call: bool
    json_schema: Bytes | None
    json_object: bool
    regex: Bytes | None
    thinking: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("messages", POINTER(rp_chat_message)),
        ("n_messages", c_size_t),
        ("tools", POINTER(rp_tool)),
        ("n_tools", c_size_t),
        ("tool_choice", c_int),
        ("tool_name", c_char_p),
        ("one_call", c_bool),
        ("json_schema", c_char_p),
        ("json_object", c_bool),
        ("regex", c_char_p),
        ("thinking", c_int),
    ]


class rp_chat_answer(Structure):
    struct_size: int
    text: Bytes | None
    n_text: int
    reasoning: Bytes | None
    n_reasoning: int
    calls: Any
    n_calls: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("text", c_char_p),
        ("n_text", c_size_t),
        ("reasoning", c_char_p),
        ("n_reasoning", c_size_t),
        ("calls", POINTER(rp_tool_call)),
        ("n_calls", c_size_t),
    ]

rp_on_chat_event = CFUNCTYPE(c_bool, c_void_p, c_int, POINTER(rp_tool_call), POINTER(c_char), c_size_t)


class rp_infill_file(Structure):
    name: Bytes | None
    text: Bytes | None
    n_bytes: int
    _fields_ = [
        ("name", c_char_p),
        ("text", c_char_p),
        ("n_bytes", c_size_t),
    ]


class rp_infill(Structure):
    struct_size: int
    prefix: Bytes | None
    suffix: Bytes | None
    n_prefix: int
    n_suffix: int
    begun: Bytes | None
    n_begun: int
    files: Any
    n_files: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("prefix", c_char_p),
        ("suffix", c_char_p),
        ("n_prefix", c_size_t),
        ("n_suffix", c_size_t),
        ("begun", c_char_p),
        ("n_begun", c_size_t),
        ("files", POINTER(rp_infill_file)),
        ("n_files", c_int32),
    ]


class rp_store_options(Structure):
    struct_size: int
    read_only: bool
    create: bool
    key_file: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("read_only", c_bool),
        ("create", c_bool),
        ("key_file", c_char_p),
    ]


class rp_store_entry(Structure):
    key: Bytes
    model: Bytes
    kind: int
    label: Bytes | None
    kv_format: Bytes | None
    fault: Bytes | None
    encrypted: bool
    pinned: bool
    expired: bool
    in_ram: bool
    on_disk: bool
    in_use: bool
    n_tokens: int
    bytes: int
    ram_bytes: int
    cost_us: int
    uses: int
    last_use: int
    expires: int
    reserved: Any
    _fields_ = [
        ("key", c_char * 65),
        ("model", c_char * 65),
        ("kind", c_int),
        ("label", c_char_p),
        ("kv_format", c_char_p),
        ("fault", c_char_p),
        ("encrypted", c_bool),
        ("pinned", c_bool),
        ("expired", c_bool),
        ("in_ram", c_bool),
        ("on_disk", c_bool),
        ("in_use", c_bool),
        ("n_tokens", c_int32),
        ("bytes", c_uint64),
        ("ram_bytes", c_uint64),
        ("cost_us", c_uint64),
        ("uses", c_uint64),
        ("last_use", c_int64),
        ("expires", c_int64),
        ("reserved", c_uint64 * 5),
    ]


class rp_store_listing(Structure):
    struct_size: int
    has_more: bool
    index_unwritten: bool
    entries: Any
    n_entries: int
    owner: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("has_more", c_bool),
        ("index_unwritten", c_bool),
        ("entries", POINTER(rp_store_entry)),
        ("n_entries", c_size_t),
        ("owner", c_void_p),
    ]


class rp_store_selection(Structure):
    name: Bytes | None
    key: Bytes | None
    model: Bytes | None
    modules: bool
    texts: bool
    expired: bool
    all: bool
    _fields_ = [
        ("name", c_char_p),
        ("key", c_char_p),
        ("model", c_char_p),
        ("modules", c_bool),
        ("texts", c_bool),
        ("expired", c_bool),
        ("all", c_bool),
    ]


class rp_store_page(Structure):
    order: int
    limit: int
    after: Bytes | None
    _fields_ = [
        ("order", c_int),
        ("limit", c_size_t),
        ("after", c_char_p),
    ]


class rp_store_usage(Structure):
    struct_size: int
    records: int
    record_bytes: int
    modules: int
    module_bytes: int
    texts: int
    text_bytes: int
    tokens: int
    encrypted: int
    unreadable: int
    pinned: int
    pinned_bytes: int
    expired: int
    expired_bytes: int
    bad: int
    bad_bytes: int
    leftovers: int
    leftover_bytes: int
    foreign: int
    foreign_bytes: int
    broken: int
    without_row: int
    without_file: int
    index_bytes: int
    total_bytes: int
    owner: int
    reduced: int
    reduced_bytes: int
    states: int
    state_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("records", c_uint64),
        ("record_bytes", c_uint64),
        ("modules", c_uint64),
        ("module_bytes", c_uint64),
        ("texts", c_uint64),
        ("text_bytes", c_uint64),
        ("tokens", c_uint64),
        ("encrypted", c_uint64),
        ("unreadable", c_uint64),
        ("pinned", c_uint64),
        ("pinned_bytes", c_uint64),
        ("expired", c_uint64),
        ("expired_bytes", c_uint64),
        ("bad", c_uint64),
        ("bad_bytes", c_uint64),
        ("leftovers", c_uint64),
        ("leftover_bytes", c_uint64),
        ("foreign", c_uint64),
        ("foreign_bytes", c_uint64),
        ("broken", c_uint64),
        ("without_row", c_uint64),
        ("without_file", c_uint64),
        ("index_bytes", c_uint64),
        ("total_bytes", c_uint64),
        ("owner", c_int64),
        ("reduced", c_uint64),
        ("reduced_bytes", c_uint64),
        ("states", c_uint64),
        ("state_bytes", c_uint64),
    ]


class rp_store_finding(Structure):
    struct_size: int
    flaw: int
    path: Bytes | None
    reason: Bytes | None
    message: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("flaw", c_int),
        ("path", c_char_p),
        ("reason", c_char_p),
        ("message", c_char_p),
    ]

rp_on_store_finding = CFUNCTYPE(None, c_void_p, POINTER(rp_store_finding))


class rp_store_verification(Structure):
    struct_size: int
    is_whole: bool
    records: int
    bytes: int
    flaws: Any
    _fields_ = [
        ("struct_size", c_uint32),
        ("is_whole", c_bool),
        ("records", c_uint64),
        ("bytes", c_uint64),
        ("flaws", c_uint64 * 8),
    ]


class rp_store_cleaning(Structure):
    struct_size: int
    index_unwritten: bool
    records: int
    bytes: int
    leftovers: int
    leftover_bytes: int
    bad: int
    bad_bytes: int
    expired: int
    expired_bytes: int
    set_aside: int
    rows_entered: int
    rows_removed: int
    rows_corrected: int
    index_bytes_before: int
    index_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("index_unwritten", c_bool),
        ("records", c_uint64),
        ("bytes", c_uint64),
        ("leftovers", c_uint64),
        ("leftover_bytes", c_uint64),
        ("bad", c_uint64),
        ("bad_bytes", c_uint64),
        ("expired", c_uint64),
        ("expired_bytes", c_uint64),
        ("set_aside", c_uint64),
        ("rows_entered", c_uint64),
        ("rows_removed", c_uint64),
        ("rows_corrected", c_uint64),
        ("index_bytes_before", c_uint64),
        ("index_bytes", c_uint64),
    ]


class rp_store_transfer(Structure):
    struct_size: int
    name: Bytes
    records: int
    bytes: int
    tokens: int
    present: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("name", c_char * 256),
        ("records", c_uint64),
        ("bytes", c_uint64),
        ("tokens", c_uint64),
        ("present", c_uint64),
    ]


class rp_weights_file(Structure):
    struct_size: int
    path: Bytes | None
    name: Bytes | None
    model: Bytes | None
    side: int
    bytes: int
    created: int
    used: int
    is_temporary: bool
    fault: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("path", c_char_p),
        ("name", c_char_p),
        ("model", c_char_p),
        ("side", c_int32),
        ("bytes", c_uint64),
        ("created", c_int64),
        ("used", c_int64),
        ("is_temporary", c_bool),
        ("fault", c_char_p),
    ]

rp_on_weights_file = CFUNCTYPE(None, c_void_p, POINTER(rp_weights_file))


class rp_audit_figures(Structure):
    samples: int
    agreed: int
    mean_kl: float
    max_kl: float
    mean_distance: float
    reserved: Any
    _fields_ = [
        ("samples", c_uint64),
        ("agreed", c_uint64),
        ("mean_kl", c_double),
        ("max_kl", c_double),
        ("mean_distance", c_double),
        ("reserved", c_uint64 * 2),
    ]


class rp_audit_schema(Structure):
    name: Bytes | None
    owner: Bytes
    all: rp_audit_figures
    now: rp_audit_figures
    raised_to: Bytes | None
    exceeds: bool
    _fields_ = [
        ("name", c_char_p),
        ("owner", c_char * 9),
        ("all", rp_audit_figures),
        ("now", rp_audit_figures),
        ("raised_to", c_char_p),
        ("exceeds", c_bool),
    ]


class rp_audit_pair(Structure):
    schema: int
    first: Bytes | None
    second: Bytes | None
    figures: rp_audit_figures
    excess_kl: float
    _fields_ = [
        ("schema", c_size_t),
        ("first", c_char_p),
        ("second", c_char_p),
        ("figures", rp_audit_figures),
        ("excess_kl", c_double),
    ]


class rp_audit_format(Structure):
    schema: int
    format: Bytes | None
    figures: rp_audit_figures
    exceeds: bool
    falls_back: bool
    reserved: Any
    _fields_ = [
        ("schema", c_size_t),
        ("format", c_char_p),
        ("figures", rp_audit_figures),
        ("exceeds", c_bool),
        ("falls_back", c_bool),
        ("reserved", c_uint64 * 2),
    ]


class rp_audit(Structure):
    struct_size: int
    sampled: int
    audited: int
    dropped: int
    waiting: int
    schemas: Any
    n_schemas: int
    pairs: Any
    n_pairs: int
    formats: Any
    n_formats: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("sampled", c_uint64),
        ("audited", c_uint64),
        ("dropped", c_uint64),
        ("waiting", c_uint64),
        ("schemas", POINTER(rp_audit_schema)),
        ("n_schemas", c_size_t),
        ("pairs", POINTER(rp_audit_pair)),
        ("n_pairs", c_size_t),
        ("formats", POINTER(rp_audit_format)),
        ("n_formats", c_size_t),
    ]


class rp_store_stats(Structure):
    struct_size: int
    spans: int
    bytes: int
    budget_bytes: int
    used_bytes: int
    hits: int
    misses: int
    inserts: int
    evictions: int
    expired: int
    disk_spans: int
    disk_bytes: int
    disk_budget_bytes: int
    disk_reads: int
    disk_read_bytes: int
    disk_writes: int
    disk_write_bytes: int
    disk_evictions: int
    disk_unwritten: int
    disk_skipped: int
    disk_late: int
    disk_waiting: int
    disk_waiting_bytes: int
    disk_once_bytes: int
    disk_lag_us: int
    disk_faults: int
    disk_state: int
    disk_trouble: Bytes | None
    host_spans: int
    host_bytes: int
    host_budget_bytes: int
    host_hits: int
    host_in_place: int
    host_evictions: int
    host_reads: int
    host_read_bytes: int
    host_writes: int
    host_write_bytes: int
    pool_looks: int
    pool_reads: int
    pool_read_bytes: int
    pool_faults: int
    pool_writes: int
    pool_write_bytes: int
    pool_present: int
    pool_unwritten: int
    pool_pauses: int
    pool_is_paused: bool
    pool_trouble: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("spans", c_uint64),
        ("bytes", c_uint64),
        ("budget_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("inserts", c_uint64),
        ("evictions", c_uint64),
        ("expired", c_uint64),
        ("disk_spans", c_uint64),
        ("disk_bytes", c_uint64),
        ("disk_budget_bytes", c_uint64),
        ("disk_reads", c_uint64),
        ("disk_read_bytes", c_uint64),
        ("disk_writes", c_uint64),
        ("disk_write_bytes", c_uint64),
        ("disk_evictions", c_uint64),
        ("disk_unwritten", c_uint64),
        ("disk_skipped", c_uint64),
        ("disk_late", c_uint64),
        ("disk_waiting", c_uint64),
        ("disk_waiting_bytes", c_uint64),
        ("disk_once_bytes", c_uint64),
        ("disk_lag_us", c_uint64),
        ("disk_faults", c_uint64),
        ("disk_state", c_int),
        ("disk_trouble", c_char_p),
        ("host_spans", c_uint64),
        ("host_bytes", c_uint64),
        ("host_budget_bytes", c_uint64),
        ("host_hits", c_uint64),
        ("host_in_place", c_uint64),
        ("host_evictions", c_uint64),
        ("host_reads", c_uint64),
        ("host_read_bytes", c_uint64),
        ("host_writes", c_uint64),
        ("host_write_bytes", c_uint64),
        ("pool_looks", c_uint64),
        ("pool_reads", c_uint64),
        ("pool_read_bytes", c_uint64),
        ("pool_faults", c_uint64),
        ("pool_writes", c_uint64),
        ("pool_write_bytes", c_uint64),
        ("pool_present", c_uint64),
        ("pool_unwritten", c_uint64),
        ("pool_pauses", c_uint64),
        ("pool_is_paused", c_bool),
        ("pool_trouble", c_char_p),
    ]


class rp_scaffold_stats(Structure):
    struct_size: int
    known: int
    prefilled: int
    pending: int
    hits: int
    misses: int
    dropped: int
    bytes: int
    budget_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("known", c_uint64),
        ("prefilled", c_uint64),
        ("pending", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("dropped", c_uint64),
        ("bytes", c_uint64),
        ("budget_bytes", c_uint64),
    ]


class rp_name(Structure):
    bytes: Any
    _fields_ = [
        ("bytes", c_uint8 * 16),
    ]


class rp_span_change(Structure):
    name: rp_name
    tiers: int
    _fields_ = [
        ("name", rp_name),
        ("tiers", c_uint32),
    ]

rp_on_spans = CFUNCTYPE(None, c_void_p, POINTER(rp_span_change), c_size_t)


class rp_block_change(Structure):
    name: rp_name
    parent: rp_name
    tiers: int
    tokens: Any
    _fields_ = [
        ("name", rp_name),
        ("parent", rp_name),
        ("tiers", c_uint32),
        ("tokens", POINTER(c_int32)),
    ]

rp_on_blocks = CFUNCTYPE(None, c_void_p, POINTER(rp_block_change), c_size_t)


class rp_cluster_options(Structure):
    struct_size: int
    key: Any
    on_spans: Any
    spans_user: int | None
    on_blocks: Any
    blocks_user: int | None
    blocks_tenant: Bytes | None
    plans_only: bool
    pool: Bytes | None
    pool_write_bytes: int
    identity: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("key", POINTER(c_uint8)),
        ("on_spans", rp_on_spans),
        ("spans_user", c_void_p),
        ("on_blocks", rp_on_blocks),
        ("blocks_user", c_void_p),
        ("blocks_tenant", c_char_p),
        ("plans_only", c_bool),
        ("pool", c_char_p),
        ("pool_write_bytes", c_uint64),
        ("identity", c_char_p),
    ]


class rp_named_kv(Structure):
    name: rp_name
    is_module: bool
    n_tokens: int
    position: int
    bytes: int
    group: int
    reserved_32: int
    reserved: Any
    _fields_ = [
        ("name", rp_name),
        ("is_module", c_bool),
        ("n_tokens", c_int32),
        ("position", c_int32),
        ("bytes", c_uint64),
        ("group", c_int32),
        ("reserved_32", c_uint32),
        ("reserved", c_uint64 * 1),
    ]


class rp_plan_names(Structure):
    struct_size: int
    items: Any
    n_items: int
    prompt_tokens: int
    max_tokens: int
    owner: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("items", POINTER(rp_named_kv)),
        ("n_items", c_int32),
        ("prompt_tokens", c_int32),
        ("max_tokens", c_int32),
        ("owner", c_void_p),
    ]


class rp_engine_load(Structure):
    struct_size: int
    running: int
    waiting: int
    decoding: int
    background: int
    queued_tokens: int
    context_tokens: int
    drain_us: int
    gap_p95_us: int
    kv_bytes_per_token: int
    free_bytes: int
    max_running: int
    chunk_tokens: int
    knot_us: Any
    row_slot_us: float
    slot_us: float
    read_byte_us: float
    quiet_us: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("running", c_int32),
        ("waiting", c_int32),
        ("decoding", c_int32),
        ("background", c_int32),
        ("queued_tokens", c_int64),
        ("context_tokens", c_int64),
        ("drain_us", c_uint64),
        ("gap_p95_us", c_uint64),
        ("kv_bytes_per_token", c_uint64),
        ("free_bytes", c_uint64),
        ("max_running", c_int32),
        ("chunk_tokens", c_int32),
        ("knot_us", c_double * 13),
        ("row_slot_us", c_double),
        ("slot_us", c_double),
        ("read_byte_us", c_double),
        ("quiet_us", c_uint64),
    ]


class rp_device_options(Structure):
    struct_size: int
    name: Bytes | None
    ram_bytes: int
    kv_in_place: int
    layers: int
    arithmetic: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("ram_bytes", c_uint64),
        ("kv_in_place", c_int),
        ("layers", c_int32),
        ("arithmetic", c_int),
    ]


class rp_device_usage(Structure):
    struct_size: int
    is_lost: bool
    limit_bytes: int
    weight_bytes: int
    activation_bytes: int
    kv_bytes: int
    scratch_bytes: int
    host_bytes: int
    to_device_bytes: int
    to_host_bytes: int
    demoted_bytes: int
    demoted_us: int
    in_place_bytes: int
    submits: int
    submit_us: int
    step_us: int
    promoted_bytes: int
    promoted_us: int
    layers: int
    carried_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("is_lost", c_bool),
        ("limit_bytes", c_uint64),
        ("weight_bytes", c_uint64),
        ("activation_bytes", c_uint64),
        ("kv_bytes", c_uint64),
        ("scratch_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("to_device_bytes", c_uint64),
        ("to_host_bytes", c_uint64),
        ("demoted_bytes", c_uint64),
        ("demoted_us", c_uint64),
        ("in_place_bytes", c_uint64),
        ("submits", c_uint64),
        ("submit_us", c_uint64),
        ("step_us", c_uint64),
        ("promoted_bytes", c_uint64),
        ("promoted_us", c_uint64),
        ("layers", c_uint64),
        ("carried_bytes", c_uint64),
    ]


class rp_device(Structure):
    name: Bytes
    description: Bytes
    kind: Bytes
    driver: Bytes
    memory_bytes: int
    is_usable: bool
    is_automatic: bool
    reason: Bytes
    _fields_ = [
        ("name", c_char * 16),
        ("description", c_char * 256),
        ("kind", c_char * 24),
        ("driver", c_char * 512),
        ("memory_bytes", c_uint64),
        ("is_usable", c_bool),
        ("is_automatic", c_bool),
        ("reason", c_char * 160),
    ]


class rp_mock_options(Structure):
    struct_size: int
    chat_format: Bytes | None
    step_us: float
    row_us: float
    row_slot_us: float
    _fields_ = [
        ("struct_size", c_uint32),
        ("chat_format", c_char_p),
        ("step_us", c_double),
        ("row_us", c_double),
        ("row_slot_us", c_double),
    ]


class rp_request_experiment(Structure):
    struct_size: int
    n_forced: int
    forced: Any
    first_position: int
    no_prefix: bool
    n_known: int
    known: Any
    known_share: float
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_forced", c_int32),
        ("forced", POINTER(c_int32)),
        ("first_position", c_int32),
        ("no_prefix", c_bool),
        ("n_known", c_int32),
        ("known", POINTER(c_int32)),
        ("known_share", c_float),
    ]


class rp_engine_experiment(Structure):
    struct_size: int
    pool_at_any_cost: bool
    store_whole_reads: bool
    _fields_ = [
        ("struct_size", c_uint32),
        ("pool_at_any_cost", c_bool),
        ("store_whole_reads", c_bool),
    ]


class rp_quantize_step(Structure):
    struct_size: int
    tensor: Bytes | None
    from_: Bytes | None
    to: Bytes | None
    is_first_row: bool
    is_fallback: bool
    done_bytes: int
    total_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("tensor", c_char_p),
        ("from_", c_char_p),
        ("to", c_char_p),
        ("is_first_row", c_bool),
        ("is_fallback", c_bool),
        ("done_bytes", c_uint64),
        ("total_bytes", c_uint64),
    ]

rp_on_quantize = CFUNCTYPE(c_bool, c_void_p, POINTER(rp_quantize_step))


class rp_quantize_options(Structure):
    struct_size: int
    n_threads: int
    on_step: Any
    user: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("n_threads", c_int32),
        ("on_step", rp_on_quantize),
        ("user", c_void_p),
    ]


class rp_model_summary(Structure):
    struct_size: int
    is_supported: bool
    architecture: Bytes
    weights: Bytes
    reserved: Any
    _fields_ = [
        ("struct_size", c_uint32),
        ("is_supported", c_bool),
        ("architecture", c_char * 64),
        ("weights", c_char * 24),
        ("reserved", c_uint64 * 6),
    ]


class rp_inspect_node(Structure):
    kind: Bytes | None
    name: Bytes | None
    path: Bytes | None
    depth: int
    n_tokens: int
    position: int
    key: Bytes
    taken: bool
    cached: bool
    preview: Bytes | None
    kv_format: Bytes | None
    reserved: Any
    _fields_ = [
        ("kind", c_char_p),
        ("name", c_char_p),
        ("path", c_char_p),
        ("depth", c_int32),
        ("n_tokens", c_int32),
        ("position", c_int32),
        ("key", c_char * 17),
        ("taken", c_bool),
        ("cached", c_bool),
        ("preview", c_char_p),
        ("kv_format", c_char_p),
        ("reserved", c_uint64 * 1),
    ]


class rp_inspect_tile(Structure):
    path: Bytes | None
    position: int
    n_tokens: int
    is_view: bool
    exact: bool
    shift: int
    reserved: Any
    _fields_ = [
        ("path", c_char_p),
        ("position", c_int32),
        ("n_tokens", c_int32),
        ("is_view", c_bool),
        ("exact", c_bool),
        ("shift", c_int32),
        ("reserved", c_uint64 * 2),
    ]


class rp_inspection(Structure):
    struct_size: int
    schema: Bytes | None
    layout: Bytes | None
    scope: Bytes | None
    nodes: Any
    n_nodes: int
    tiles: Any
    n_tiles: int
    schema_positions: int
    prompt_positions: int
    owner: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("schema", c_char_p),
        ("layout", c_char_p),
        ("scope", c_char_p),
        ("nodes", POINTER(rp_inspect_node)),
        ("n_nodes", c_int32),
        ("tiles", POINTER(rp_inspect_tile)),
        ("n_tiles", c_int32),
        ("schema_positions", c_int32),
        ("prompt_positions", c_int32),
        ("owner", c_void_p),
    ]


class rp_lint_prompt(Structure):
    pml: Bytes | None
    n: int
    name: Bytes | None
    _fields_ = [
        ("pml", c_char_p),
        ("n", c_size_t),
        ("name", c_char_p),
    ]


class rp_lint_finding(Structure):
    code: int
    severity: int
    document: Bytes | None
    line: int
    column: int
    module: Bytes | None
    message: Bytes | None
    reserved: Any
    _fields_ = [
        ("code", c_int),
        ("severity", c_int),
        ("document", c_char_p),
        ("line", c_int32),
        ("column", c_int32),
        ("module", c_char_p),
        ("message", c_char_p),
        ("reserved", c_uint64 * 2),
    ]


class rp_lint(Structure):
    struct_size: int
    findings: Any
    n_findings: int
    n_left_out: int
    n_severity: Any
    n_prompts: int
    n_others: int
    owner: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("findings", POINTER(rp_lint_finding)),
        ("n_findings", c_size_t),
        ("n_left_out", c_size_t),
        ("n_severity", c_size_t * 3),
        ("n_prompts", c_size_t),
        ("n_others", c_size_t),
        ("owner", c_void_p),
    ]


class rp_template_change(Structure):
    by_time: bool
    opens_answer: bool
    n_before: int
    n_after: int
    message: int
    line_before: int
    line_after: int
    byte: int
    end: int
    text_line: int
    from_: int
    before: Bytes | None
    after: Bytes | None
    reserved: Any
    _fields_ = [
        ("by_time", c_bool),
        ("opens_answer", c_bool),
        ("n_before", c_int32),
        ("n_after", c_int32),
        ("message", c_int32),
        ("line_before", c_int32),
        ("line_after", c_int32),
        ("byte", c_size_t),
        ("end", c_size_t),
        ("text_line", c_size_t),
        ("from_", c_size_t),
        ("before", c_char_p),
        ("after", c_char_p),
        ("reserved", c_uint64 * 2),
    ]


class rp_template_check_options(Structure):
    struct_size: int
    last_turn: bool
    has_time: bool
    time: int
    max_steps: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("last_turn", c_bool),
        ("has_time", c_bool),
        ("time", c_int64),
        ("max_steps", c_uint64),
    ]


class rp_template_report(Structure):
    struct_size: int
    changes: Any
    n_changes: int
    n_left_out: int
    n_messages: int
    n_rendered: int
    n_bytes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("changes", POINTER(rp_template_change)),
        ("n_changes", c_size_t),
        ("n_left_out", c_size_t),
        ("n_messages", c_size_t),
        ("n_rendered", c_size_t),
        ("n_bytes", c_size_t),
    ]


class rp_split_prompt(Structure):
    name: Bytes | None
    messages: Any
    n_messages: int
    plain: bool
    _fields_ = [
        ("name", c_char_p),
        ("messages", POINTER(rp_message)),
        ("n_messages", c_size_t),
        ("plain", c_bool),
    ]


class rp_split_options(Structure):
    struct_size: int
    min_bytes: int
    name: Bytes | None
    model: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("min_bytes", c_int32),
        ("name", c_char_p),
        ("model", c_void_p),
    ]


class rp_split_module(Structure):
    name: Bytes | None
    is_alternative: bool
    n_params: int
    n_prompts: int
    n_bytes: int
    reserved: Any
    _fields_ = [
        ("name", c_char_p),
        ("is_alternative", c_bool),
        ("n_params", c_int32),
        ("n_prompts", c_int32),
        ("n_bytes", c_size_t),
        ("reserved", c_uint64 * 2),
    ]


class rp_split_import(Structure):
    pml: Bytes | None
    n_pml: int
    total: int
    cached: int
    first: int
    prefix: int
    reserved: Any
    _fields_ = [
        ("pml", c_char_p),
        ("n_pml", c_size_t),
        ("total", c_uint64),
        ("cached", c_uint64),
        ("first", c_uint64),
        ("prefix", c_uint64),
        ("reserved", c_uint64 * 2),
    ]


class rp_split_result(Structure):
    struct_size: int
    counts_tokens: bool
    schema: Bytes | None
    n_schema: int
    anonymous_bytes: int
    modules: Any
    n_modules: int
    prompts: Any
    n_prompts: int
    owner: int | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("counts_tokens", c_bool),
        ("schema", c_char_p),
        ("n_schema", c_size_t),
        ("anonymous_bytes", c_size_t),
        ("modules", POINTER(rp_split_module)),
        ("n_modules", c_size_t),
        ("prompts", POINTER(rp_split_import)),
        ("n_prompts", c_size_t),
        ("owner", c_void_p),
    ]


class rp_simulate_request(Structure):
    blocks: Any
    n_blocks: int
    n_tokens: int
    session: int
    _fields_ = [
        ("blocks", POINTER(c_uint64)),
        ("n_blocks", c_size_t),
        ("n_tokens", c_int32),
        ("session", c_uint64),
    ]


class rp_simulate_options(Structure):
    struct_size: int
    block_tokens: int
    attention_tokens: int
    sessions: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("block_tokens", c_int32),
        ("attention_tokens", c_int32),
        ("sessions", c_int),
    ]


class rp_simulation(Structure):
    struct_size: int
    requests: int
    prompt_tokens: int
    hit_tokens: int
    compute: float
    saved: float
    _fields_ = [
        ("struct_size", c_uint32),
        ("requests", c_uint64),
        ("prompt_tokens", c_uint64),
        ("hit_tokens", c_uint64),
        ("compute", c_double),
        ("saved", c_double),
    ]


class rp_cluster_trace_request(Structure):
    at_ms: float
    blocks: Any
    n_blocks: int
    prompt_tokens: int
    answer_tokens: int
    _fields_ = [
        ("at_ms", c_double),
        ("blocks", POINTER(c_uint64)),
        ("n_blocks", c_size_t),
        ("prompt_tokens", c_int32),
        ("answer_tokens", c_int32),
    ]


class rp_cluster_simulate_options(Structure):
    struct_size: int
    seed: int
    nodes: int
    routers: int
    policy: Bytes | None
    admission: Bytes | None
    ttft_goal_ms: float
    itl_goal_ms: float
    speculative_s: float
    near_ties: float
    index_age_s: float
    latency_ms: float
    kv_tokens: int
    disk_tokens: int
    prefill_tokens_per_s: float
    attention_tokens: float
    decode_ms: float
    disk_bytes_per_s: float
    kv_bytes_per_token: int
    chunk_tokens: int
    max_sequences: int
    max_waiting: int
    no_queues: bool
    workload: int
    speed: float
    rate: float
    requests: int
    groups: int
    prefix_tokens: int
    question_tokens: int
    answer_tokens: int
    documents: int
    chosen: int
    turns: int
    think_s: float
    deadline_s: float
    faults: bool
    block_tokens: int
    trace_sessions: Any
    pool_tokens: int
    pool_fetch_us: float
    pool_rtt_us: float
    pool_writes: int
    apart: int
    prefill_nodes: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("seed", c_uint64),
        ("nodes", c_int32),
        ("routers", c_int32),
        ("policy", c_char_p),
        ("admission", c_char_p),
        ("ttft_goal_ms", c_double),
        ("itl_goal_ms", c_double),
        ("speculative_s", c_double),
        ("near_ties", c_double),
        ("index_age_s", c_double),
        ("latency_ms", c_double),
        ("kv_tokens", c_int64),
        ("disk_tokens", c_int64),
        ("prefill_tokens_per_s", c_double),
        ("attention_tokens", c_double),
        ("decode_ms", c_double),
        ("disk_bytes_per_s", c_double),
        ("kv_bytes_per_token", c_uint64),
        ("chunk_tokens", c_int32),
        ("max_sequences", c_int32),
        ("max_waiting", c_int32),
        ("no_queues", c_bool),
        ("workload", c_int32),
        ("speed", c_double),
        ("rate", c_double),
        ("requests", c_int32),
        ("groups", c_int32),
        ("prefix_tokens", c_int32),
        ("question_tokens", c_int32),
        ("answer_tokens", c_int32),
        ("documents", c_int32),
        ("chosen", c_int32),
        ("turns", c_int32),
        ("think_s", c_double),
        ("deadline_s", c_double),
        ("faults", c_bool),
        ("block_tokens", c_int32),
        ("trace_sessions", POINTER(c_uint64)),
        ("pool_tokens", c_int64),
        ("pool_fetch_us", c_double),
        ("pool_rtt_us", c_double),
        ("pool_writes", c_int32),
        ("apart", c_int32),
        ("prefill_nodes", c_int32),
    ]


class rp_cluster_simulation(Structure):
    struct_size: int
    nodes: int
    routers: int
    requests: int
    outcomes: Any
    router_lost: int
    dropped_turns: int
    prompt_tokens: int
    hit_tokens: int
    answer_tokens: int
    busiest_work: float
    computed_s: float
    seconds: float
    ttft_mean_ms: float
    ttft_p50_ms: float
    ttft_p90_ms: float
    ttft_p99_ms: float
    itl_mean_ms: float
    itl_p50_ms: float
    itl_p95_ms: float
    itl_p99_ms: float
    within_goals: int
    retries: int
    continuations: int
    snapshots: int
    stream_bytes: int
    index_bytes: int
    names: int
    restarts: int
    freezes: int
    lost: int
    cut: int
    delayed: int
    swallowed: int
    router_restarts: int
    hash: int
    broken: Bytes
    fetched_names: int
    fetched_tokens: int
    pool_written_tokens: int
    apart: int
    e2e_mean_ms: float
    _fields_ = [
        ("struct_size", c_uint32),
        ("nodes", c_int32),
        ("routers", c_int32),
        ("requests", c_uint64),
        ("outcomes", c_uint64 * 16),
        ("router_lost", c_uint64),
        ("dropped_turns", c_uint64),
        ("prompt_tokens", c_int64),
        ("hit_tokens", c_int64),
        ("answer_tokens", c_int64),
        ("busiest_work", c_double),
        ("computed_s", c_double),
        ("seconds", c_double),
        ("ttft_mean_ms", c_double),
        ("ttft_p50_ms", c_double),
        ("ttft_p90_ms", c_double),
        ("ttft_p99_ms", c_double),
        ("itl_mean_ms", c_double),
        ("itl_p50_ms", c_double),
        ("itl_p95_ms", c_double),
        ("itl_p99_ms", c_double),
        ("within_goals", c_uint64),
        ("retries", c_uint64),
        ("continuations", c_uint64),
        ("snapshots", c_uint64),
        ("stream_bytes", c_uint64),
        ("index_bytes", c_uint64),
        ("names", c_uint64),
        ("restarts", c_uint64),
        ("freezes", c_uint64),
        ("lost", c_uint64),
        ("cut", c_uint64),
        ("delayed", c_uint64),
        ("swallowed", c_uint64),
        ("router_restarts", c_uint64),
        ("hash", c_uint64),
        ("broken", c_char * 512),
        ("fetched_names", c_uint64),
        ("fetched_tokens", c_int64),
        ("pool_written_tokens", c_int64),
        ("apart", c_uint64),
        ("e2e_mean_ms", c_double),
    ]


class rp_store_recompute_options(Structure):
    struct_size: int
    sample: int
    seed: int
    tenant: Bytes | None
    _fields_ = [
        ("struct_size", c_uint32),
        ("sample", c_size_t),
        ("seed", c_uint64),
        ("tenant", c_char_p),
    ]


class rp_store_recomputed(Structure):
    struct_size: int
    candidates: int
    checked: int
    different: int
    unreadable: int
    unknown_module: int
    unknown_scope: int
    no_memory: int
    _fields_ = [
        ("struct_size", c_uint32),
        ("candidates", c_uint64),
        ("checked", c_uint64),
        ("different", c_uint64),
        ("unreadable", c_uint64),
        ("unknown_module", c_uint64),
        ("unknown_scope", c_uint64),
        ("no_memory", c_uint64),
    ]

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rp_code_name": (c_char_p, [c_int]),
    "rp_code_text": (c_char_p, [c_int]),
    "rp_log_set_level": (None, [c_int]),
    "rp_log_set_callback": (None, [rp_on_log, c_void_p]),
    "rp_log_start": (c_int, []),
    "rp_log_line": (None, [c_char_p]),
    "rp_log_dropped": (c_uint64, []),
    "rp_log_stop": (None, [c_int32]),
    "rp_quality_parse": (c_int, [c_char_p, POINTER(rp_quality), POINTER(rp_error)]),
    "rp_quality_text": (c_char_p, [rp_quality, c_char_p]),
    "rp_kv_format_name": (c_char_p, [c_int32]),
    "rp_keep_method_name": (c_char_p, [c_int32]),
    "rp_kv_method_name": (c_char_p, [c_int32]),
    "rp_sampling_defaults": (rp_sampling, []),
    "rp_model_sampling": (c_uint32, [c_void_p, POINTER(rp_sampling)]),
    "rp_version": (c_char_p, []),
    "rp_model_options_init": (None, [POINTER(rp_model_options), c_uint32]),
    "rp_model_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(rp_model_options), POINTER(rp_error)]),
    "rp_model_close": (None, [c_void_p]),
    "rp_model_describe": (c_int, [c_void_p, POINTER(rp_model_info)]),
    "rp_model_fingerprint": (c_int, [c_void_p, c_int32, rp_on_progress, c_void_p, POINTER(c_char_p), POINTER(rp_error)]),
    "rp_chat_format_name": (c_char_p, [c_int]),
    "rp_role_name": (c_char_p, [c_int]),
    "rp_role_parse": (c_bool, [c_char_p, POINTER(c_int)]),
    "rp_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_bool, c_bool, POINTER(POINTER(c_int32)), POINTER(c_size_t), POINTER(rp_error)]),
    "rp_tokenize_embedding": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, c_size_t, POINTER(POINTER(c_int32)), POINTER(c_size_t), POINTER(rp_error)]),
    "rp_tokenize_messages": (c_int, [c_void_p, POINTER(rp_message), c_size_t, c_bool, POINTER(POINTER(c_int32)), POINTER(c_size_t), POINTER(rp_error)]),
    "rp_token_bytes": (POINTER(c_char), [c_void_p, c_int32, c_bool, POINTER(c_size_t)]),
    "rp_free": (None, [c_void_p]),
    "rp_engine_options_init": (None, [POINTER(rp_engine_options), c_uint32]),
    "rp_engine_new": (c_int, [POINTER(c_void_p), c_void_p, POINTER(rp_engine_options), POINTER(rp_error)]),
    "rp_engine_free": (None, [c_void_p]),
    "rp_engine_close": (c_size_t, [c_void_p, c_int64]),
    "rp_engine_describe": (c_int, [c_void_p, POINTER(rp_engine_info)]),
    "rp_engine_prepare": (c_int, [c_void_p, rp_on_progress, c_void_p, POINTER(rp_error)]),
    "rp_engine_drain": (c_bool, [c_void_p, c_int64]),
    "rp_engine_memory": (c_int, [c_void_p, POINTER(rp_memory)]),
    "rp_engine_set_quota": (c_int, [c_void_p, c_char_p, POINTER(rp_quota), POINTER(rp_error)]),
    "rp_pooling_name": (c_char_p, [c_int]),
    "rp_pooling_parse": (c_int, [c_char_p, POINTER(c_int), POINTER(rp_error)]),
    "rp_request_init": (None, [POINTER(rp_request), c_uint32]),
    "rp_engine_submit": (c_int, [c_void_p, POINTER(rp_request), POINTER(c_void_p), POINTER(rp_error)]),
    "rp_job_wait": (c_bool, [c_void_p, c_int64]),
    "rp_job_result": (c_int, [c_void_p, POINTER(POINTER(rp_result)), POINTER(rp_error)]),
    "rp_job_cancel": (None, [c_void_p]),
    "rp_job_pause": (None, [c_void_p]),
    "rp_job_resume": (None, [c_void_p]),
    "rp_job_free": (None, [c_void_p]),
    "rp_job_get_status": (c_int, [c_void_p, POINTER(rp_job_status)]),
    "rp_job_number": (c_uint64, [c_void_p]),
    "rp_engine_run": (c_int, [c_void_p, POINTER(rp_request), POINTER(POINTER(rp_result)), POINTER(rp_error)]),
    "rp_result_free": (None, [POINTER(rp_result)]),
    "rp_stream_new": (c_int, [POINTER(c_void_p), POINTER(rp_error)]),
    "rp_stream_free": (None, [c_void_p]),
    "rp_stream_fd": (c_int, [c_void_p]),
    "rp_stream_read": (c_int32, [c_void_p, c_int64, POINTER(POINTER(rp_stream_event))]),
    "rp_adapter_open": (c_int, [POINTER(c_void_p), c_void_p, c_char_p, POINTER(rp_error)]),
    "rp_adapter_close": (None, [c_void_p]),
    "rp_adapter_describe": (c_int, [c_void_p, POINTER(rp_adapter_info)]),
    "rp_engine_embed": (c_int, [c_void_p, POINTER(rp_request), POINTER(rp_embedding_input), c_size_t, POINTER(POINTER(rp_result)), POINTER(rp_error)]),
    "rp_schema_options_init": (None, [POINTER(rp_schema_options), c_uint32]),
    "rp_schema_load": (c_int, [c_void_p, c_char_p, POINTER(rp_schema_options), POINTER(c_void_p), POINTER(rp_error)]),
    "rp_schema_parse": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_char_p, POINTER(rp_schema_options), POINTER(c_void_p), POINTER(rp_error)]),
    "rp_schema_name": (c_char_p, [c_void_p]),
    "rp_schema_unload": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(rp_error)]),
    "rp_schema_prefill": (c_int, [c_void_p, c_char_p, c_char_p, rp_on_progress, c_void_p, POINTER(rp_error)]),
    "rp_schema_submit": (c_int, [c_void_p, c_char_p, c_char_p, rp_on_progress, c_void_p, POINTER(c_void_p), POINTER(rp_error)]),
    "rp_builder_new": (c_int, [POINTER(c_void_p), c_char_p, POINTER(rp_error)]),
    "rp_builder_free": (None, [c_void_p]),
    "rp_builder_import": (c_int, [c_void_p, c_char_p]),
    "rp_builder_set_argument": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "rp_builder_append_text": (c_int, [c_void_p, c_char_p, c_size_t]),
    "rp_builder_append_rendered": (c_int, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "rp_builder_append_document": (c_int, [c_void_p, c_char_p, c_size_t]),
    "rp_builder_append_pml": (c_int, [c_void_p, c_char_p, c_size_t]),
    "rp_builder_begin_role": (c_int, [c_void_p, c_int]),
    "rp_builder_begin_message": (c_int, [c_void_p, c_int]),
    "rp_builder_end_role": (c_int, [c_void_p]),
    "rp_template_options_init": (None, [POINTER(rp_template_options), c_uint32]),
    "rp_template_new": (c_int, [POINTER(c_void_p), c_char_p, c_size_t, c_char_p, POINTER(rp_error)]),
    "rp_template_free": (None, [c_void_p]),
    "rp_model_template": (c_void_p, [c_void_p]),
    "rp_template_uses": (c_bool, [c_void_p, c_char_p]),
    "rp_template_render": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(rp_template_options), POINTER(POINTER(rp_template_text)), POINTER(rp_error)]),
    "rp_template_text_free": (None, [POINTER(rp_template_text)]),
    "rp_model_render": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(rp_template_options), POINTER(POINTER(rp_template_text)), POINTER(rp_error)]),
    "rp_tokenize_rendered": (c_int, [c_void_p, POINTER(rp_template_text), POINTER(POINTER(c_int32)), POINTER(c_size_t), POINTER(rp_error)]),
    "rp_count_rendered": (c_int, [c_void_p, POINTER(rp_template_text), POINTER(rp_rendered_turn), c_size_t, POINTER(c_size_t), POINTER(c_size_t), POINTER(rp_error)]),
    "rp_template_input_new": (c_int, [POINTER(c_void_p), POINTER(rp_error)]),
    "rp_template_input_free": (None, [c_void_p]),
    "rp_template_input_key": (None, [c_void_p, c_char_p]),
    "rp_template_input_text": (c_uint32, [c_void_p, c_char_p, c_size_t]),
    "rp_template_input_json": (None, [c_void_p, c_char_p, c_size_t]),
    "rp_template_input_begin_dict": (None, [c_void_p]),
    "rp_template_input_begin_list": (None, [c_void_p]),
    "rp_template_input_end": (None, [c_void_p]),
    "rp_template_render_input": (c_int, [c_void_p, c_void_p, POINTER(rp_template_options), POINTER(POINTER(rp_template_text)), POINTER(rp_error)]),
    "rp_model_render_input": (c_int, [c_void_p, c_void_p, POINTER(rp_template_options), POINTER(POINTER(rp_template_text)), POINTER(rp_error)]),
    "rp_chat_options_init": (None, [POINTER(rp_chat_options), c_uint32]),
    "rp_chat_new": (c_int, [POINTER(c_void_p), c_void_p, POINTER(rp_chat_options), POINTER(rp_error)]),
    "rp_chat_free": (None, [c_void_p]),
    "rp_chat_grammar": (c_char_p, [c_void_p]),
    "rp_chat_trigger": (c_char_p, [c_void_p]),
    "rp_chat_warning": (c_char_p, [c_void_p, c_size_t]),
    "rp_chat_submit": (c_int, [c_void_p, c_void_p, POINTER(rp_request), POINTER(c_void_p), POINTER(rp_error)]),
    "rp_chat_run": (c_int, [c_void_p, c_void_p, POINTER(rp_request), POINTER(POINTER(rp_result)), POINTER(rp_error)]),
    "rp_model_writes_control_marks": (c_bool, [c_void_p]),
    "rp_chat_parse": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(POINTER(rp_chat_answer)), POINTER(rp_error)]),
    "rp_chat_answer_free": (None, [POINTER(rp_chat_answer)]),
    "rp_chat_reader_new": (c_int, [POINTER(c_void_p), c_void_p, rp_on_chat_event, c_void_p, POINTER(rp_error)]),
    "rp_chat_reader_feed": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(rp_error)]),
    "rp_chat_reader_end": (c_int, [c_void_p, POINTER(POINTER(rp_chat_answer)), POINTER(rp_error)]),
    "rp_chat_reader_free": (None, [c_void_p]),
    "rp_json_schema_grammar": (c_int, [c_char_p, c_size_t, POINTER(c_char_p), POINTER(rp_error)]),
    "rp_tokenize_infill": (c_int, [c_void_p, POINTER(rp_infill), POINTER(POINTER(c_int32)), POINTER(c_size_t), POINTER(rp_error)]),
    "rp_store_options_init": (None, [POINTER(rp_store_options), c_uint32]),
    "rp_store_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(rp_store_options), POINTER(rp_error)]),
    "rp_store_attach": (c_int, [POINTER(c_void_p), c_void_p, POINTER(rp_error)]),
    "rp_store_close": (None, [c_void_p]),
    "rp_store_kind_name": (c_char_p, [c_int]),
    "rp_store_list": (c_int, [c_void_p, POINTER(rp_store_selection), POINTER(rp_store_page), POINTER(POINTER(rp_store_listing)), POINTER(rp_error)]),
    "rp_store_listing_free": (None, [POINTER(rp_store_listing)]),
    "rp_store_pin": (c_int, [c_void_p, POINTER(rp_store_selection), c_bool, POINTER(POINTER(rp_store_listing)), POINTER(rp_error)]),
    "rp_store_set_ttl": (c_int, [c_void_p, POINTER(rp_store_selection), c_int64, POINTER(POINTER(rp_store_listing)), POINTER(rp_error)]),
    "rp_store_remove": (c_int, [c_void_p, POINTER(rp_store_selection), POINTER(POINTER(rp_store_listing)), POINTER(rp_error)]),
    "rp_store_get_usage": (c_int, [c_void_p, POINTER(rp_store_usage), POINTER(rp_error)]),
    "rp_store_flaw_name": (c_char_p, [c_int]),
    "rp_store_flaw_is_damage": (c_bool, [c_int]),
    "rp_store_verify": (c_int, [c_void_p, rp_on_progress, rp_on_store_finding, c_void_p, POINTER(rp_store_verification), POINTER(rp_error)]),
    "rp_store_gc": (c_int, [c_void_p, rp_on_progress, c_void_p, POINTER(rp_store_cleaning), POINTER(rp_error)]),
    "rp_store_rebuild": (c_int, [c_void_p, rp_on_progress, c_void_p, POINTER(rp_store_cleaning), POINTER(rp_error)]),
    "rp_store_export": (c_int, [c_void_p, c_char_p, c_char_p, rp_on_progress, c_void_p, POINTER(rp_store_transfer), POINTER(rp_error)]),
    "rp_store_import": (c_int, [c_void_p, c_char_p, rp_on_progress, c_void_p, POINTER(rp_store_transfer), POINTER(rp_error)]),
    "rp_weights_each": (c_int, [c_char_p, c_bool, rp_on_progress, rp_on_weights_file, c_void_p, POINTER(rp_error)]),
    "rp_weights_remove": (c_int, [c_char_p, c_char_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(rp_error)]),
    "rp_weights_clean": (c_int, [c_char_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(rp_error)]),
    "rp_engine_audit": (c_int, [c_void_p, POINTER(POINTER(rp_audit)), POINTER(rp_error)]),
    "rp_store_read_audit": (c_int, [c_void_p, POINTER(POINTER(rp_audit)), c_char_p, POINTER(rp_error)]),
    "rp_audit_free": (None, [POINTER(rp_audit)]),
    "rp_store_state_name": (c_char_p, [c_int]),
    "rp_engine_store_stats": (c_int, [c_void_p, POINTER(rp_store_stats)]),
    "rp_engine_scaffold_stats": (c_int, [c_void_p, POINTER(rp_scaffold_stats)]),
    "rp_plan_names_of": (c_int, [c_void_p, POINTER(rp_request), POINTER(POINTER(rp_plan_names)), POINTER(rp_error)]),
    "rp_plan_names_free": (None, [POINTER(rp_plan_names)]),
    "rp_engine_identity": (c_char_p, [c_void_p]),
    "rp_engine_get_load": (c_int, [c_void_p, POINTER(rp_engine_load)]),
    "rp_cluster_policy_name": (c_char_p, [c_int32]),
    "rp_cluster_admission_name": (c_char_p, [c_int32]),
    "rp_cluster_outcome_name": (c_char_p, [c_int32]),
    "rp_engine_device_usage": (c_int, [c_void_p, POINTER(rp_device_usage)]),
    "rp_devices": (c_int, [POINTER(rp_device), c_size_t, POINTER(c_size_t), POINTER(rp_error)]),
    "rp_model_open_mock": (c_int, [POINTER(c_void_p), c_char_p, POINTER(rp_mock_options), POINTER(rp_error)]),
    "rp_quantize_options_init": (None, [POINTER(rp_quantize_options), c_uint32]),
    "rp_model_quantize": (c_int, [c_char_p, c_char_p, c_char_p, POINTER(rp_quantize_options), POINTER(rp_error)]),
    "rp_model_summarize": (c_int, [c_char_p, POINTER(rp_model_summary), POINTER(rp_error)]),
    "rp_model_measure": (c_int, [c_char_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(rp_error)]),
    "rp_engine_inspect": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_char_p, POINTER(POINTER(rp_inspection)), POINTER(rp_error)]),
    "rp_engine_inspect_prompt": (c_int, [c_void_p, c_char_p, c_void_p, c_char_p, POINTER(POINTER(rp_inspection)), POINTER(rp_error)]),
    "rp_inspection_free": (None, [POINTER(rp_inspection)]),
    "rp_lint_name": (c_char_p, [c_int]),
    "rp_lint_severity_name": (c_char_p, [c_int]),
    "rp_schema_lint": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_char_p, POINTER(rp_lint_prompt), c_size_t, c_int32, POINTER(POINTER(rp_lint)), POINTER(rp_error)]),
    "rp_schema_lint_file": (c_int, [c_void_p, c_char_p, POINTER(rp_lint_prompt), c_size_t, c_int32, POINTER(POINTER(rp_lint)), POINTER(rp_error)]),
    "rp_lint_free": (None, [POINTER(rp_lint)]),
    "rp_model_lint": (c_int, [c_void_p, POINTER(POINTER(rp_lint)), POINTER(rp_error)]),
    "rp_template_check_options_init": (None, [POINTER(rp_template_check_options), c_uint32]),
    "rp_template_check": (c_int, [c_void_p, c_void_p, c_char_p, c_size_t, POINTER(rp_template_check_options), POINTER(POINTER(rp_template_report)), POINTER(rp_error)]),
    "rp_template_check_input": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(rp_template_check_options), POINTER(POINTER(rp_template_report)), POINTER(rp_error)]),
    "rp_template_report_free": (None, [POINTER(rp_template_report)]),
    "rp_template_advice": (c_char_p, [c_void_p, POINTER(rp_template_change)]),
    "rp_split_options_init": (None, [POINTER(rp_split_options), c_uint32]),
    "rp_split": (c_int, [POINTER(rp_split_prompt), c_size_t, POINTER(rp_split_options), POINTER(POINTER(rp_split_result)), POINTER(rp_error)]),
    "rp_split_free": (None, [POINTER(rp_split_result)]),
    "rp_policy_name": (c_char_p, [c_int]),
    "rp_simulate_options_init": (None, [POINTER(rp_simulate_options), c_uint32]),
    "rp_simulator_new": (c_int, [POINTER(c_void_p), POINTER(rp_simulate_request), c_size_t, POINTER(rp_simulate_options), POINTER(rp_error)]),
    "rp_simulator_free": (None, [c_void_p]),
    "rp_simulator_blocks": (c_size_t, [c_void_p]),
    "rp_simulator_run": (c_int, [c_void_p, c_int, c_size_t, POINTER(rp_simulation), POINTER(rp_error)]),
    "rp_cluster_simulate_options_init": (None, [POINTER(rp_cluster_simulate_options), c_uint32]),
    "rp_cluster_simulate": (c_int, [POINTER(rp_cluster_simulate_options), POINTER(rp_cluster_trace_request), c_size_t, POINTER(rp_cluster_simulation), POINTER(rp_error)]),
    "rp_store_recompute_options_init": (None, [POINTER(rp_store_recompute_options), c_uint32]),
    "rp_store_recompute": (c_int, [c_void_p, c_void_p, POINTER(rp_store_recompute_options), rp_on_progress, rp_on_store_finding, c_void_p, POINTER(rp_store_recomputed), POINTER(rp_error)]),
}
