/* SPDX-License-Identifier: Apache-2.0 */
/* eval_task.h: task files: JSON lines, each a question about a schema with its accepted answers. */
#ifndef CLI_EVAL_TASK_H
#define CLI_EVAL_TASK_H

#include <stddef.h>

typedef enum eval_metric { EVAL_EXACT,
                           EVAL_CONTAINS,
                           EVAL_F1,
                           EVAL_ROUGE_L,
                           EVAL_PERPLEXITY,
                           EVAL_METRIC_COUNT } eval_metric;

typedef struct eval_item {
    int line;                /* in the file, from 1 */
    const char *schema;      /* a PML document; shared with other items */
    const char *schema_name; /* its file, or NULL: the line contains the schema */
    const char *dir;         /* folder of its src files; NULL if the line contains the schema */
    const char *prompt;      /* a PML document */
    const char **answers;
    size_t n_answers; /* 1 or more */
    eval_metric metric;
} eval_item;

typedef struct eval_task {
    char *name; /* the file's name, without folder and extension */
    const char *path;
    eval_item *items;
    size_t n_items;
    void *owner; /* internal: the JSON that holds the strings */
} eval_task;

const char *eval_metric_name(eval_metric metric); /* "exact", "contains", "f1", "rouge-l", "perplexity" */

/* Reads at most `limit` items (0: all). Returns an exit status; errors contain file:line. */
int eval_task_read(eval_task *task, const char *path, size_t limit);
void eval_task_free(eval_task *task);

#endif
