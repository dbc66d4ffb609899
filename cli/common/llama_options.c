/* SPDX-License-Identifier: Apache-2.0 */
/* llama_options.c: see llama_options.h. The names are those of llama.cpp's common/arg.cpp, and of `vllm serve`. Owns
   nothing. Any thread. */
#include "common/llama_options.h"

#include <string.h>

#include "common/command.h"
#include "common/console.h"

/* names: separated by spaces. ours: the option here, or NULL. advice: the alternative without one, or how values
 * differ. */
typedef struct llama_option {
    const char *names, *ours, *advice;
} llama_option;

#define ONE_DEVICE "one device computes a model, as its file is: leave it out"
#define METADATA "taken from the model's metadata: leave it out"
#define SAMPLER "this sampler is not supported: use --temp, --top-k, --typical, --top-p or --min-p"
#define LOADING "weights are always memory-mapped: leave it out"
#define CONVERSATION "'reprise run' answers each prompt once, 'reprise chat' is a conversation: leave it out"
#define DOWNLOAD \
    "give -m hf:OWNER/REPO[:QUANT], a model of the hub in HF_ENDPOINT; or a file, which 'reprise pull URL' downloads"
#define TLS "TLS is not supported: put a reverse proxy in front of the server"
#define CONTROL "control vectors are not supported: leave it out"

static const llama_option table[] = {
    /* computation */
    {"-ngl --gpu-layers --n-gpu-layers", "device-layers", NULL},
    {"-sm --split-mode -ts --tensor-split -mg --main-gpu -dev --device --list-devices "
     "-nkvo --no-kv-offload "
     "-kvo --kv-offload -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe --no-op-offload --op-offload --rpc "
     "-fit --fit",
     NULL, ONE_DEVICE},
    {"-tb --threads-batch", "threads", NULL},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch --numa",
     "threads", "to select processors use taskset or numactl"},
    {"-b --batch-size -ub --ubatch-size", "chunk", NULL},
    {"-fa --flash-attn", NULL, "there is one implementation of attention: leave it out"},
    {"--mlock --mmap --no-mmap -dio --direct-io --no-repack -nr --check-tensors --warmup --no-warmup", NULL, LOADING},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
     "--yarn-attn-factor --yarn-beta-slow "
     "--yarn-beta-fast -gan --grp-attn-n -gaw --grp-attn-w --override-kv --pooling --attention --swa-full",
     NULL, METADATA},
    {"--lora", "lora", NULL},
    {"--lora-scaled", "lora", "and --lora-scale; in requests to 'reprise serve', the field lora"},
    {"--lora-init-without-apply", NULL,
     "'reprise serve' applies adapters to the requests that name them: leave it out"},
    {"--control-vector --control-vector-scaled --control-vector-layer-range", NULL, CONTROL},
    {"--mmproj -mm --mmproj-url -mmu --image --audio", NULL, "only text is supported: leave it out"},
    {"-mu --model-url -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --offline -dr --docker-repo", NULL, DOWNLOAD},
    /* context and KV cache */
    {"-c --ctx-size", "ctx", NULL},
    {"-np --parallel", "sequences", NULL},
    {"-ctk --cache-type-k -ctv --cache-type-v", "kv-format", "f16, f32 or int8 (like q8_0) for keys and values alike"},
    {"-cram --cache-ram", "kv-ram", "bytes, such as 4G"},
    {"--prompt-cache --slot-save-path", "store", "a folder"},
    {"--prompt-cache-ro", "read-only", NULL},
    {"--prompt-cache-all --cache-prompt --no-cache-prompt --cache-reuse -sps --slot-prompt-similarity -kvu "
     "--kv-unified -dt --defrag-thold "
     "-cb --cont-batching -nocb --no-cont-batching",
     NULL, "the prefix cache and continuous batching are always on: leave it out"},
    {"--keep --context-shift --no-context-shift", NULL, "an answer ends at the end of the context: leave it out"},
    /* prompts and answers */
    {"-p --prompt", "prompt", NULL},
    {"--text", "prompt", "with --raw the model continues the text"}, /* its name here before --prompt was text */
    {"-f --file -bf --binary-file", "file", NULL},
    {"-sys --system-prompt", "system", NULL},
    {"-sysf --system-prompt-file", "system", "its text, as in --system \"$(cat FILE)\""},
    {"-no-cnv --no-conversation", "raw", NULL},
    {"-n --predict --n-predict", "max-tokens", NULL},
    {"-e --escape --no-escape", NULL, "texts are used verbatim: leave it out"},
    {"-r --reverse-prompt", "stop", NULL},
    {"-cnv --conversation -st --single-turn -i --interactive -if --interactive-first -mli --multiline-input "
     "--in-prefix --in-suffix --in-prefix-bos -co --color -sp --special",
     NULL, CONVERSATION},
    {"--chat-template --chat-template-file", "chat-format", NULL},
    {"--jinja --no-jinja --chat-template-kwargs --reasoning-format --skip-chat-parsing --prefill-assistant "
     "--no-prefill-assistant",
     NULL, "chat formats and tool calls are built in: leave it out"},
    {"--reasoning-budget", "thinking", "off, or on"},
    {"--grammar-file", "grammar", NULL},
    {"-j -jf --json-schema-file", "json-schema", "a file, or its text"},
    /* sampling */
    {"-s", "seed", NULL},
    {"--repeat-last-n", "repeat-last", NULL},
    {"--typical-p", "typical", NULL},
    {"-l", "logit-bias", "TOKEN=B"},
    {"--samplers --sampling-seq --sampler-seq", NULL,
     "the order of the samplers is fixed, and llama.cpp's default: leave it out"},
    {"--top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --dry-multiplier --dry-base --dry-allowed-length "
     "--dry-penalty-last-n "
     "--dry-sequence-breaker --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent",
     NULL, SAMPLER},
    {"-md --model-draft -hfd --hf-repo-draft", "draft-model", NULL},
    {"-ngld --gpu-layers-draft --n-gpu-layers-draft -devd --device-draft -cd --ctx-size-draft "
     "-td --threads-draft --draft-min --draft-n-min --draft-p-min --draft-p-split",
     NULL, "the draft model has the model's threads, and its drafts the length that saves most time: leave it out"},
    {"--draft-max --draft-n --draft", "draft", "in requests to 'reprise serve', the field n_draft"},
    /* server */
    {"-a", "name", NULL},
    {"--api-key --api-key-file", "api-keys", "a file; --hash-key prints a key's hash for it"},
    {"--ssl-key-file --ssl-cert-file", NULL, TLS},
    {"--no-webui", "no-page", NULL},
    {"--webui --path --public-path --api-prefix --metrics --slots --no-slots --props --endpoint-metrics --threads-http",
     NULL, "routes are fixed and /metrics is always enabled: leave it out"},
    {"-to --timeout", "idle-timeout", "milliseconds"},
    {"--embedding --embeddings --rerank --reranking", NULL,
     "embeddings and reranking are always enabled: leave it out"},
    {"--host --port", NULL, "only 'reprise serve' listens"},
    /* vLLM */
    {"--max-model-len", "ctx", NULL},
    {"--max-num-seqs", "sequences", NULL},
    {"--max-num-batched-tokens", "chunk", NULL},
    {"--served-model-name", "name", "or --alias"},
    {"--enable-prefix-caching --enable-chunked-prefill", NULL,
     "the prefix cache and chunked prefill are always on: leave it out"},
    {"--tensor-parallel-size --pipeline-parallel-size --gpu-memory-utilization --dtype --quantization", NULL,
     ONE_DEVICE},
    /* log */
    {"--log-disable", "log", "off"},
    {"--log-file --log-colors --log-prefix --log-timestamps --log-verbose -lv --verbosity --log-verbosity "
     "--verbose-prompt --no-display-prompt "
     "--simple-io --no-perf --perf --show-timings",
     NULL, "the environment variables REPRISE_LOG and REPRISE_TRACE set the log level: leave it out"},
};

static const llama_option *find_option(const char *arg, size_t n) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (const char *name = table[i].names; *name != '\0'; name += strspn(name, " ")) {
            size_t length = strcspn(name, " ");
            if (length == n && memcmp(name, arg, n) == 0) return &table[i];
            name += length;
        }
    return NULL;
}

bool cli_llama_option_is(const char *arg, size_t n) { return find_option(arg, n) != NULL; }

static bool has_option(const cli_command *c, const char *name) {
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (!o->positional && strcmp(o->name, name) == 0) return true;
    return false;
}

/* The first command that has the option, or NULL. */
static const cli_command *llama_options_owner_of(const char *name) {
    for (const cli_command *const *c = cli_commands; *c != NULL; c++)
        if (has_option(*c, name)) return *c;
    return NULL;
}

int cli_llama_option_refuse(const cli_command *c, const char *arg, size_t n) {
    const llama_option *o = find_option(arg, n);
    if (o == NULL) return CLI_OK;
    int shown = (int)n;
    const char *between = o->advice != NULL ? ": " : "", *advice = o->advice != NULL ? o->advice : "";
    if (o->ours == NULL)
        return cli_fail(CLI_WRONG_USE, "unknown option '%.*s' of 'reprise %s': %s", shown, arg, c->name, advice);
    if (has_option(c, o->ours))
        return cli_fail(CLI_WRONG_USE, "unknown option '%.*s' of 'reprise %s': use --%s%s%s", shown, arg, c->name,
                        o->ours, between, advice);
    return cli_fail(CLI_WRONG_USE,
                    "unknown option '%.*s' of 'reprise %s': it is --%s of 'reprise %s': leave it out here", shown, arg,
                    c->name, o->ours, llama_options_owner_of(o->ours)->name);
}
