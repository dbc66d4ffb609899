/* SPDX-License-Identifier: Apache-2.0 */
/* load_counter.c: see load_counter.h. Instructions and operands are those of the SPIR-V specification, section 3.
 *
 * Variables of each invocation, with a count of 0:
 *
 *   first in main     begin, end = those of the table
 *   of a load of n bytes at a pointer
 *                     address = ConvertPtrToU pointer;  count += begin <= address && address < end ? n : 0
 *   last in main      old = AtomicIAdd low, count;  AtomicIAdd high, old + count < old ? 1 : 0
 */
#include "load_counter.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "support/must.h"

typedef struct range {
    uint64_t begin, end;
    uint32_t low, high;
} range;

static vulkan_device *device;
static PFN_vkCreateShaderModule create_module;
static vulkan_buffer table; /* a range */

enum { MEMORY_MODEL = 14,
       ENTRY_POINT = 15,
       TYPE_BOOL = 20,
       TYPE_INT = 21,
       TYPE_FLOAT = 22,
       TYPE_VECTOR = 23,
       TYPE_STRUCT = 30,
       TYPE_POINTER = 32,
       CONSTANT = 43,
       FUNCTION = 54,
       VARIABLE = 59,
       LOAD = 61,
       STORE = 62,
       PTR_TO_U = 117,
       U_TO_PTR = 120,
       IADD = 128,
       AND = 167,
       SELECT = 169,
       NOT_LESS = 174,
       LESS = 176,
       ATOMIC_IADD = 234,
       LABEL = 248,
       RETURN = 253 };
#define BY_ADDRESS 5349u /* storage classes */
#define OF_INVOCATION 6u
#define ALIGNED 2u   /* an operand of Load */
#define MAX_SIZE 64u /* of a load, in bytes */
#define SCOPE_DEVICE 1u
#define SCOPE_QUEUES 5u
#define MODEL_VULKAN 3u     /* in which the scope of a device needs a capability */
#define WORDS_OF_A_LOAD 64u /* more than what is added for it */

typedef struct rewriter {
    uint32_t *out;
    size_t n;
    uint32_t bound;
    uint32_t *sizes, *classes, *types; /* [ids]: bytes of a type; storage class of a pointer type; type of a value */
    uint32_t uint_type, ulong_type, bool_type;
    uint32_t to_uint, to_ulong;     /* types of pointers to the table */
    uint32_t numbers[MAX_SIZE + 1]; /* constants: 0 to MAX_SIZE; addresses of the table's words */
    uint32_t members[sizeof(range) / 4];
    uint32_t begin, end, count; /* variables of the invocation; ids that are taken first */
    uint32_t main;              /* the function */
    uint32_t scope;             /* of atomic operations */
} rewriter;

static void emit(rewriter *w, uint32_t op, const uint32_t *operands, size_t n) {
    w->out[w->n++] = (uint32_t)(n + 1) << 16 | op;
    memcpy(w->out + w->n, operands, n * sizeof(*operands));
    w->n += n;
}

/* An instruction with a result of a type; returns its id. */
#define EMIT(w, op, type, ...) emit_value(w, op, type, (uint32_t[]){__VA_ARGS__}, \
                                          sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
static uint32_t emit_value(rewriter *w, uint32_t op, uint32_t type, const uint32_t *operands, size_t n) {
    uint32_t all[16] = {type, w->bound};
    BASE_ASSERT(n + 2 <= 16);
    memcpy(all + 2, operands, n * sizeof(*operands));
    emit(w, op, all, n + 2);
    return w->bound++;
}

/* Keeps what an instruction of the module defines. */
static void read_instruction(rewriter *w, const uint32_t *i) {
    const uint32_t op = i[0] & 0xffff, n = i[0] >> 16;
    switch (op) {
    case MEMORY_MODEL: w->scope = i[2] == MODEL_VULKAN ? SCOPE_QUEUES : SCOPE_DEVICE; break;
    case TYPE_BOOL: w->bool_type = i[1]; break;
    case TYPE_INT:
        w->sizes[i[1]] = i[2] / 8;
        if (i[2] == 32 && i[3] == 0) w->uint_type = i[1];
        if (i[2] == 64 && i[3] == 0) w->ulong_type = i[1];
        break;
    case TYPE_FLOAT: w->sizes[i[1]] = i[2] / 8; break;
    case TYPE_VECTOR: w->sizes[i[1]] = w->sizes[i[2]] * i[3]; break;
    case TYPE_STRUCT:
        for (uint32_t k = 2; k < n; k++) w->sizes[i[1]] += w->sizes[i[k]];
        break;
    case TYPE_POINTER:
        w->sizes[i[1]] = sizeof(uint64_t);
        w->classes[i[1]] = i[2];
        break;
    case 55:
    case VARIABLE:
    case LOAD:
    case 65:
    case 66:
    case 67:
    case 83:
    case U_TO_PTR:
    case 124:
    case SELECT:
        w->types[i[2]] = i[1]; /* parameters, variables, chains, copies */
        break;
    default: break;
    }
}

/* The pointer to a member of the table. */
static uint32_t table_at(rewriter *w, uint32_t pointer_type, size_t offset) {
    return EMIT(w, U_TO_PTR, pointer_type, w->members[offset / 4]);
}

static void emit_pointer_type(rewriter *w, uint32_t *out, uint32_t class, uint32_t type) {
    *out = w->bound++;
    emit(w, TYPE_POINTER, (uint32_t[]){*out, class, type}, 3);
}

/* Types, constants and variables, before the first function. */
static void emit_globals(rewriter *w) {
    uint32_t own_uint, own_ulong;
    BASE_ASSERT(w->uint_type && w->ulong_type); /* of arguments */
    if (!w->bool_type) emit(w, TYPE_BOOL, (uint32_t[]){w->bool_type = w->bound++}, 1);
    emit_pointer_type(w, &w->to_uint, BY_ADDRESS, w->uint_type);
    emit_pointer_type(w, &w->to_ulong, BY_ADDRESS, w->ulong_type);
    emit_pointer_type(w, &own_uint, OF_INVOCATION, w->uint_type);
    emit_pointer_type(w, &own_ulong, OF_INVOCATION, w->ulong_type);
    for (uint32_t i = 0; i <= MAX_SIZE; i++) w->numbers[i] = EMIT(w, CONSTANT, w->uint_type, i);
    for (size_t i = 0; i < sizeof(range) / 4; i++) {
        const uint64_t at = table.address + 4 * i;
        w->members[i] = EMIT(w, CONSTANT, w->ulong_type, (uint32_t)at, (uint32_t)(at >> 32));
    }
    emit(w, VARIABLE, (uint32_t[]){own_ulong, w->begin, OF_INVOCATION}, 3);
    emit(w, VARIABLE, (uint32_t[]){own_ulong, w->end, OF_INVOCATION}, 3);
    emit(w, VARIABLE, (uint32_t[]){own_uint, w->count, OF_INVOCATION, w->numbers[0]}, 4);
}

static uint32_t emit_atomic_add(rewriter *w, size_t offset, uint32_t value) {
    const uint32_t pointer = table_at(w, w->to_uint, offset);
    return EMIT(w, ATOMIC_IADD, w->uint_type, pointer, w->numbers[w->scope], w->numbers[0], value);
}

static void emit_first(rewriter *w) {
    const uint32_t begin = table_at(w, w->to_ulong, offsetof(range, begin));
    emit(w, STORE, (uint32_t[]){w->begin, EMIT(w, LOAD, w->ulong_type, begin, ALIGNED, 8)}, 2);
    const uint32_t end = table_at(w, w->to_ulong, offsetof(range, end));
    emit(w, STORE, (uint32_t[]){w->end, EMIT(w, LOAD, w->ulong_type, end, ALIGNED, 8)}, 2);
}

static void emit_count(rewriter *w, uint32_t pointer, uint32_t size) {
    BASE_ASSERT(size > 0 && size <= MAX_SIZE);
    const uint32_t address = EMIT(w, PTR_TO_U, w->ulong_type, pointer);
    const uint32_t begin = EMIT(w, LOAD, w->ulong_type, w->begin);
    const uint32_t end = EMIT(w, LOAD, w->ulong_type, w->end);
    const uint32_t after = EMIT(w, NOT_LESS, w->bool_type, address, begin);
    const uint32_t before = EMIT(w, LESS, w->bool_type, address, end);
    const uint32_t in = EMIT(w, AND, w->bool_type, after, before);
    const uint32_t bytes = EMIT(w, SELECT, w->uint_type, in, w->numbers[size], w->numbers[0]);
    const uint32_t old = EMIT(w, LOAD, w->uint_type, w->count);
    emit(w, STORE, (uint32_t[]){w->count, EMIT(w, IADD, w->uint_type, old, bytes)}, 2);
}

static void emit_last(rewriter *w) {
    const uint32_t count = EMIT(w, LOAD, w->uint_type, w->count);
    const uint32_t old = emit_atomic_add(w, offsetof(range, low), count);
    const uint32_t sum = EMIT(w, IADD, w->uint_type, old, count);
    const uint32_t carries = EMIT(w, LESS, w->bool_type, sum, old);
    emit_atomic_add(w, offsetof(range, high), EMIT(w, SELECT, w->uint_type, carries, w->numbers[1], w->numbers[0]));
}

/* An instruction of the module, with the variables in the list of the entry point. */
static void copy_instruction(rewriter *w, const uint32_t *i) {
    const uint32_t n = i[0] >> 16, op = i[0] & 0xffff;
    memcpy(w->out + w->n, i, n * sizeof(*i));
    if (op == ENTRY_POINT) {
        w->main = i[2];
        w->out[w->n] = (n + 3) << 16 | op;
        memcpy(w->out + w->n + n, (uint32_t[]){w->begin, w->end, w->count}, 3 * sizeof(*i));
        w->n += 3;
    }
    w->n += n;
}

static void rewrite(rewriter *w, const uint32_t *code, size_t n) {
    bool has_globals = false, is_main = false, is_first = false;
    memcpy(w->out, code, 5 * sizeof(*code));
    w->n = 5;
    w->bound = code[3];
    w->begin = w->bound++, w->end = w->bound++, w->count = w->bound++;
    for (size_t i = 5; i < n; i += code[i] >> 16) {
        const uint32_t op = code[i] & 0xffff;
        if (op == FUNCTION) {
            if (!has_globals) emit_globals(w);
            has_globals = true;
            is_main = is_first = code[i + 2] == w->main;
        } else if (is_first && op != LABEL && op != VARIABLE) {
            emit_first(w);
            is_first = false;
        }
        if (op == LOAD && w->classes[w->types[code[i + 3]]] == BY_ADDRESS)
            emit_count(w, code[i + 3], w->sizes[code[i + 1]]);
        if (op == RETURN && is_main) emit_last(w);
        read_instruction(w, code + i);
        copy_instruction(w, code + i);
    }
    w->out[3] = w->bound;
}

static void open_table(void) {
    rp_error err = {0};
    if (table.handle) return;
    must(vulkan_buffer_new(device, VULKAN_TO_HOST, sizeof(range), "counters", &table, &err), &err);
    memset(table.mapped, 0, sizeof(range));
}

static VKAPI_ATTR VkResult VKAPI_CALL create_counting(VkDevice d, const VkShaderModuleCreateInfo *info,
                                                      const VkAllocationCallbacks *a, VkShaderModule *out) {
    const size_t n = info->codeSize / 4, ids = info->pCode[3];
    open_table();
    size_t n_loads = 0;
    for (size_t i = 5; i < n; i += info->pCode[i] >> 16) n_loads += (info->pCode[i] & 0xffff) == LOAD;
    rewriter w = {.out = calloc(n + 512 + n_loads * WORDS_OF_A_LOAD, 4)};
    w.sizes = calloc(ids, sizeof(uint32_t));
    w.classes = calloc(ids, sizeof(uint32_t));
    w.types = calloc(ids, sizeof(uint32_t));
    rewrite(&w, info->pCode, n);
    VkShaderModuleCreateInfo counting = *info;
    counting.codeSize = w.n * 4;
    counting.pCode = w.out;
    const VkResult result = create_module(d, &counting, a, out);
    free(w.out), free(w.sizes), free(w.classes), free(w.types);
    return result;
}

void load_counter_attach(vulkan_device *d) {
    device = d;
    create_module = d->vk.vkCreateShaderModule;
    d->vk.vkCreateShaderModule = create_counting;
}

void load_counter_detach(void) {
    vulkan_buffer_free(device, &table);
    device = NULL;
}

void load_counter_watch(uint64_t begin, uint64_t bytes) {
    open_table();
    *(range *)table.mapped = (range){.begin = begin, .end = begin + bytes};
}

uint64_t load_counter_bytes(void) {
    const range *r = (const range *)table.mapped;
    return r ? (uint64_t)r->high << 32 | r->low : 0;
}
